"""Parts of external files that any process can read independently: files, and byte ranges of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from strandline.storage.external.locations import File
from strandline.storage.external.splits import cut_range, divide, split_at
from strandline.types import Type

__all__ = ["FilePart", "HasFile", "Over", "Spreadable", "files_of", "split_parts"]

A = TypeVar("A")
R = TypeVar("R")


class Over(Protocol):
    """Calls a picklable function for each item, in this process or on executors; returns the results."""

    def __call__(self, work: Callable[[A], R], things: Sequence[A], /) -> list[R]: ...


class FilePart(Protocol):
    """A picklable part of external files."""

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        """Yield the rows in order and in blocks, as physical columns of these types."""
        ...


P = TypeVar("P", bound=FilePart)


@runtime_checkable
class HasFile(Protocol):
    """A part of one file."""

    @property
    def file(self) -> File: ...


class Spreadable(Generic[P]):
    """Files that are read part by part, in this process or on executors.

    Attributes:
        package: the Python package that a process needs to read parts. None: no extra package.
    """

    package: str | None = None

    def __init__(self, parts: Sequence[P]) -> None:
        self.parts = list(parts)
        self.files = len(parts)
        self._over: Over = _over_here

    @cached_property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.paths)

    @property
    def paths(self) -> list[File]:
        """The files of the parts."""
        return files_of(self.parts)

    def split(self, over: Over, most: int) -> Sequence[P]:
        """Return parts of about ``most`` bytes, or the present parts if the files cannot be split.

        Args:
            over: calls the functions that find the parts.
            most: wanted size of a part in bytes.
        """
        return self.parts

    def spread(self, over: Over, parts: Sequence[Any]) -> None:
        """Replace the parts.

        Args:
            over: calls the functions that read the new parts.
            parts: the new parts.
        """
        self._over = over
        self.parts = list(parts)

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        """Yield the rows in order and in blocks, as physical columns of these types."""
        for part in self.parts:
            yield from part.tables(types, not_null)


def files_of(parts: Sequence[FilePart]) -> list[File]:
    """Return the files of the parts. Parts that are not part of a single file are left out."""
    return [part.file for part in parts if isinstance(part, HasFile)]


def _over_here(work: Callable[[A], R], things: Sequence[A], /) -> list[R]:
    return [work(thing) for thing in things]


def split_parts(parts: Sequence[Any], over: Over, most: int, delimiter: str | None) -> list[Any]:
    """Split parts into smaller parts that begin and end with a row.

    Args:
        over: calls the function that analyses a byte range.
        most: wanted size of a part in bytes.
        delimiter: the delimiter of CSV files. None: the files have JSON lines.
    """
    ranges = [divide(part.file, most, delimiter) for part in parts]
    cuts = iter(over(cut_range, [range_ for each in ranges for range_ in each]))
    found = []
    for part, own in zip(parts, ranges, strict=True):
        files = split_at(own, [next(cuts) for _ in own]) if own else [part.file]
        found += [replace(part, file=file) for file in files]
    return found
