"""Interface of file storage, and files in a local folder.

A file is written once under a fresh name, is durable when the writing call returns, and never changes.

``Files`` is the interface that a warehouse or a backup repository offers to the rest of the code.
``LocalFiles`` implements it for a folder, ``ObjectFiles`` (``objects.py``) for a bucket. Names are relative,
with ``/`` as separator. All methods are thread-safe. ``LocalFiles`` changes the disk only through the
primitives at its end, so that a test can stop a process before any one of them.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import xxhash

from strandline.errors import (
    AlreadyExists,
    Corrupted,
    Internal,
    InvalidArgument,
    StrandlineError,
    Unavailable,
)
from strandline.storage.buffers import gather, pieces, write_pieces
from strandline.storage.no_follow import Entries, entries, folder_of, open_file, stat_file
from strandline.threads import in_parallel

__all__ = ["PREFIX", "Files", "LocalFiles", "MissingFile", "Source", "check_name", "fault", "read_checked"]

CHUNK = 1 << 20
THREADS = 8
"""Maximum number of threads that get sizes of files or delete files: each call may go to another machine."""
FEW = 8
"""Minimum number of files per thread."""
T = TypeVar("T")
PREFIX = "xxh3-128:"
"""Prefix of checksums: names the hash function."""


class MissingFile(Corrupted):
    """Error: a file that should be in a folder does not exist."""

    path: str | None = None
    """The absolute path, if known."""


class Source(Protocol):
    """A place to copy files from."""

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        """Yield the content in pieces. Each is valid only until the next one is requested."""
        ...


class Files(Source, Protocol):
    """A flat set of named, immutable files."""

    @property
    def location(self) -> str:
        """The location as the catalog records it: the real path of a folder, or a URL."""
        ...

    def path(self, name: str) -> str:
        """Return the absolute path of a file in a folder, or the URL under which Spark reads an object."""
        ...

    def readable(self, name: str) -> Any:
        """Return a path or an open file from which Arrow reads any part of the file."""
        ...

    def spark_options(self) -> Mapping[str, str]:
        """Return the settings that a new Spark session needs to reach the files. May contain secrets."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a new, durable file. If this raises, the file does not exist."""
        ...

    def make_root(self) -> None:
        """Create the root folder with its parents if it does not exist, durably."""
        ...

    def write_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file unless one with this name exists; return True if this call created the file.

        Other processes may write a file with the same name at the same time. No reader ever sees a partial
        file.
        """
        ...

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """Write a new file from pieces and return its size. If reading a piece fails, no file stays.

        Each piece is valid only until the next one is requested.
        """
        ...

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        """Copy a file from ``source`` and return its size.

        If the copied bytes do not have this ``checksum``, raises Corrupted and leaves no file.
        """
        ...

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        """Copy a file under a name that is derived from its content; other processes may do the same.

        No reader ever sees a partial file. Raises Corrupted if the bytes do not have this ``checksum``.
        """
        ...

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file under a name that is derived from its content; other processes may do the same.

        No reader ever sees a partial file.
        """
        ...

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Replace a file atomically: a reader sees the old content or the new one.

        If reading a piece raises an error, the old file stays.
        """
        ...

    def seal(self, names: Iterable[str]) -> None:
        """Make files durable that Spark or another program wrote."""
        ...

    def names(self, folder: str = "") -> Iterator[str]:
        """Yield the names of all files below ``folder``."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        ...

    def remove_all(self, names: Sequence[str]) -> None:
        """Delete many files together; missing ones are ignored.

        If one cannot be deleted, the error is raised after all others were tried.
        """
        ...

    def remove_tree(self, folder: str) -> None:
        """Delete a folder and its content if it exists."""
        ...

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def sizes(self, names: Sequence[str]) -> list[int | StrandlineError]:
        """Return for each file its size or the error. Sends many requests at the same time."""
        ...

    def read(self, name: str) -> bytes: ...

    def find(self, name: str) -> bytes | None:
        """Return the content; None if the file does not exist."""
        ...

    def checksum(self, name: str) -> str:
        """Return the checksum of the content, in the form of ``Segment.checksum``."""
        ...


def check_name(name: str) -> None:
    """Refuse a name that leads out of the folder. Names may come from manifests that others wrote."""
    if not name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidArgument(
            f"{name!r} is not a file name inside a warehouse", "Use a relative name without '..' parts."
        )


def read_checked(source: Source, name: str, checksum: str) -> Iterator[bytes | memoryview]:
    """Yield the content of a file in pieces; raise Corrupted at the end if its ``checksum`` differs.

    Each piece is valid only until the next one is requested.
    """
    hasher = xxhash.xxh3_128()
    for chunk in source.chunks(name):
        hasher.update(chunk)
        yield chunk
    if PREFIX + hasher.hexdigest() != checksum:
        raise Corrupted(f"the file {name} does not have the checksum that was recorded for it")


def fault(
    verb: str, name: str, error: OSError, at: str | None = None, *, is_removed: bool = False
) -> StrandlineError:
    """Translate an error of the operating system into the error for the caller.

    A missing file is damage (``MissingFile``). Any other error means that the folder cannot be used now
    (``Unavailable``).

    Args:
        verb: what was done with the file, for the message.
        name: the name of the file.
        error: the error of the operating system.
        at: the path of the folder. None: unknown.
        is_removed: the partly written file was removed.
    """
    if verb in ("read", "sync") and isinstance(
        error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)
    ):
        missing = MissingFile(f"the file {name} is missing")
        missing.path = None if at is None else os.path.join(at, name)
        return missing
    hint = None
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "Free some space there, then try again."
        if is_removed:
            hint += " What was written of the file was removed."
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = "Give this process the right to read and write there, then try again."
    place = f" at {at}" if at else ""
    return Unavailable(f"cannot {verb} the file {name}{place}: {error.strerror or error}", hint)


def act_on_all(act: Callable[[str], T], names: Sequence[str], threads: int) -> list[T | StrandlineError]:
    """Call ``act`` with each name, on up to ``threads`` threads; return the results or errors."""

    def act_on_some(some: Sequence[str]) -> list[T | StrandlineError]:
        return [_result(act, name) for name in some]

    threads = min(threads, len(names) // FEW)
    if threads <= 1:
        return act_on_some(names)
    # Neighbouring names go to different threads, because many neighbours may be in the same slow folder.
    made = in_parallel(act_on_some, [names[start::threads] for start in range(threads)], threads=threads)
    return [made[number % threads][number // threads] for number in range(len(names))]


def _result(act: Callable[[str], T], name: str) -> T | StrandlineError:
    try:
        return act(name)
    except StrandlineError as error:
        return error


def raise_first(results: Iterable[object]) -> None:
    """Raise the first error of ``act_on_all``."""
    for result in results:
        if isinstance(result, StrandlineError):
            raise result


class LocalFiles:
    """Files in a local folder, or in a mounted file system that supports O_EXCL and fsync.

    Args:
        root: the folder.
        follows: follow symbolic links below the folder. True only for files that users name. In warehouses
            and repositories links are refused: an attacker with write access there could use a link to make
            this process read or delete files elsewhere.
    """

    def __init__(self, root: str | os.PathLike[str], *, follows: bool = False) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.follows = follows

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle of a subclass, too, is loaded as a plain LocalFiles.
        return partial(LocalFiles, follows=self.follows), (self.root,)

    @property
    def location(self) -> str:
        return os.path.realpath(self.root)

    def path(self, name: str) -> str:
        check_name(name)
        return os.path.join(self.root, *name.split("/"))

    def readable(self, name: str) -> str:
        path = self.path(name)
        if not self.follows:
            with suppress(OSError):  # Opening the file reports this error.
                stat_file(self.root, path)
        return path

    def spark_options(self) -> Mapping[str, str]:
        return {}

    def write(self, name: str, data: bytes) -> None:
        self.store(name, (data,))

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        return self._store(name, chunks)

    def _store(self, name: str, chunks: Iterable[bytes | memoryview], *, past_memory: bool = False) -> int:
        path = self.path(name)
        folder = os.path.dirname(path)
        try:
            fresh = self._make_folders(folder)
            descriptor = self._create(path)
        except FileExistsError as error:
            raise Internal(f"the file {name} exists already, and files are never written twice") from error
        except OSError as error:
            raise self._fault("create", name, error) from error
        try:
            size = self._fill(descriptor, chunks, past_memory=past_memory)
            for changed in (folder, *fresh):
                self._sync(changed)
            return size
        except BaseException as error:
            # After any error, no partial file must stay. If its removal fails, the file becomes an orphan,
            # which the collector deletes.
            is_removed = False
            with suppress(OSError):
                self._unlink(path)
                is_removed = True
            if isinstance(error, OSError):
                raise self._fault("write", name, error, is_removed=is_removed) from error
            raise

    def make_root(self) -> None:
        for changed in self._make_folders(self.root):
            self._sync(changed)
        if not os.path.isdir(self.root):
            raise NotADirectoryError(errno.ENOTDIR, "it is a link that does not lead to a folder", self.root)

    def write_if_absent(self, name: str, data: bytes) -> bool:
        return self._name_if_absent(name, lambda ready: self.write(ready, data))

    def _name_if_absent(self, name: str, make: Callable[[str], Any]) -> bool:
        """Write a temporary file, then rename it if ``name`` is free; return True if it was renamed."""
        ready = f"{name}.{uuid.uuid4().hex}"
        make(ready)
        try:
            is_first = self._give_name(self.path(ready), self.path(name))
        except OSError as error:
            raise self._fault("create", name, error) from error
        finally:
            self.remove(ready)
        self.seal([name])  # Another process may have created the file without syncing it yet.
        return is_first

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        ready = f"{name}.{uuid.uuid4().hex}"
        self._store(ready, gather(chunks), past_memory=True)
        self.give_name(ready, name, replace=True)

    def give_name(self, ready: str, name: str, *, replace: bool) -> None:
        """Rename the complete file ``ready`` to ``name``.

        Args:
            replace: replace an existing file ``name``. False: if ``name`` exists, delete ``ready`` and raise
                AlreadyExists.
        """
        try:
            if replace:
                self._rename(self.path(ready), self.path(name))
            elif not self._give_name(self.path(ready), self.path(name)):
                raise AlreadyExists(f"{self.path(name)} exists already", "Choose another name.")
        except OSError as error:
            raise self._fault("create", name, error) from error
        finally:
            self.remove(ready)
        self.seal([name])

    def move_folder(self, ready: str, name: str, *, replace: bool) -> None:
        """Rename the complete folder ``ready`` to ``name``.

        If the file system can exchange two folders atomically, a replaced folder is never missing.

        Args:
            replace: replace the existing folder ``name``.
        """
        old = ready
        try:
            if not replace:
                self._rename(self.path(ready), self.path(name))
            elif not self._exchange(self.path(ready), self.path(name)):
                old = f"{ready}.replaced"
                self._rename(self.path(name), self.path(old))
                try:
                    self._rename(self.path(ready), self.path(name))
                except BaseException:
                    self._rename(self.path(old), self.path(name))
                    raise
            self._sync(os.path.dirname(self.path(name)))
        except OSError as error:
            raise self._fault("create", name, error) from error
        if replace:
            self.remove_tree(old)

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        return self._store(name, read_checked(source, source_name, checksum), past_memory=True)

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        self._name_if_absent(name, lambda ready: self.copy(source, source_name, ready, checksum))

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        made = gather(chunks)  # This copies the pieces, so the caller may reuse its buffers.
        self._name_if_absent(name, lambda ready: self._store(ready, made, past_memory=True))

    def seal(self, names: Iterable[str]) -> None:
        folders: set[str] = set()
        for name in names:
            path = self.path(name)
            try:
                self._sync(path)
            except OSError as error:
                raise self._fault("sync", name, error) from error
            while path != self.root and (path := os.path.dirname(path)) not in folders:
                folders.add(path)
        # Inner folders first: an entry is durable only when its parent is.
        for folder in sorted(folders, reverse=True):
            try:
                self._sync(folder)
            except OSError as error:
                raise fault("sync", folder, error) from error

    def names(self, folder: str = "") -> Iterator[str]:
        top = self.path(folder.rstrip("/")) if folder else self.root
        for at, found in self._walk(top):
            for file in found.files:
                yield os.path.relpath(os.path.join(at, file), self.root).replace(os.sep, "/")

    def _walk(self, top: str) -> Iterator[tuple[str, Entries]]:
        """Yield each folder from ``top`` on with its entries, outer folders before inner ones."""
        waiting = [top]
        while waiting:
            at = waiting.pop()
            try:
                found = entries(self._beneath, at)
            except (FileNotFoundError, NotADirectoryError):
                continue  # It was deleted meanwhile.
            except OSError as error:
                raise fault("list", at, error) from error
            waiting += [os.path.join(at, folder) for folder in reversed(found.folders)]
            yield at, found

    @property
    def _beneath(self) -> str:
        """The folder below which symbolic links are refused.

        If links are followed, this is an invalid path, so that no file is below it.
        """
        return "\0" if self.follows else self.root

    def remove(self, name: str) -> None:
        try:
            self._unlink(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._fault("remove", name, error) from error

    def remove_all(self, names: Sequence[str]) -> None:
        raise_first(act_on_all(self.remove, names, THREADS))

    def remove_tree(self, folder: str) -> None:
        top = self.path(folder.rstrip("/"))
        try:
            walked = list(self._walk(top))
            files = [os.path.join(at, name) for at, found in walked for name in (*found.files, *found.links)]
            act_on_all(self._unlink_if_there, files, THREADS)
            for at, _ in reversed(walked):
                with suppress(FileNotFoundError):
                    self._rmdir(at)
        except OSError as error:
            raise self._fault("remove", folder, error) from error

    def _unlink_if_there(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._unlink(path)

    def exists(self, name: str) -> bool:
        path = self.path(name)
        if self.follows:
            return os.path.isfile(path)
        try:
            return stat_file(self.root, path) is not None
        except OSError:
            return False

    def size(self, name: str) -> int:
        path = self.path(name)
        try:
            found = os.stat(path) if self.follows else stat_file(self.root, path)
        except OSError as error:
            raise self._fault("read", name, error) from error
        if found is None:
            raise Corrupted(f"{path} is not a file")
        return found.st_size

    def sizes(self, names: Sequence[str]) -> list[int | StrandlineError]:
        return act_on_all(self.size, names, THREADS)

    def read(self, name: str) -> bytes:
        return b"".join(map(bytes, self.chunks(name)))

    def find(self, name: str) -> bytes | None:
        try:
            with open(self._open(self.path(name)), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._fault("use", name, error) from error

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        path = self.path(name)
        try:
            yield from pieces(self._open(path))
        except OSError as error:
            raise self._fault("read", name, error) from error

    def _open(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if self.follows else open_file(self.root, path)

    def checksum(self, name: str) -> str:
        hasher = xxhash.xxh3_128()
        for chunk in self.chunks(name):
            hasher.update(chunk)
        return PREFIX + hasher.hexdigest()

    def _fault(self, verb: str, name: str, error: OSError, *, is_removed: bool = False) -> StrandlineError:
        return fault(verb, name, error, self.root, is_removed=is_removed)

    # --- writing -------------------------------------------------------------------------------------------

    def _give_name(self, path: str, name: str) -> bool:
        try:
            self._link(path, name)
        except FileExistsError:
            return False
        except OSError:
            # Not every file system supports hard links. Without them, two writers at the very same moment may
            # both succeed.
            if os.path.exists(name):
                return False
            self._rename(path, name)
        return True

    def _make_folders(self, folder: str) -> list[str]:
        """Create ``folder`` with its parents; return the folders with a new entry, innermost first."""
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            with suppress(FileExistsError):  # Another writer created it, but may not have synced it yet.
                self._mkdir(path)
        return [os.path.dirname(path) for path in missing]

    def _fill(self, descriptor: int, chunks: Iterable[bytes | memoryview], *, past_memory: bool) -> int:
        try:
            size = write_pieces(descriptor, chunks, self._append, past_memory=past_memory)
            # Flush the descriptor that wrote: only this one is sure to report a failed write-back.
            self._flush(descriptor)
        finally:
            os.close(descriptor)
        return size

    # --- the primitives: nothing else changes the disk -----------------------------------------------------

    def _mkdir(self, path: str) -> None:
        with folder_of(self._beneath, path) as (at, name):
            os.mkdir(name, dir_fd=at)

    def _create(self, path: str) -> int:
        with folder_of(self._beneath, path) as (at, name):
            return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=at)

    def _append(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def _flush(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def _sync(self, path: str) -> None:
        """Make a file's content or a folder's entries durable."""
        with folder_of(self._beneath, path) as (at, name):
            no_link = 0 if at is None else os.O_NOFOLLOW
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | no_link, dir_fd=at)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _link(self, path: str, name: str) -> None:
        with folder_of(self._beneath, path) as (at, old), folder_of(self._beneath, name) as (to, new):
            os.link(old, new, src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False)

    def _rename(self, path: str, name: str) -> None:
        with folder_of(self._beneath, path) as (at, old), folder_of(self._beneath, name) as (to, new):
            os.rename(old, new, src_dir_fd=at, dst_dir_fd=to)

    def _exchange(self, path: str, name: str) -> bool:
        # Imported late: ctypes is slow to load and rarely needed.
        from strandline.storage.atomic_swap import exchange

        return exchange(path, name)

    def _unlink(self, path: str) -> None:
        with folder_of(self._beneath, path) as (at, name):
            os.unlink(name, dir_fd=at)

    def _rmdir(self, path: str) -> None:
        with folder_of(self._beneath, path) as (at, name):
            os.rmdir(name, dir_fd=at)
