"""File plan of a table state: which files to fold, described for external readers.

A file plan lists the parts of a chain in order. The rows of small commits are in the catalog and not in
files: the plan has them as Arrow tables, or ``pack`` writes them to extra files. ``before``, ``changes`` and
``after`` are the three parts that ``model.split`` returns. To get the state, a reader combines:

1. the rows of ``before`` whose keys are not in ``changes``;
2. the last change of each key in ``changes``, unless it is an erase;
3. the rows of ``after``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import Unsupported
from strandline.model import OP, STEP, Segment, State, TableSchema, cover, split, visible
from strandline.storage.digest import checksum_of
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.file_router import FileRouter
from strandline.storage.files import Files, LocalFiles
from strandline.storage.segment import read_segment
from strandline.storage.segment_cache import SegmentCache

__all__ = ["FilePlan", "FilePlanPart", "pack", "plan_files"]


@dataclass(frozen=True, kw_only=True)
class FilePlanPart:
    """Some rows of a state, in one file or one Arrow table.

    Attributes:
        file: absolute path or URL of a Parquet file with the columns under their physical names. None: the
            rows come from the catalog, and ``data`` holds them.
        rows: number of rows.
        bytes: size of the file, or of the rows as the catalog stores them.
        upto: the last step of the part.
        stepped: True: each row has its own step in ``__strandline_step``. False: all rows have the step
            ``upto``.
        op: True: the part may have a column ``__strandline_op`` with ``U``, ``R``, or ``E`` for an erase. A
            missing column or NULL means ``U``.
        cut: True: the part also has rows of steps later than the plan's step. The reader must skip these
            rows.
        data: the rows of a part without a file, with the same columns as a file has.
    """

    file: str | None
    rows: int
    bytes: int
    upto: int
    stepped: bool
    op: bool
    cut: bool
    data: pa.Table | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class FilePlan:
    """The parts of a table's state at a step.

    The order of ``changes`` matters: of two changes of a key, the one in the later part wins, and within a
    part the one with the later step.
    """

    path: str
    step: int
    schema: TableSchema
    before: tuple[FilePlanPart, ...]
    changes: tuple[FilePlanPart, ...]
    after: tuple[FilePlanPart, ...]

    @property
    def parts(self) -> tuple[FilePlanPart, ...]:
        """All parts, oldest first."""
        return (*self.before, *self.changes, *self.after)


def plan_files(cache: SegmentCache, files: FileRouter, path: str, state: State) -> FilePlan:
    """Return the file plan of a state. Consecutive small commits in the catalog become one part."""
    step = state.chain.step

    def parts(segments: Sequence[Segment]) -> tuple[FilePlanPart, ...]:
        found: list[FilePlanPart] = []
        for is_inline, run in groupby(segments, lambda s: s.file is None):
            if is_inline:
                found.append(_inline(cache, state.schema, list(run), step))
            else:
                found += [_part(files, segment, step) for segment in run]
        return tuple(found)

    before, changes, after = map(parts, split(visible(state.chain)))
    return FilePlan(path=path, step=step, schema=state.schema, before=before, changes=changes, after=after)


def _part(files: FileRouter, segment: Segment, step: int) -> FilePlanPart:
    assert segment.file is not None
    own, name = files.locate(segment.file)
    if isinstance(own, EncryptedFiles):
        raise Unsupported(
            "the files of this backup are encrypted, and only Strandline can read them",
            "Export the backup: EXPORT t IN BACKUP ... TO '...'.",
        )
    return FilePlanPart(
        file=own.path(name) if isinstance(own, LocalFiles) else f"{own.location}/{name}",
        rows=segment.rows,
        bytes=segment.bytes,
        upto=segment.upto,
        stepped=segment.stepped,
        op=segment.role == "log",
        cut=cover(segment, -1, step) != "all",
    )


def _inline(cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], step: int) -> FilePlanPart:
    columns = [*schema.names, OP, STEP]
    rows = pa.concat_tables(read_segment(cache, schema, segment, columns) for segment in segments)
    rows = rows.rename_columns([*(c.physical for c in schema.columns), OP, STEP])
    return FilePlanPart(
        file=None,
        rows=rows.num_rows,
        bytes=sum(segment.bytes for segment in segments),
        upto=segments[-1].upto,
        stepped=True,
        op=True,
        cut=any(cover(segment, -1, step) != "all" for segment in segments),
        data=rows,
    )


def pack(file_plan: FilePlan, into: Files) -> FilePlan:
    """Write the rows that come from the catalog to files, and return the file plan that names them.

    The name of a file is derived from its content, so that the same rows are written only once.
    """

    def pack_part(part: FilePlanPart) -> FilePlanPart:
        if part.data is None:
            return part
        sink = io.BytesIO()
        pq.write_table(part.data, sink, compression="zstd")
        data = sink.getvalue()
        name = f"small-{checksum_of(data).rpartition(':')[2]}.parquet"
        into.write_if_absent(name, data)
        where = into.path(name) if isinstance(into, LocalFiles) else f"{into.location}/{name}"
        return replace(part, file=where, bytes=len(data), data=None)

    return replace(
        file_plan,
        before=tuple(map(pack_part, file_plan.before)),
        changes=tuple(map(pack_part, file_plan.changes)),
        after=tuple(map(pack_part, file_plan.after)),
    )
