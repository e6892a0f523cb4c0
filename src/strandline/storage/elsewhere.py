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
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from strandline.errors import Internal
from strandline.model import is_elsewhere, object_of
from strandline.settings import Settings
from strandline.storage.files import Files, Source
from strandline.storage.location import files_at

__all__ = ["OBJECTS", "Destination", "Everywhere", "absolute", "object_name", "roots"]

OBJECTS = "objects"


@dataclass(frozen=True)
class Destination:
    """Where objects are sent. ``avoided``: names that must not be used: somebody may be about to remove what
    they name."""

    root: str
    avoided: frozenset[str] = frozenset()


def object_name(files: Files, checksum: str, avoided: frozenset[str] = frozenset()) -> str:
    """Return the name of the object with this content in a repository with these files."""
    from strandline.storage.sealed import SealedFiles  # Only those need it who send something.

    digest = files.name_of(checksum) if isinstance(files, SealedFiles) else checksum.rpartition(":")[2]
    names = (
        f"{OBJECTS}/{digest[:2]}/{digest}{end}.parquet" for end in chain([""], map("-{}".format, count(2)))
    )
    return next(name for name in names if name not in avoided)


def absolute(root: str, name: str, use: str) -> str:
    """Return the name by which the catalog knows an object. ``use``: what no other segment has."""
    return f"{root.rstrip('/')}/{name}#{use}"


def roots(names: Iterable[str | None]) -> set[str]:
    """Return the places of the repositories that files lie in."""
    return {name.rpartition(f"/{OBJECTS}/")[0] for name in names if name and is_elsewhere(name)}


class Everywhere:
    """``own``: the files of the warehouse. ``opened``: repositories that are open already, by their places;
    ``opener`` opens others."""

    def __init__(self, own: Files, settings: Settings, opened: Mapping[str, Files] | None = None) -> None:
        self.own = own
        self._settings = settings
        self._opened = dict(opened or {})
        self.opener: Callable[[str], Files] = lambda root: files_at(root, settings)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Everywhere, (self.own, self._settings, self._opened)

    def at(self, root: str) -> Files:
        """Return the files of a repository, opened with its key if it is encrypted."""
        with self._lock:
            found = self._opened.get(root)
        if found is None:
            from strandline.storage.marker import opened  # Most processes know of no repository.

            found, is_one = opened(self.opener(root), self._settings)
            if is_one:
                with self._lock:
                    self._opened[root] = found
        return found

    def found(self, name: str) -> tuple[Files, str]:
        """Return where a file is, and what it is called there."""
        if not is_elsewhere(name):
            return self.own, name
        root, mark, rest = name.rpartition(f"/{OBJECTS}/")
        if not mark:
            raise Internal(f"the file {name} is in no repository")
        return self.at(root), f"{OBJECTS}/{object_of(rest)}"

    def is_sealed(self, name: str) -> bool:
        """Return whether a file is encrypted."""
        if not is_elsewhere(name):
            return False
        from strandline.storage.sealed import SealedFiles

        return isinstance(self.found(name)[0], SealedFiles)

    def reach(self, names: Iterable[str | None]) -> None:
        """Open the repositories of files, so that what it takes to open them goes along to executors."""
        for root in roots(names):
            self.at(root)

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
        return files.path(inside)

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

    def seal(self, names: Iterable[str]) -> None:
        self.own.seal(names)

    def names(self, folder: str = "") -> Iterator[str]:
        return self.own.names(folder)

    def remove(self, name: str) -> None:
        self.own.remove(name)

    def remove_tree(self, folder: str) -> None:
        self.own.remove_tree(folder)
