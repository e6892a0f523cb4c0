"""Changing the key of an encrypted repository, without a warehouse."""

from __future__ import annotations

from strandline.backups.lease import take
from strandline.clock import SystemClock
from strandline.errors import PreconditionFailed
from strandline.settings import Settings
from strandline.storage.keyring import Rotated, rotate
from strandline.storage.location import files_at
from strandline.storage.marker import read_marker
from strandline.storage.user_key import user_key

LEASE_SECONDS = 120.0


def rotate_key(root: str, old: Settings, new: Settings, *, new_master: bool = False) -> Rotated:
    """Let the key to which the settings ``new`` lead open an encrypted repository, and that of ``old`` no
    more. No data is written again.

    Args:
        new_master: seal new files with a new master key. It needs the lease of the repository, so that nobody
            writes with the old one meanwhile: UNDER_OPERATION if a backup is being sent.
    """
    files = files_at(root, old)
    marker = read_marker(files)
    if marker is None or not marker.encrypted:
        what = "is not a backup repository" if marker is None else "is not encrypted"
        raise PreconditionFailed(f"{root} {what}", "Check the folder or the URL.")
    before, after = user_key(old), user_key(new)
    if not new_master:
        return rotate(files, before, after)
    # The owner has a name that depends on the key alone, so that a repeated rotation need not wait.
    owner = f"rotate-key/{after.fingerprint}"
    lease = take(files, SystemClock(), owner, "rotate-key --new-master", LEASE_SECONDS)
    try:
        return rotate(files, before, after, new_master=True, check=lease.check)
    finally:
        lease.release()
