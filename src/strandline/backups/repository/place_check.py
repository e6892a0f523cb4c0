"""Check of a storage location, before a collection that uses it is created.

The check refuses a location at which the first backup would fail, for one of these reasons:

- The location cannot be written or read.
- It has files in the folders of a repository, but no marker.
- It is inside a folder of another repository.
- It has a repository, and only one of repository and collection is encrypted.
- The key is missing or wrong.

The check writes a small file with a new name, reads it and deletes it. It creates no repository, and removes
the folders that it has created.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from strandline.backups.repository.repository import check_free, check_kind, make_root
from strandline.errors import StrandlineError, Unavailable
from strandline.settings import Settings
from strandline.storage.files import Files
from strandline.storage.location import files_at, is_url
from strandline.storage.repository_marker import Expected, open_repository_files, read_marker

RETRIES, RETRY_SECONDS = 2, 10.0
"""Maximum number of retries, and of seconds for them. They are lower than for a backup: the user waits."""


def check_place(root: str, settings: Settings, *, encrypted: bool) -> None:
    """Refuse a location where a backup could not be stored with these settings."""
    try:
        _check(root, settings, encrypted=encrypted)
    except StrandlineError as error:
        error.hint = f"{error.hint} To make the collection without this check, add CHECK = 'false'."
        raise


def _check(root: str, settings: Settings, *, encrypted: bool) -> None:
    quick = replace(
        settings,
        storage_retries=min(RETRIES, settings.storage_retries),
        storage_retry_seconds=min(RETRY_SECONDS, settings.storage_retry_seconds),
    )
    files = files_at(root, quick)
    marker = read_marker(files)
    check_kind(marker, root, encrypted=encrypted)
    if marker is not None:
        open_repository_files(files, settings, Expected(encrypted=encrypted))
    else:
        check_free(files, root, quick)
        if encrypted:
            from strandline.storage.user_key import user_key

            user_key(settings)
    with _make_folder(files, root):
        _probe(files, root)


def _probe(files: Files, root: str) -> None:
    name, data = f"probe-{uuid.uuid4().hex}", os.urandom(64)
    files.write(name, data)
    try:
        if files.find(name) != data:
            raise Unavailable(
                f"{root} does not return what was written to it", "Check what is mounted there."
            )
    finally:
        # Some buckets do not allow deletes. A leftover probe file is harmless.
        with suppress(StrandlineError):
            files.remove(name)


@contextmanager
def _make_folder(files: Files, root: str) -> Iterator[None]:
    """Create the folder of the location; after the block, remove the folders that this call has created."""
    missing: list[str] = []
    above = root
    while not is_url(root) and not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    try:
        make_root(files, root)
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                os.rmdir(folder)
