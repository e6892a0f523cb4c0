"""Where files live. A file is written once under a fresh name, is durable when the writing call returns, and
never changes again.

``Files`` is what the rest of the code needs from a warehouse or a backup repository; ``LocalFiles`` is a
folder, ``ObjectFiles`` (``objects.py``) a part of a bucket. A name is relative, with ``/`` between its parts.
All methods may be called from any thread. Every change of the disk goes through the primitives at the end of
``LocalFiles``, so that a test can stop a process before any one of them.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import xxhash

from strandline.errors import (
    AlreadyExists,
    Corrupted,
    Internal,
    InvalidArgument,
    StrandlineError,
    Unavailable,
)
from strandline.storage.beneath import Entries, entries, folder_of, open_file, stat_file
from strandline.storage.pieces import gathered, pieces, write_pieces

__all__ = ["PREFIX", "Files", "LocalFiles", "MissingFile", "Source", "check_name", "checked", "fault"]

CHUNK = 1 << 20
PREFIX = "xxh3-128:"
"""Of the text of a checksum: which hash it is."""


class MissingFile(Corrupted):
    """A file that should be in a folder is not there."""

    path: str | None = None
    """The absolute path, if it is known."""


class Source(Protocol):
    """What files are copied from."""

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        """Return the content in pieces. Each may be gone when the next one comes."""
        ...


class Files(Source, Protocol):
    """A flat set of named, immutable files."""

    @property
    def location(self) -> str:
        """Where they are, as the catalog records it: the real path of a folder, or a URL."""
        ...

    def path(self, name: str) -> str:
        """Return the absolute path, or the URL that Spark knows the file by."""
        ...

    def readable(self, name: str) -> Any:
        """Return what Arrow reads any part of the file from: a path, or an open file."""
        ...

    def spark_options(self) -> Mapping[str, str]:
        """Return what a new Spark session has to be told to reach the files. It may hold secrets."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a new file. When this returns, the file survives a crash; when it raises, there is no such
        file."""
        ...

    def make_root(self) -> None:
        """Make the place for the files, with all above it, if it is not there; it survives a crash when this
        returns."""
        ...

    def write_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file whose name others may want at the same moment, and return whether it was the first.
        Nobody ever sees a part."""
        ...

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        """Write a new file from pieces, each of which may be gone when the next one comes, and return its
        size. No file if the pieces end with an error, which is raised."""
        ...

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        """Copy a file from ``source`` and return its size. Corrupted, and no file, if it does not have the
        ``checksum``."""
        ...

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        """Copy a file under a name that tells its content, so that others may copy the same to it at the
        same moment. Nobody ever sees a part. Corrupted if it does not have the ``checksum``."""
        ...

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file from its pieces under a name that tells its content, so that others may write the
        same to it at the same moment. Nobody ever sees a part."""
        ...

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a file from its pieces in the place of another one, in a single step: a reader sees the old
        content or the new one. The old file stays if the pieces end with an error, which is raised."""
        ...

    def seal(self, names: Iterable[str]) -> None:
        """Make files durable that something else (Spark) wrote."""
        ...

    def names(self, folder: str = "") -> Iterator[str]:
        """Return the names of all files below ``folder``."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; do nothing if there is none."""
        ...

    def remove_tree(self, folder: str) -> None:
        """Remove a folder with all that is in it; do nothing if there is none."""
        ...

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str) -> bytes: ...

    def find(self, name: str) -> bytes | None:
        """Return the content; None if there is no such file."""
        ...

    def checksum(self, name: str) -> str:
        """Return the checksum of the content, in the form that ``Segment.checksum`` has."""
        ...


def check_name(name: str) -> None:
    """Names also come from manifests that other people wrote: one must not lead out of the folder."""
    if not name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidArgument(
            f"{name!r} is not a file name inside a warehouse", "Use a relative name without '..' parts."
        )


def checked(source: Source, name: str, checksum: str) -> Iterator[bytes | memoryview]:
    """Yield the content of a file in pieces, each of which may be gone when the next one comes; Corrupted at
    its end if it does not have the ``checksum``."""
    hasher = xxhash.xxh3_128()
    for chunk in source.chunks(name):
        hasher.update(chunk)
        yield chunk
    if PREFIX + hasher.hexdigest() != checksum:
        raise Corrupted(f"the file {name} does not have the checksum that was recorded for it")


def fault(
    verb: str, name: str, error: OSError, at: str | None = None, *, is_removed: bool = False
) -> StrandlineError:
    """Return what an error of the operating system means to a caller: a file that should be there and is not
    is damage, anything else is a folder that cannot be used now. ``at``: which one that is. ``is_removed``:
    what was written of the file is gone again."""
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


class LocalFiles:
    """Files in a folder of this machine, or of a mounted file system that honours O_EXCL and fsync.

    ``follows``: symbolic links below the folder are followed, as for files that users name. In a warehouse
    and in a repository none is: whoever may write there could let files be read or removed elsewhere."""

    def __init__(self, root: str | os.PathLike[str], *, follows: bool = False) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.follows = follows

    def __reduce__(self) -> tuple[Any, ...]:
        # On another machine it is a folder and nothing else.
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
            with suppress(OSError):  # The one who opens it reports that.
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
            # A partial file must not stay, whatever stopped us. If even that fails it is an orphan, which the
            # collector removes.
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
            raise NotADirectoryError(errno.ENOTDIR, "it is a link that leads to no folder", self.root)

    def write_if_absent(self, name: str, data: bytes) -> bool:
        return self._name_if_absent(name, lambda ready: self.write(ready, data))

    def _name_if_absent(self, name: str, make: Callable[[str], Any]) -> bool:
        """Give the name to a file that is made under another one, and return whether it was free."""
        ready = f"{name}.{uuid.uuid4().hex}"
        make(ready)
        try:
            is_first = self._give_name(self.path(ready), self.path(name))
        except OSError as error:
            raise self._fault("create", name, error) from error
        finally:
            self.remove(ready)
        self.seal([name])  # Also if it is another's: that one may not have come so far.
        return is_first

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        ready = f"{name}.{uuid.uuid4().hex}"
        self._store(ready, gathered(chunks), past_memory=True)
        self.give_name(ready, name, replace=True)

    def give_name(self, ready: str, name: str, *, replace: bool) -> None:
        """Give a file that is whole its name, in the place of another only if it may ``replace`` that;
        otherwise it is removed, and AlreadyExists raised."""
        try:
            if replace:
                self._rename(self.path(ready), self.path(name))
            elif not self._give_name(self.path(ready), self.path(name)):
                raise AlreadyExists(f"{self.path(name)} is there already", "Choose another name.")
        except OSError as error:
            raise self._fault("create", name, error) from error
        finally:
            self.remove(ready)
        self.seal([name])

    def move_folder(self, ready: str, name: str, *, replace: bool) -> None:
        """Give a folder that is whole its name, in the place of another only if it may ``replace`` that.
        Where the file system lets both change places, one of them is always there."""
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
        return self._store(name, checked(source, source_name, checksum), past_memory=True)

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        self._name_if_absent(name, lambda ready: self.copy(source, source_name, ready, checksum))

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        made = gathered(chunks)  # Whoever writes it is done with it, as after a copy.
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
        for folder in sorted(
            folders, reverse=True
        ):  # The inner ones first: an entry counts only when its parent is durable.
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
        """Yield each folder from ``top`` on with what is in it; the inner ones come later."""
        waiting = [top]
        while waiting:
            at = waiting.pop()
            try:
                found = entries(self._beneath, at)
            except (FileNotFoundError, NotADirectoryError):
                continue  # It was removed while we looked.
            except OSError as error:
                raise fault("list", at, error) from error
            waiting += [os.path.join(at, folder) for folder in reversed(found.folders)]
            yield at, found

    @property
    def _beneath(self) -> str:
        """The folder below which no link is followed."""
        return "\0" if self.follows else self.root

    def remove(self, name: str) -> None:
        try:
            self._unlink(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._fault("remove", name, error) from error

    def remove_tree(self, folder: str) -> None:
        top = self.path(folder.rstrip("/"))
        try:
            for at, found in reversed(list(self._walk(top))):
                for file in (*found.files, *found.links):
                    with suppress(FileNotFoundError):
                        self._unlink(os.path.join(at, file))
                with suppress(FileNotFoundError):
                    self._rmdir(at)
        except OSError as error:
            raise self._fault("remove", folder, error) from error

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
            raise Corrupted(f"{path} is no file")
        return found.st_size

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
            # Not every file system has links. Without them two that come at the very same moment are not
            # told apart.
            if os.path.exists(name):
                return False
            self._rename(path, name)
        return True

    def _make_folders(self, folder: str) -> list[str]:
        """Create ``folder`` and return which folders got a new entry by that, innermost first."""
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            with suppress(
                FileExistsError
            ):  # Another writer was faster, but may not have made it durable yet.
                self._mkdir(path)
        return [os.path.dirname(path) for path in missing]

    def _fill(self, descriptor: int, chunks: Iterable[bytes | memoryview], *, past_memory: bool) -> int:
        try:
            size = write_pieces(descriptor, chunks, self._append, past_memory=past_memory)
            # On the descriptor that wrote: only it is sure to hear of a failed write-back.
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
        from strandline.storage.exchange import exchange  # ctypes is slow to load, and few replace a folder.

        return exchange(path, name)

    def _unlink(self, path: str) -> None:
        with folder_of(self._beneath, path) as (at, name):
            os.unlink(name, dir_fd=at)

    def _rmdir(self, path: str) -> None:
        with folder_of(self._beneath, path) as (at, name):
            os.rmdir(name, dir_fd=at)
