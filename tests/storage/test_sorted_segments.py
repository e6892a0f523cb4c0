"""A stream of rows in key order becomes files of one size, described while they are written."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import Corrupted
from strandline.model import OP, STEP, WAS_HI, WAS_LO, Digest, Segment, TableSchema, order
from strandline.storage.digest import digest_of, row_hashes, to_signed
from strandline.storage.files import LocalFiles
from strandline.storage.order import examine_segment
from strandline.storage.sorted_segments import Form, SegmentTask, Sorted
from strandline.types import parse_type

KV = TableSchema.of([("k", parse_type("Int64"), True), ("v", parse_type("Utf8"), False)], ("k",))
PAIR = TableSchema.of(
    [("a", parse_type("Utf8"), False), ("k", parse_type("Int64"), True), ("v", parse_type("Utf8"), False)],
    ("a", "k"),
)
ROWS = 200_000
MIXED = 2_654_435_761


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


def form(schema: TableSchema = KV, **given: Any) -> Form:
    return Form(**{"schema": schema, "role": "log", "stepped": False, "after": 0, "upto": 9, **given})


def rows(keys: range) -> pa.Table:
    """Return rows whose values do not compress well."""
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{k * MIXED % 2**64:020d}" for k in keys]})


def write(files: LocalFiles, form: Form, *tables: pa.Table, batch: int = 10_000) -> Sorted:
    task = SegmentTask(files, "data/1", form, tables[0].column_names)
    batches = [batch_ for table in tables for batch_ in table.to_batches(batch)]
    return pickle.loads(pickle.dumps(task)).write(batches)


def digest(schema: TableSchema, table: pa.Table) -> Digest:
    return digest_of(*row_hashes(schema, {name: table[name] for name in schema.names}))


def check(files: LocalFiles, schema: TableSchema, made: Sorted, table: pa.Table) -> tuple[Segment, ...]:
    """Check the files against the rows and the records; return the segments in key order."""
    segments = tuple(sorted(made.segments, key=lambda s: order(s.min_key or ())))
    assert segments == made.segments
    found = []
    for segment in segments:
        assert examine_segment(files, schema, segment) == []
        assert segment.checksum == files.checksum(segment.file or "")
        assert segment.bytes == files.size(segment.file or "")
        found.append(pq.read_table(files.path(segment.file or "")))
    physical = {c.physical: c.name for c in schema.columns}
    whole = pa.concat_tables(found)
    assert whole.rename_columns([physical.get(n, n) for n in whole.column_names]).equals(table)
    return segments


def test_files_are_full_at_their_size(files: LocalFiles) -> None:
    table = rows(range(ROWS))
    made = write(files, form(file_bytes=128 << 10), table)
    segments = check(files, KV, made, table)
    assert made.now == digest(KV, table) and made.was == Digest()
    sizes = [s.bytes for s in segments]
    assert len(sizes) >= 10
    assert all(128 << 10 <= size < 256 << 10 for size in sizes[:-1])
    assert sizes[-1] >= 32 << 10


@pytest.mark.parametrize("share", [2, 10])
def test_a_last_file_that_would_be_tiny_is_joined_to_the_one_before(files: LocalFiles, share: int) -> None:
    """A last file with half of the rows of a full one stays apart; one with a tenth of them does not."""
    full = write(LocalFiles(Path(files.root) / "first"), form(file_bytes=512 << 10), rows(range(ROWS)))
    first = full.segments[0].rows
    table = rows(range(first + first // share))
    segments = check(files, KV, write(files, form(file_bytes=512 << 10), table), table)
    assert len(segments) == (2 if share == 2 else 1)


def test_a_file_ends_where_a_shard_ends(files: LocalFiles) -> None:
    schema = replace(PAIR, bounds=(("a", 500), ("b",), ("b", 70_000), ("c",), ("d",)))
    part = rows(range(100_000))
    parts = [part.add_column(0, "a", pa.array([a] * part.num_rows)) for a in ("a", "b", "d")]
    table = pa.concat_tables(parts).combine_chunks()
    made = write(files, form(schema, file_bytes=1 << 20, cut=True), table)
    segments = check(files, schema, made, table)
    firsts = [s.min_key for s in segments]
    assert {("a", 0), ("a", 500), ("b", 0), ("b", 70_000), ("d", 0)} <= set(firsts)
    for bound in schema.bounds:
        assert not any(order(s.min_key or ()) < order(bound) <= order(s.max_key or ()) for s in segments)
    assert len(write(files, form(schema, file_bytes=1 << 30), table).segments) == 1


def test_what_a_log_replaces_and_erases_is_summed(files: LocalFiles) -> None:
    old, table = rows(range(0, 300, 3)), rows(range(300))
    high, low = (to_signed(half) for half in row_hashes(KV, {n: old[n] for n in KV.names}))
    was = [dict(zip(range(0, 300, 3), half.tolist(), strict=True)).get for half in (high, low)]
    ops = ["E" if k % 30 == 0 else "U" for k in range(300)]
    table = table.append_column(OP, pa.array(ops))
    for name, get in zip((WAS_HI, WAS_LO), was, strict=True):
        table = table.append_column(name, pa.array([get(k) for k in range(300)], pa.int64()))
    made = write(files, form(file_bytes=1 << 20), table, batch=7)
    check(files, KV, replace(made, segments=tuple(replace(s, fresh=False) for s in made.segments)), table)
    stay = table.filter(pa.array([op == "U" for op in ops]))
    assert (made.now, made.was, made.is_rough) == (digest(KV, stay), digest(KV, old), True)


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_a_repeated_key_is_reported_of_a_log_and_refused_in_a_base(files: LocalFiles, batch: int) -> None:
    for keys, repeats in (([1, 2, 3], False), ([1, 1, 2], True), ([1, 2, 3, 3], True)):
        table = pa.table({"k": pa.array(keys, pa.int64()), "v": ["v"] * len(keys)})
        assert write(files, form(file_bytes=1 << 20), table, batch=batch).repeats == repeats
        stepped = table.append_column(STEP, pa.array([1] * len(keys), pa.int64()))
        base = form(role="base", stepped=True, file_bytes=1 << 20)
        if repeats:
            with pytest.raises(Corrupted, match="not in the order"):
                write(files, base, stepped, batch=batch)
        else:
            check(files, KV, write(files, base, stepped, batch=batch), stepped)


def test_a_failure_leaves_no_file(files: LocalFiles) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows(range(ROWS)).to_batches(1000)
        assert len(list(files.names())) > 3
        raise RuntimeError("the source broke")

    task = SegmentTask(files, "data/1", form(file_bytes=128 << 10), KV.names)
    with pytest.raises(RuntimeError, match="the source broke"):
        task.write(broken())
    assert list(files.names()) == []


def test_two_attempts_of_a_task_do_not_meet(files: LocalFiles) -> None:
    one, two = (write(files, form(file_bytes=1 << 20), rows(range(10))) for _ in range(2))
    assert one.segments[0].file != two.segments[0].file
    assert replace(one.segments[0], file=None) == replace(two.segments[0], file=None)


def test_nothing(files: LocalFiles) -> None:
    assert write(files, form(file_bytes=1 << 20), rows(range(0))) == Sorted()
    assert list(files.names()) == []


def test_files_do_not_overlap(files: LocalFiles) -> None:
    made = write(files, form(file_bytes=1), rows(range(20_000)))
    assert all((a.max_key or ()) < (b.min_key or ()) for a, b in pairwise(made.segments))
