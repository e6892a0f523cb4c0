"""Export rows to a file, a folder of files or a lake table, as a whole or not at all.

- A file is written under a temporary name and renamed at the end. In an object store it appears when its
  upload is complete.
- A folder is written next to its final place and then moved there.
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from strandline.errors import AlreadyExists, InvalidArgument, PreconditionFailed
from strandline.settings import Settings
from strandline.storage.external.locations import MANIFEST, endings, place_of
from strandline.storage.files import Files, LocalFiles
from strandline.storage.outgoing.encode import Format, encoder

if TYPE_CHECKING:
    from strandline.storage.objects import ObjectFiles

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
"""Extensions of files that exports cannot write: such a name is not taken for a folder."""
_OURS = re.compile(r"part-([0-9a-f]{8}-)?\d{5,}\.(csv|jsonl|parquet)|_manifest\.json")


@dataclass(frozen=True, kw_only=True)
class ExportTarget:
    """Where to export rows: a path or a URL.

    A place with a file's extension is a file, any other one a folder. ``kind`` None: chosen by the extension,
    Parquet for folders.
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


def export(target: ExportTarget, rows: Callable[[], pa.RecordBatchReader]) -> Exported:
    """Write rows to a target. If it fails, the target is as it was before.

    ``rows`` is called only after the target was checked.
    """
    target.check()
    files, name = place_of(target.place, target.settings)
    if target.format in ("delta", "iceberg"):
        return _to_lake(target, files, name, rows)
    if target.is_file:
        return _to_file(target, files, name, rows)
    return _to_folder(target, files, name, rows)


def _to_lake(
    target: ExportTarget, files: Files, name: str, rows: Callable[[], pa.RecordBatchReader]
) -> Exported:
    from strandline.storage.outgoing.lakes import to_delta, to_iceberg

    is_new = next(iter(files.names(name)), None) is None
    if not is_new and not target.overwrite:
        raise _already_there(target)
    if not is_new and (
        target.format == "iceberg" or next(iter(files.names(f"{name}/_delta_log")), None) is None
    ):
        raise PreconditionFailed(
            f"{target.place} exists, and only a Delta table can be overwritten", "Choose another place."
        )
    try:
        if target.format == "delta":
            made = to_delta(target.place, rows(), target.settings, overwrite=target.overwrite)
        else:
            made = to_iceberg(target.place, rows(), target.settings)
    except BaseException:
        if is_new:
            files.remove_tree(name)
        raise
    return Exported(target.place, target.format, *made)


def _already_there(target: ExportTarget) -> AlreadyExists:
    return AlreadyExists(
        f"{target.place} exists already",
        "Choose another place, or have it replaced: WITH (OVERWRITE = 'true'), --overwrite.",
    )


class _Counted:
    """Counts the rows of record batches."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.schema = reader.schema
        self.rows = 0
        self._reader = reader

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            self.rows += batch.num_rows
            yield batch


def _to_file(
    target: ExportTarget, files: LocalFiles | ObjectFiles, name: str, rows: Callable[[], pa.RecordBatchReader]
) -> Exported:
    if _is_folder(files, name):
        raise PreconditionFailed(f"{target.place} is a folder", "Choose another name.")
    if files.exists(name) and not target.overwrite:
        raise _already_there(target)
    counted = _Counted(rows())
    chunks = _chunks(target, counted, iter(counted), most=None)
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
    target: ExportTarget, files: LocalFiles | ObjectFiles, name: str, rows: Callable[[], pa.RecordBatchReader]
) -> Exported:
    before = _files_to_replace(target, files, name)
    counted = _Counted(rows())
    fresh, written = uuid.uuid4().hex[:8], list[str]()
    beside = isinstance(files, LocalFiles)
    folder = f"{name}.{fresh}.partial" if beside else name
    prefix = f"part-{fresh}" if before and not beside else "part"
    try:
        coming = _Peeked(iter(counted))
        while coming.has_more or not written:
            part = f"{prefix}-{len(written):05d}.{target.format}"
            files.store(f"{folder}/{part}", _chunks(target, counted, coming, most=FILE_BYTES))
            written.append(part)
        if isinstance(files, LocalFiles):
            files.move_folder(folder, name, replace=bool(before))
    except BaseException:
        if beside:
            files.remove_tree(folder)
        for part in () if beside else written:
            files.remove(f"{folder}/{part}")
        raise
    if not isinstance(files, LocalFiles):
        said = {"format": target.format, "rows": counted.rows, "files": written}
        # On failure the manifest may still have arrived, so the files that it names stay. The next export
        # deletes them.
        files.replace(f"{folder}/{MANIFEST}", [json.dumps(said).encode()])
        for old in before:
            if old != f"{name}/{MANIFEST}":
                files.remove(old)
    return Exported(target.place, target.format, len(written), counted.rows)


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


def _chunks(
    target: ExportTarget, counted: _Counted, coming: Iterator[pa.RecordBatch], *, most: int | None
) -> Iterator[bytes]:
    """Yield the bytes of one file with the rows that come, up to about ``most`` bytes."""
    made = encoder(target.encoding, counted.schema)
    size = 0
    for batch in coming:
        for chunk in made.encode(batch):
            size += len(chunk)
            yield chunk
        if most is not None and size >= most:
            break
    yield from made.finish()


def _pack(chunks: Iterable[bytes]) -> Iterator[bytes]:
    packing = zlib.compressobj(wbits=31)
    for chunk in chunks:
        yield packing.compress(chunk)
    yield packing.flush()
