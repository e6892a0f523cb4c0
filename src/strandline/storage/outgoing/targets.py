"""Export rows to a file, a folder of files or a lake table, as a whole or not at all.

- A file is written under a temporary name and renamed at the end. In an object store it appears when its
  upload is complete.
- A folder is written next to its final place and then moved there. If there are too many rows for this
  process, tasks on executors write its files.
- Object stores cannot move folders. There ``_manifest.json``, which lists the files, is written last; files
  that it does not list are not part of the export.

An existing target stays until the new one is complete; it also stays if the export fails.
"""

from __future__ import annotations

import json
import os
import re
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from strandline.errors import AlreadyExists, InvalidArgument, PreconditionFailed, StrandlineError
from strandline.settings import Settings
from strandline.storage.external.locations import MANIFEST, endings, place_of
from strandline.storage.files import Files, LocalFiles
from strandline.storage.outgoing.encode import Format, encode_file
from strandline.storage.outgoing.parts import CountedBatches, ExportedPart, PartFolder, SpreadRows

if TYPE_CHECKING:
    from strandline.storage.objects import ObjectFiles
    from strandline.storage.outgoing.lakes import Lake

__all__ = ["ExportTarget", "Exported", "Kind", "export"]

Kind = Literal["csv", "jsonl", "parquet", "delta", "iceberg"]

FILE_BYTES = 256 << 20
"""Approximate size of a file in a folder."""
_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_OTHERS = frozenset(
    (
        ".arrow",
        ".avro",
        ".db",
        ".feather",
        ".html",
        ".ipc",
        ".orc",
        ".sql",
        ".tsv",
        ".txt",
        ".xls",
        ".xlsx",
        ".xml",
    )
)
"""Extensions of formats that exports cannot write. A place with such an extension is refused."""
_OURS = re.compile(r"part-([0-9a-f]{8}-)?\d{5,}(-[0-9a-f]{16})?\.(csv|jsonl|parquet)|_manifest\.json")


@dataclass(frozen=True, kw_only=True)
class ExportTarget:
    """Where to export rows.

    Attributes:
        place: a path or a URL. With the extension of a supported format it names a file, otherwise a folder.
        kind: the format. None: chosen by the extension of a file; Parquet for a folder.
        overwrite: replace an existing target.
        settings: the settings for object stores.
    """

    place: str
    kind: Kind | None = None
    overwrite: bool = False
    settings: Settings

    def check(self) -> None:
        """Refuse a place that is empty or has the extension of an unsupported format."""
        if not self.place.strip():
            raise InvalidArgument("an export needs a target", "Name a file, a folder or a URL.")
        if self.kind is None and endings(self.place) in _OTHERS:
            raise InvalidArgument(
                f"exports cannot write {endings(self.place)} files such as {self.place}",
                f"Name one that ends with {', '.join(sorted(_ENDINGS))}, or say which FORMAT it has.",
            )

    @property
    def is_lake(self) -> bool:
        return self.kind in ("delta", "iceberg")

    @property
    def is_file(self) -> bool:
        return endings(self.place) in _ENDINGS and not self.is_lake

    @property
    def format(self) -> Kind:
        return self.kind or self.encoding

    @property
    def encoding(self) -> Format:
        """Format of the files, if the target is not a lake table."""
        if self.kind is not None and self.kind != "delta" and self.kind != "iceberg":
            return self.kind
        return _ENDINGS.get(endings(self.place), "parquet")


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    place: str
    format: Kind
    files: int
    rows: int


def export(
    target: ExportTarget,
    rows: Callable[[], pa.RecordBatchReader],
    spread: Callable[[], SpreadRows | None] = lambda: None,
) -> Exported:
    """Write rows to a target. If the export fails, the target stays as it was.

    ``rows`` and ``spread`` are called only after the target was checked.

    Args:
        rows: returns the rows, to be written by this process.
        spread: returns the rows, to be written by executors. It returns None if this process should write the
            rows. It is not called if the target is a single file, which this process always writes.
    """
    target.check()
    files, name = place_of(target.place, target.settings)
    if target.kind == "delta" or target.kind == "iceberg":
        return _to_lake(target.kind, target, files, name, rows=rows, spread=spread)
    if target.is_file:
        return _to_file(target, files, name, rows)
    before = _files_to_replace(target, files, name)
    return _to_folder(target, files, name, before, spread() or rows())


def _to_lake(
    kind: Lake,
    target: ExportTarget,
    files: LocalFiles | ObjectFiles,
    name: str,
    *,
    rows: Callable[[], pa.RecordBatchReader],
    spread: Callable[[], SpreadRows | None],
) -> Exported:
    from strandline.storage.outgoing.lakes import DATA, check_lake, commit_lake, lake_schema, write_lake

    is_new = next(iter(files.names(name)), None) is None
    if not is_new and not target.overwrite:
        raise _already_there(target)
    if not is_new and (kind == "iceberg" or next(iter(files.names(f"{name}/_delta_log")), None) is None):
        raise PreconditionFailed(
            f"{target.place} exists, and only a Delta table can be overwritten", "Choose another place."
        )
    check_lake(kind, target.place)
    folder = None
    try:
        if (many := spread()) is None:
            made = write_lake(kind, target.place, rows(), target.settings, overwrite=target.overwrite)
            return Exported(target.place, kind, *made)
        schema = lake_schema(kind, many.schema)
        folder = PartFolder(files=files, name=f"{name}{DATA[kind]}", format="parquet", schema=schema)
        parts = many.write(folder)
        _remove_parts(folder, but=parts)
        commit_lake(kind, target.place, schema, parts, target.settings, is_new=is_new)
        return Exported(target.place, kind, len(parts), sum(part.rows for part in parts))
    except BaseException:
        if is_new:
            files.remove_tree(name)
        elif folder is not None:
            _remove_parts(folder, but=())
        raise


def _already_there(target: ExportTarget) -> AlreadyExists:
    return AlreadyExists(
        f"{target.place} exists already",
        "Choose another place, or have it replaced: WITH (OVERWRITE = 'true'), --overwrite.",
    )


def _to_file(
    target: ExportTarget, files: LocalFiles | ObjectFiles, name: str, rows: Callable[[], pa.RecordBatchReader]
) -> Exported:
    if _is_folder(files, name):
        raise PreconditionFailed(f"{target.place} is a folder", "Choose another name.")
    if files.exists(name) and not target.overwrite:
        raise _already_there(target)
    reader = rows()
    counted = CountedBatches(reader)
    chunks = encode_file(target.encoding, reader.schema, iter(counted))
    content = _pack(chunks) if target.place.lower().endswith(".gz") else chunks
    if isinstance(files, LocalFiles):
        ready = f"{name}.{uuid.uuid4().hex[:8]}.partial"
        files.store(ready, content)
        files.give_name(ready, name, replace=target.overwrite)
    elif target.overwrite:
        files.replace(name, content)
    else:
        files.store(name, content)
    return Exported(target.place, target.format, 1, counted.rows)


def _to_folder(
    target: ExportTarget,
    files: LocalFiles | ObjectFiles,
    name: str,
    before: Sequence[str],
    rows: pa.RecordBatchReader | SpreadRows,
) -> Exported:
    beside = isinstance(files, LocalFiles)
    at = f"{name}.{uuid.uuid4().hex[:8]}.partial" if beside else name
    folder = PartFolder(files=files, name=at, format=target.encoding, schema=rows.schema)
    try:
        parts = _write_parts(folder, rows, plain=beside)
        if isinstance(files, LocalFiles):
            files.move_folder(at, name, replace=bool(before))
    except BaseException:
        with suppress(StrandlineError):
            files.remove_tree(at) if beside else _remove_parts(folder, but=())
        raise
    written, count = [part.name for part in parts], sum(part.rows for part in parts)
    if not isinstance(files, LocalFiles):
        said = {"format": target.format, "rows": count, "files": written}
        # On failure the manifest may still have arrived, so the files that it names stay. The next export
        # deletes them.
        files.replace(f"{at}/{MANIFEST}", [json.dumps(said).encode()])
        for old in before:
            if old != f"{name}/{MANIFEST}":
                files.remove(old)
    return Exported(target.place, target.format, len(written), count)


def _write_parts(
    folder: PartFolder, rows: pa.RecordBatchReader | SpreadRows, *, plain: bool
) -> Sequence[ExportedPart]:
    """Write rows to at least one file, in this process or on executors; return the files.

    Args:
        plain: use file names without an id. Only if no other export writes to the folder.
    """
    if not isinstance(rows, pa.RecordBatchReader):
        found = rows.write(folder)
        _remove_parts(folder, but=found)
        if found:
            return found
        rows = rows.schema.empty_table().to_reader()
    parts: list[ExportedPart] = []
    coming = _Peeked(iter(rows))
    while coming.has_more or not parts:
        number = len(parts)
        name = f"part-{number:05d}.{folder.format}" if plain else folder.fresh_name(number)
        counted = CountedBatches(coming)
        chunks = encode_file(folder.format, folder.schema, iter(counted), most=FILE_BYTES)
        size = folder.files.store(f"{folder.name}/{name}", chunks)
        parts.append(ExportedPart(number, name, counted.rows, size))
    return parts


def _remove_parts(folder: PartFolder, *, but: Sequence[ExportedPart]) -> None:
    """Remove the files of an export's tasks, except the files ``but``."""
    kept = {f"{folder.name}/{part.name}" for part in but}
    for name in folder.files.names(folder.name):
        if name not in kept and folder.is_of_job(name):
            folder.files.remove(name)


def _files_to_replace(target: ExportTarget, files: Files, name: str) -> list[str]:
    """Return the existing files in a folder; raise unless they are an export that may be replaced."""
    if files.exists(name):
        raise PreconditionFailed(f"{target.place} is a file", "Choose another name.")
    if isinstance(files, LocalFiles) and os.path.islink(files.path(name)):
        raise PreconditionFailed(f"{target.place} is a link", "Name the folder that it leads to.")
    before = []
    for found in files.names(name):
        if not target.overwrite:
            raise _already_there(target)
        if not _OURS.fullmatch(found.removeprefix(f"{name}/")):
            raise PreconditionFailed(
                f"{target.place} has files that no export wrote, such as {found}",
                "Choose another folder: an export that overwrites a folder deletes its files.",
            )
        before.append(found)
    return before


def _is_folder(files: Files, name: str) -> bool:
    if isinstance(files, LocalFiles):
        return os.path.isdir(files.path(name))
    return False


class _Peeked:
    """An iterator that knows whether it has more elements."""

    def __init__(self, coming: Iterator[pa.RecordBatch]) -> None:
        self._coming = coming
        self._next = next(coming, None)

    @property
    def has_more(self) -> bool:
        return self._next is not None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        found = self._next
        if found is None:
            raise StopIteration
        self._next = next(self._coming, None)
        return found


def _pack(chunks: Iterable[bytes]) -> Iterator[bytes]:
    packing = zlib.compressobj(wbits=31)
    for chunk in chunks:
        yield packing.compress(chunk)
    yield packing.flush()
