"""Key rotation of an encrypted repository, without a warehouse."""

from __future__ import annotations

from strandline.backups.repository.lease import take
from strandline.clock import SystemClock
from strandline.errors import PreconditionFailed
from strandline.settings import Settings
from strandline.storage.keyring import Rotated, rotate
from strandline.storage.location import files_at
from strandline.storage.repository_marker import read_marker
from strandline.storage.user_key import user_key

LEASE_SECONDS = 120.0


def rotate_key(root: str, old: Settings, new: Settings, *, new_master: bool = False) -> Rotated:
    """Replace the user key of an encrypted repository.

    Afterwards the key in ``new`` opens the repository, and the key in ``old`` does not. Data files are not
    encrypted again.

    Args:
        new_master: Also create a new master key, with which new files are encrypted. This takes the
            repository's lease, so that no other process writes with the old key meanwhile. UNDER_OPERATION if
            a backup is being uploaded.
    """
    files = files_at(root, old)
    marker = read_marker(files)
    if marker is None or not marker.encrypted:
        what = "is not a backup repository" if marker is None else "is not encrypted"
        raise PreconditionFailed(f"{root} {what}", "Check the folder or the URL.")
    before, after = user_key(old), user_key(new)
    if not new_master:
        return rotate(files, before, after)
    # The owner's name depends only on the key, so a repeated rotation takes over the lease of the first
    # attempt without waiting.
    owner = f"rotate-key/{after.fingerprint}"
    lease = take(files, SystemClock(), owner, "rotate-key --new-master", LEASE_SECONDS)
    try:
        return rotate(files, before, after, new_master=True, check=lease.check)
    finally:
        lease.release()
