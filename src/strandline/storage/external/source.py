"""External sources: choose the reader for their format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, get_args

import pyarrow as pa

from strandline.errors import InvalidArgument
from strandline.settings import Settings
from strandline.storage.external.locations import bare, endings, find, is_folder, is_web
from strandline.storage.external.parts import FilePart, Over
from strandline.types import Type

__all__ = ["External", "Format", "Incoming", "open_source"]

Format: TypeAlias = Literal["parquet", "csv", "jsonl", "arrow", "delta", "iceberg"]

_ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


@dataclass(frozen=True, kw_only=True)
class External:
    """What to import.

    Args:
        places: paths, patterns, folders, URLs, or ``-`` for stdin.
        kind: the format. None: chosen by the names of the files.
        delimiter: for CSV, the character between values. None: a tab for ``.tsv``, otherwise a comma.
        header: for CSV, whether the first line has the column names.
        columns: for CSV, the column names. None: the names in the header.
        null: for CSV, the text that means NULL.
        settings: the settings for object stores.
    """

    places: tuple[str, ...]
    kind: Format | None = None
    delimiter: str | None = None
    header: bool = True
    columns: tuple[str, ...] | None = None
    null: str = ""
    settings: Settings = field(default_factory=Settings)


class Incoming(Protocol):
    """Rows of external files. Errors name the file and the position in it."""

    @property
    def files(self) -> int:
        """Number of files."""
        ...

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        ...

    @property
    def parts(self) -> Sequence[FilePart]:
        """Parts that can be read independently."""
        ...

    @property
    def package(self) -> str | None:
        """The Python package that a process needs to read parts. None: no extra package."""
        ...

    def split(self, over: Over, most: int) -> Sequence[FilePart]:
        """Return parts of about ``most`` bytes, or the present parts if the files cannot be split.

        Args:
            over: calls the functions that find the parts.
            most: wanted size of a part in bytes.
        """
        ...

    def spread(self, over: Over, parts: Sequence[FilePart]) -> None:
        """Replace the parts.

        Args:
            over: calls the functions that read the new parts.
            parts: the new parts.
        """
        ...

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key columns that the source declares. None: it declares no key."""
        ...

    def names(self, table: Sequence[str] | None) -> list[str]:
        """Return the column names.

        Args:
            table: the column names of the target table, for files without names. None: there is no table yet.
        """
        ...

    def types(self, given: Mapping[str, Type]) -> dict[str, Type]:
        """Return for each column a type that can hold all its values.

        Args:
            given: types of some columns, which are returned unchanged.
        """
        ...

    def tables(self, types: Mapping[str, Type], not_null: frozenset[str]) -> Iterator[pa.Table]:
        """Yield the rows in order and in blocks, as physical columns of these types."""
        ...


def open_source(source: External) -> Incoming:
    """Return a reader for the files of a source."""
    kind = source.kind or _kind_of(source)
    if kind in ("delta", "iceberg"):
        from strandline.storage.external.lakes import delta_tables, iceberg_tables

        return delta_tables(source) if kind == "delta" else iceberg_tables(source)
    files = find(source.places, source.settings)
    if kind == "csv":
        from strandline.storage.external.csv import CsvFiles

        return CsvFiles(files, source)
    if kind == "jsonl":
        from strandline.storage.external.jsonl import JsonFiles

        return JsonFiles(files)
    from strandline.storage.external.typed_files import ArrowFiles, ParquetFiles

    return ParquetFiles(files) if kind == "parquet" else ArrowFiles(files)


def _kind_of(source: External) -> Format:
    kinds = {_kind_at(place, source.settings) for place in source.places}
    if len(kinds) == 1 and (kind := kinds.pop()) is not None:
        return kind
    raise InvalidArgument(
        f"the names do not tell the format of {', '.join(map(_display_place, source.places))}",
        f"Say --format {', --format '.join(get_args(Format))}.",
    )


def _display_place(place: str) -> str:
    return bare(place) if is_web(place) else place


def _kind_at(place: str, settings: Settings) -> Format | None:
    if place == "-":
        return None
    if is_web(place):
        return _ENDINGS.get(endings(bare(place)))
    if place.endswith(".metadata.json"):
        return "iceberg"
    if found := _ENDINGS.get(endings(place)):
        return found
    if not any(sign in place for sign in "*?["):
        if is_folder(place, settings, "_delta_log"):
            return "delta"
        if is_folder(place, settings, "metadata") and is_folder(place, settings, "data"):
            return "iceberg"
    inside = {_ENDINGS.get(endings(file.name)) for file in find([place], settings)}
    return inside.pop() if len(inside) == 1 else None
