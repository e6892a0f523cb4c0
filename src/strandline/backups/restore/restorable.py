"""Check that a backup is restorable with nothing but its repository and the user's key.

A process that has opened a repository keeps its marker and keys in memory. Without this check, the process
could continue to add backups after the files of the marker and the keys were lost, and no other process could
open these backups. So before a backup counts as done, the files that a restore needs first are read from the
repository again: the marker, the keys, the manifests of the backups that it builds on, and its own manifest.
Objects are not checked here, but by VERIFY.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.backups.repository.manifest import Manifest, file_of
from strandline.backups.repository.repository import Repository, away
from strandline.errors import Conflict, Corrupted
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.file_router import FileRouter
from strandline.storage.files import Files
from strandline.storage.repository_marker import Expected
from strandline.threads import in_parallel

READERS = 8
"""Maximum number of manifests that are read at the same time."""


def open_as_restorer(files: FileRouter, there: Repository) -> Repository:
    """Open the repository again, with the user's key as it is configured now.

    Refuse a repository that has another id or another master key than ``there``.
    """
    known = Expected(isinstance(there.files, EncryptedFiles), there.marker.id)
    found, is_one = files.open_anew(there.root, known)
    if not is_one:
        raise away(there.root)
    if _key_id(found) != _key_id(there.files):
        raise Conflict(
            f"the master key of the repository {there.root} was changed while a backup was uploaded",
            "The backup is as it was before. Try again: BACKUP, COMPACT or COPY BACKUP.",
        )
    return Repository(found, there.root)


def _key_id(files: Files) -> bytes | None:
    return files.ring.id if isinstance(files, EncryptedFiles) else None


def check_restorable(restorer: Repository, manifest: Manifest, ancestors: Sequence[str]) -> None:
    """Refuse a backup if a manifest that a restore needs is missing or unreadable.

    The manifests of the backup and of its parent are parsed. The manifests of earlier ancestors are only
    decrypted and compared with their checksums.

    Args:
        restorer: The repository, opened by ``open_as_restorer``.
        ancestors: Names of the backups that the backup builds on, its parent first.
    """
    listed = restorer.list_manifests()
    for name in ancestors:
        if name not in listed:
            raise Corrupted(
                f"{restorer.root} does not have the backup {name}, on which {manifest.backup.name} builds",
                "Bring its manifest back from a copy of the repository, or take a full backup.",
            )
    for name in ancestors[:1]:
        restorer.manifest_at(listed[name][0])
    in_parallel(restorer.check_bytes, [listed[name][0] for name in ancestors[1:]], threads=READERS)
    restorer.manifest_at(file_of(manifest.backup))
