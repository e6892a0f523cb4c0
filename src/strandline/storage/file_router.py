"""Files of several stores under one interface: the warehouse's and those in backup repositories.

The catalog has an absolute name for a file in a repository: the repository's folder or URL, the object's name
(``objects/...``), ``#`` and a suffix. The suffix distinguishes segments with the same content, which share
one object. ``FileRouter`` finds the store of a name, so that readers need not know where a segment is stored.
``FileRouter`` writes and deletes only in the warehouse. The code that manages repositories changes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

import xxhash

from strandline.errors import StrandlineError
from strandline.model import is_elsewhere, object_of
from strandline.settings import Settings
from strandline.storage.files import Files, LocalFiles
from strandline.storage.location import files_at
from strandline.storage.object_names import OBJECTS, ObjectName, place_of

if TYPE_CHECKING:
    from strandline.storage.repository_marker import Expected

__all__ = [
    "OBJECTS",
    "Destination",
    "FileRouter",
    "absolute",
    "digits_of",
    "object_key",
    "object_name",
    "object_names",
    "roots",
]

Method = TypeVar("Method", bound=Callable[..., Any])

NAMES = 4
"""Number of names, with different suffixes, that are tried to find an object in a copy of a repository."""


@dataclass(frozen=True)
class Destination:
    """A repository that objects are uploaded to.

    Args:
        avoided: names that must not be used, because another process may be about to delete these objects.
        damaged: keys (``object_key``) of objects that a verification found damaged.
    """

    root: str
    avoided: frozenset[str] = frozenset()
    damaged: frozenset[str] = frozenset()

    def is_damaged(self, name: str) -> bool:
        """Return True if the object is known to be damaged."""
        return bool(self.damaged) and object_key(absolute(self.root, ObjectName(name), "")) in self.damaged


def object_key(file: str) -> str:
    """Return a short key of a file's object, equal for all segments that share it."""
    return xxhash.xxh3_64_hexdigest(object_of(file).encode())


def object_name(files: Files, checksum: str, avoided: frozenset[str] = frozenset()) -> ObjectName:
    """Return the name for a new object in a repository.

    Args:
        files: the files of the repository.
        checksum: the checksum of the object's content.
        avoided: names that must not be used.
    """
    names = _names(next(digits_of(files, checksum)))
    return next(name for name in names if name not in avoided)


def object_names(files: Files, checksum: str) -> list[ObjectName]:
    """Return all names that an object may have in a repository.

    Args:
        files: the files of the repository.
        checksum: the checksum of the object's content.
    """
    return [name for digits in digits_of(files, checksum) for name in islice(_names(digits), NAMES)]


def _names(digits: str) -> Iterator[ObjectName]:
    for end in chain([""], map("-{}".format, count(2))):
        yield ObjectName(f"{OBJECTS}/{digits[:2]}/{digits}{end}.parquet")


def digits_of(files: Files, checksum: str) -> Iterator[str]:
    """Yield the hex digits that may name content with this checksum in a repository.

    The name of a new object has the digits that are yielded first.
    """
    from strandline.storage.encrypted_files import EncryptedFiles  # Imported late: only repositories need it.

    return (
        files.names_of(checksum) if isinstance(files, EncryptedFiles) else iter([checksum.rpartition(":")[2]])
    )


def absolute(root: str, name: ObjectName, use: str) -> str:
    """Return the name that an object has in the catalog.

    Args:
        root: the folder or URL of the repository.
        name: the name of the object in the repository.
        use: a suffix that is unique to the segment.
    """
    return f"{root.rstrip('/')}/{name}#{use}"


def roots(names: Iterable[str | None]) -> set[str]:
    """Return the locations of the repositories that contain these files."""
    return {place_of(name)[0] for name in names if name and is_elsewhere(name)}


def _in_its_store(method: Method) -> Method:
    """Build a method of ``FileRouter`` that calls ``method`` of the store that holds the file."""

    def route(self: FileRouter, name: str) -> Any:
        files, inside = self.locate(name)
        return getattr(files, method.__name__)(inside)

    return cast("Method", route)


def _in_warehouse(method: Method) -> Method:
    """Build a method of ``FileRouter`` that calls ``method`` of the warehouse's files."""

    def route(self: FileRouter, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.own, method.__name__)(*args, **kwargs)

    return cast("Method", route)


class FileRouter:
    """The files of the warehouse and of all repositories.

    Args:
        own: the files of the warehouse.
        opened: repositories that are already open, by location. ``opener`` opens others.
    """

    def __init__(self, own: Files, settings: Settings, opened: Mapping[str, Files] | None = None) -> None:
        self.own = own
        self._settings = settings
        self._opened = dict(opened or {})
        self.opener: Callable[[str], Files] = lambda root: files_at(root, settings)
        self.expects: Callable[[str], Expected | None] = lambda root: None
        """Returns what the catalog knows about the repository at a location. None: it knows nothing."""
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRouter, (self.own, self._settings, self._opened)

    def at(self, root: str, expected: Expected | None = None) -> Files:
        """Return the files of a repository. If the repository is encrypted, they are decrypted on read.

        Args:
            root: the location of the repository.
            expected: what the caller knows about the repository, in addition to the catalog.
        """
        with self._lock:
            found = self._opened.get(root)
        return self.reopen(root, expected) if found is None else found

    def reopen(self, root: str, expected: Expected | None = None) -> Files:
        """Open a repository, even if this process has opened it before, and remember its files."""
        found, is_one = self.open_anew(root, expected)
        with self._lock:
            if is_one:
                self._opened[root] = found
            else:
                self._opened.pop(root, None)
        return found

    def open_anew(self, root: str, expected: Expected | None = None) -> tuple[Files, bool]:
        """Open a repository without remembering it; return its files and whether it exists.

        Opens the repository even if this process has opened it before. Raises NotExpected if the repository
        contradicts what the catalog or the caller knows about it.
        """
        from strandline.storage.repository_marker import (
            open_repository_files,  # Imported late: most processes use no repository.
        )

        known = (each for each in (self.expects(root), expected) if each is not None)
        return open_repository_files(self.opener(root), self._settings, *known)

    def locate(self, name: str) -> tuple[Files, str]:
        """Return the store of a file, and the file's name there."""
        if not is_elsewhere(name):
            return self.own, name
        root, inside = place_of(name)
        return self.at(root), inside

    def warehouse_path(self, name: str) -> str | None:
        """Return the path of a file in the warehouse's local folder; None for all other files."""
        if is_elsewhere(name) or not isinstance(self.own, LocalFiles):
            return None
        return self.own.readable(name)

    def is_encrypted(self, name: str) -> bool:
        """Return True if a file is encrypted."""
        if not is_elsewhere(name):
            return False
        from strandline.storage.encrypted_files import EncryptedFiles

        return isinstance(self.locate(name)[0], EncryptedFiles)

    def reach(self, names: Iterable[str | None]) -> None:
        """Open the repositories that contain these files, so that a pickle of this router has their keys.

        Executors need the keys, because they cannot open repositories themselves.
        """
        from strandline.storage.encrypted_files import EncryptedFiles

        for root in roots(names):
            files = self.at(root)
            if isinstance(files, EncryptedFiles):
                with suppress(StrandlineError):  # The keys opened so far may be sufficient.
                    files.renew()

    @property
    def location(self) -> str:
        return self.own.location

    def spark_options(self) -> Mapping[str, str]:
        with self._lock:
            places = (*self._opened.values(), self.own)
        return {name: value for files in places for name, value in files.spark_options().items()}

    # --- reading any file ----------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        files, inside = self.locate(name)
        # Spark follows symbolic links, which an attacker may have put into the repository: check for links.
        is_checked = files is not self.own and isinstance(files, LocalFiles)
        return files.readable(inside) if is_checked else files.path(inside)

    readable = _in_its_store(Files.readable)
    exists = _in_its_store(Files.exists)
    size = _in_its_store(Files.size)
    read = _in_its_store(Files.read)
    find = _in_its_store(Files.find)
    chunks = _in_its_store(Files.chunks)
    checksum = _in_its_store(Files.checksum)

    def sizes(self, names: Sequence[str]) -> list[int | StrandlineError]:
        by_root: dict[str, list[str]] = {}
        found: dict[str, int | StrandlineError] = {}
        for name in names:
            try:
                root = place_of(name)[0] if is_elsewhere(name) else ""
            except StrandlineError as error:
                found[name] = error
            else:
                by_root.setdefault(root, []).append(name)
        for some in by_root.values():
            try:
                located = [self.locate(name) for name in some]
                sizes = located[0][0].sizes([inside for _, inside in located])
                found.update(zip(some, sizes, strict=True))
            except StrandlineError as error:
                found.update(dict.fromkeys(some, error))
        return [found[name] for name in names]

    # --- changing the warehouse ----------------------------------------------------------------------------

    copy = _in_warehouse(Files.copy)
    copy_if_absent = _in_warehouse(Files.copy_if_absent)
    make_root = _in_warehouse(Files.make_root)
    names = _in_warehouse(Files.names)
    remove = _in_warehouse(Files.remove)
    remove_all = _in_warehouse(Files.remove_all)
    remove_tree = _in_warehouse(Files.remove_tree)
    replace = _in_warehouse(Files.replace)
    seal = _in_warehouse(Files.seal)
    store = _in_warehouse(Files.store)
    store_if_absent = _in_warehouse(Files.store_if_absent)
    write = _in_warehouse(Files.write)
    write_if_absent = _in_warehouse(Files.write_if_absent)
