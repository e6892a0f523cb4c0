"""Open files below a root folder without following symbolic links.

Only the root itself may be a link. Every path component below it is opened relative to its parent with
O_NOFOLLOW, and a link is refused. So a folder that is replaced by a link between two calls does no harm.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from strandline.errors import Corrupted

__all__ = ["Entries", "entries", "folder_of", "open_file", "stat_file"]

_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""Flag that opens a folder only to reach its entries: no permission to list the folder is needed."""
_FOLDER = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def folder_of(root: str, path: str) -> Iterator[tuple[int | None, str]]:
    """Yield the ``dir_fd`` and the name with which ``os`` functions reach a file below ``root``.

    For a path that is not below ``root``, yields None and the path itself. Raises CORRUPTED if a folder
    between ``root`` and the file is a symbolic link.

    Args:
        path: the absolute path of the file.
    """
    if not path.startswith(f"{root.rstrip('/')}/"):
        yield None, path
        return
    *folders, name = path[len(root) :].strip("/").split("/")
    at = os.open(root, _PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            try:
                inner = os.open(folder, _FOLDER, dir_fd=at)
            except OSError:
                _refuse_link(root, path, at, folder)
                raise
            os.close(at)
            at = inner
        yield at, name
    finally:
        os.close(at)


def _refuse_link(root: str, path: str, at: int | None, name: str) -> None:
    """Raise CORRUPTED if ``name`` is a symbolic link."""
    try:
        mode = os.lstat(name, dir_fd=at).st_mode
    except OSError:
        return
    if stat.S_ISLNK(mode):
        raise Corrupted(
            f"the path {path} leads through the symbolic link {name!r}, and no link is followed below {root}",
            f"Put the files themselves there. Only {root} itself may be a link.",
        )


def open_file(root: str, path: str) -> int:
    """Open a file below ``root`` for reading, and return its descriptor.

    Raises CORRUPTED for a pipe or a device: reading it might never end.
    """
    with folder_of(root, path) as (at, name):
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except OSError:
            _refuse_link(root, path, at, name)
            raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(path)
    raise Corrupted(f"{path} is a pipe or a device, not a file", "Restore the file from a copy.")


def stat_file(root: str, path: str) -> os.stat_result | None:
    """Return the status of a file below ``root``; None if the path is not a regular file."""
    with folder_of(root, path) as (at, name):
        found = os.lstat(name, dir_fd=at)
        if stat.S_ISLNK(found.st_mode):
            _refuse_link(root, path, at, name)
    return found if stat.S_ISREG(found.st_mode) else None


class Entries(NamedTuple):
    """The names in a folder.

    Attributes:
        folders: folders.
        files: files, and symbolic links that do not lead to folders.
        links: symbolic links that lead to folders.
    """

    folders: list[str]
    files: list[str]
    links: list[str]


def entries(root: str, path: str) -> Entries:
    """List a folder below ``root``, or ``root`` itself."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with folder_of(root, path) as (at, name):
        try:
            descriptor = os.open(name, flags if at is None else flags | os.O_NOFOLLOW, dir_fd=at)
        except OSError:
            if at is not None:
                _refuse_link(root, path, at, name)
            raise
    found = Entries([], [], [])
    try:
        with os.scandir(descriptor) as listed:
            for entry in listed:
                if entry.is_dir(follow_symlinks=False):
                    found.folders.append(entry.name)
                elif entry.is_symlink() and entry.is_dir():
                    found.links.append(entry.name)
                else:
                    found.files.append(entry.name)
    finally:
        os.close(descriptor)
    return Entries(*map(sorted, found))
