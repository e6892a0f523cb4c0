"""Files that lie outside the warehouse: those of backups that are kept in a repository.

The catalog knows such a file by an absolute name: the repository's folder or URL, ``/objects/``, the name of
the object there, and after a ``#`` what tells two segments apart that have the same content, and so the same
object. ``Everywhere`` is the warehouse's own files and all of these behind one door, so that whoever reads or
copies a segment does not ask where it is. Nothing here writes or removes what lies elsewhere: that is for
those who know the repository.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any

import xxhash

from strandline.errors import StrandlineError
from strandline.model import is_elsewhere, object_of
from strandline.settings import Settings
from strandline.storage.files import Files, LocalFiles, Source
from strandline.storage.location import files_at
from strandline.storage.object_names import OBJECTS, ObjectName, place_of

if TYPE_CHECKING:
    from strandline.storage.marker import Expected

__all__ = [
    "OBJECTS",
    "Destination",
    "Everywhere",
    "absolute",
    "digits_of",
    "object_key",
    "object_name",
    "object_names",
    "roots",
]

NAMES = 4
"""Number of suffixes with which an object is looked for in a copy of a repository."""


@dataclass(frozen=True)
class Destination:
    """Where objects are sent. ``avoided``: names that must not be used: somebody may be about to remove what
    they name. ``damaged``: keys of objects that a verification has found damaged (``object_key``)."""

    root: str
    avoided: frozenset[str] = frozenset()
    damaged: frozenset[str] = frozenset()

    def is_damaged(self, name: str) -> bool:
        """Return whether the object of this name is known to be damaged."""
        return bool(self.damaged) and object_key(absolute(self.root, ObjectName(name), "")) in self.damaged


def object_key(file: str) -> str:
    """Return a short key of the object that a file is, whichever segments share it."""
    return xxhash.xxh3_64_hexdigest(object_of(file).encode())


def object_name(files: Files, checksum: str, avoided: frozenset[str] = frozenset()) -> ObjectName:
    """Return the name of the object with this content in a repository with these files."""
    names = _names(next(digits_of(files, checksum)))
    return next(name for name in names if name not in avoided)


def object_names(files: Files, checksum: str) -> list[ObjectName]:
    """Return the names that the object with this content may have in a repository with these files."""
    return [name for digits in digits_of(files, checksum) for name in islice(_names(digits), NAMES)]


def _names(digits: str) -> Iterator[ObjectName]:
    for end in chain([""], map("-{}".format, count(2))):
        yield ObjectName(f"{OBJECTS}/{digits[:2]}/{digits}{end}.parquet")


def digits_of(files: Files, checksum: str) -> Iterator[str]:
    """Yield the digits that objects with this content can have in their names, in a repository with these
    files. New objects have the first ones."""
    from strandline.storage.sealed import SealedFiles  # Only repositories need it.

    return files.names_of(checksum) if isinstance(files, SealedFiles) else iter([checksum.rpartition(":")[2]])


def absolute(root: str, name: ObjectName, use: str) -> str:
    """Return the name by which the catalog knows an object. ``use``: what no other segment has."""
    return f"{root.rstrip('/')}/{name}#{use}"


def roots(names: Iterable[str | None]) -> set[str]:
    """Return the places of the repositories that files lie in."""
    return {place_of(name)[0] for name in names if name and is_elsewhere(name)}


class Everywhere:
    """``own``: the files of the warehouse. ``opened``: repositories that are open already, by their places;
    ``opener`` opens others."""

    def __init__(self, own: Files, settings: Settings, opened: Mapping[str, Files] | None = None) -> None:
        self.own = own
        self._settings = settings
        self._opened = dict(opened or {})
        self.opener: Callable[[str], Files] = lambda root: files_at(root, settings)
        self.expects: Callable[[str], Expected | None] = lambda root: None
        """What is known of the repository at a place; None if nothing is."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Everywhere, (self.own, self._settings, self._opened)

    def at(self, root: str, expected: Expected | None = None) -> Files:
        """Return the files of a repository, opened with its key if it is encrypted. ``expected``: what the
        caller knows of it; None: what the catalog knows."""
        with self._lock:
            found = self._opened.get(root)
        return self.reopen(root, expected) if found is None else found

    def reopen(self, root: str, expected: Expected | None = None) -> Files:
        """Return the files of a repository as it is now, whatever this process remembers of it."""
        found, is_one = self.open_anew(root, expected)
        with self._lock:
            if is_one:
                self._opened[root] = found
            else:
                self._opened.pop(root, None)
        return found

    def open_anew(self, root: str, expected: Expected | None = None) -> tuple[Files, bool]:
        """Open a repository as a restorer does, who remembers nothing of it, and return its files and whether
        there is one. NotExpected if it is not the one that the catalog, or the caller, knows."""
        from strandline.storage.marker import opened  # Most processes know of no repository.

        known = (each for each in (self.expects(root), expected) if each is not None)
        return opened(self.opener(root), self._settings, *known)

    def found(self, name: str) -> tuple[Files, str]:
        """Return where a file is, and what it is called there."""
        if not is_elsewhere(name):
            return self.own, name
        root, inside = place_of(name)
        return self.at(root), inside

    def is_sealed(self, name: str) -> bool:
        """Return whether a file is encrypted."""
        if not is_elsewhere(name):
            return False
        from strandline.storage.sealed import SealedFiles

        return isinstance(self.found(name)[0], SealedFiles)

    def reach(self, names: Iterable[str | None]) -> None:
        """Open the repositories of files, so that what it takes to open them goes along to executors, who can
        open nothing themselves."""
        from strandline.storage.sealed import SealedFiles

        for root in roots(names):
            files = self.at(root)
            if isinstance(files, SealedFiles):
                with suppress(StrandlineError):  # What it has opened up to now may be all that is needed.
                    files.renew()

    @property
    def location(self) -> str:
        return self.own.location

    def spark_options(self) -> Mapping[str, str]:
        with self._lock:
            places = (*self._opened.values(), self.own)
        return {name: value for files in places for name, value in files.spark_options().items()}

    # --- reading, wherever it is ---------------------------------------------------------------------------

    def path(self, name: str) -> str:
        files, inside = self.found(name)
        # Spark follows links, and a repository may have others than its owner put into it.
        is_checked = files is not self.own and isinstance(files, LocalFiles)
        return files.readable(inside) if is_checked else files.path(inside)

    def readable(self, name: str) -> Any:
        files, inside = self.found(name)
        return files.readable(inside)

    def exists(self, name: str) -> bool:
        files, inside = self.found(name)
        return files.exists(inside)

    def size(self, name: str) -> int:
        files, inside = self.found(name)
        return files.size(inside)

    def read(self, name: str) -> bytes:
        files, inside = self.found(name)
        return files.read(inside)

    def find(self, name: str) -> bytes | None:
        files, inside = self.found(name)
        return files.find(inside)

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        files, inside = self.found(name)
        return files.chunks(inside)

    def checksum(self, name: str) -> str:
        files, inside = self.found(name)
        return files.checksum(inside)

    # --- changing the warehouse ----------------------------------------------------------------------------

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        if isinstance(source, Everywhere):
            source, source_name = source.found(source_name)
        return self.own.copy(source, source_name, name, checksum)

    def write(self, name: str, data: bytes) -> None:
        self.own.write(name, data)

    def make_root(self) -> None:
        self.own.make_root()

    def write_if_absent(self, name: str, data: bytes) -> bool:
        return self.own.write_if_absent(name, data)

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        return self.own.store(name, chunks)

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        if isinstance(source, Everywhere):
            source, source_name = source.found(source_name)
        self.own.copy_if_absent(source, source_name, name, checksum)

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        self.own.store_if_absent(name, chunks)

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        self.own.replace(name, chunks)

    def seal(self, names: Iterable[str]) -> None:
        self.own.seal(names)

    def names(self, folder: str = "") -> Iterator[str]:
        return self.own.names(folder)

    def remove(self, name: str) -> None:
        self.own.remove(name)

    def remove_tree(self, folder: str) -> None:
        self.own.remove_tree(folder)
