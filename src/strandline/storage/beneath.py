"""Opening what lies below a folder without following any symbolic link.

The folder itself may be a link. Below it each component is opened by itself, relative to the one above it,
and a link in its place is refused. So a folder that is replaced by a link at the wrong moment does no harm.
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
"""Only to reach what is below: no right to list the folder is needed."""
_FOLDER = _PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def folder_of(root: str, path: str) -> Iterator[tuple[int | None, str]]:
    """Yield what to pass to functions of ``os`` as ``dir_fd`` and as the name there, for the absolute path of
    something below ``root``. CORRUPTED if there is a link on the way. What is not below ``root`` is
    named by its path alone."""
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
    """Raise CORRUPTED if a name is that of a symbolic link: the file, or folder, itself is not there."""
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
    """Return a descriptor for reading a file below ``root``. CORRUPTED if it is a pipe or a device, which
    might never end."""
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
    raise Corrupted(f"{path} is a pipe or a device, and no file", "Bring the file back from a copy.")


def stat_file(root: str, path: str) -> os.stat_result | None:
    """Return what the file system says of a file below ``root``; None if there is something else."""
    with folder_of(root, path) as (at, name):
        found = os.lstat(name, dir_fd=at)
        if stat.S_ISLNK(found.st_mode):
            _refuse_link(root, path, at, name)
    return found if stat.S_ISREG(found.st_mode) else None


class Entries(NamedTuple):
    """The names of what is in a folder, each kind sorted. ``links`` lead to folders."""

    folders: list[str]
    files: list[str]
    links: list[str]


def entries(root: str, path: str) -> Entries:
    """Return what is in a folder below ``root``, or in ``root`` itself."""
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
