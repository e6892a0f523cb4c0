"""Which increments are merged, what of them is shared, and the record of the merged backup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.backups.fold.compact_plan import FoldedSource, HeldSlice
from strandline.backups.fold.merge_plan import (
    Amount,
    before,
    holder,
    merge_records,
    merge_shards,
    merge_slices,
    runs,
)
from strandline.backups.record import BackupRecord, SliceRecord
from strandline.model import Digest, Segment
from tests.backups.test_records import FULL, ONE, SCHEMA, TWO, digest, with_slice
from tests.storage.test_shards import segment

THREE = replace(TWO, name="4_incremental", parent="3_incremental", after_step=30, step=40)
CHAIN = [FULL, ONE, TWO, THREE]
NAMES = [record.name for record in CHAIN]


@pytest.mark.parametrize(
    ("kept", "first", "expected"),
    [
        ([], None, [[1, 2, 3]]),
        ([], NAMES[0], [[1, 2, 3]]),
        ([], NAMES[1], [[1, 2, 3]]),
        ([], NAMES[2], [[2, 3]]),
        ([], NAMES[3], []),
        ([NAMES[1]], None, [[2, 3]]),
        ([NAMES[2]], None, [[1, 2]]),
        ([NAMES[0], NAMES[3]], None, [[1, 2, 3]]),
        (NAMES, None, []),
    ],
)
def test_runs(kept: list[str], first: str | None, expected: list[list[int]]) -> None:
    found = runs(CHAIN, kept, first)
    assert [[NAMES.index(record.name) for record in run] for run in found] == expected


def test_one_before_which_a_column_was_dropped_stays_alone() -> None:
    chain = [FULL, ONE, TWO, with_slice(THREE, delta=None), THREE, THREE]
    assert [len(run) for run in runs(chain, [], None)] == [2, 2]
    assert runs([FULL, ONE, with_slice(TWO, delta=None), THREE], [], None) == []


def of(*held: tuple[BackupRecord, list[Segment]], **changes: Any) -> FoldedSource:
    slices = [replace(record.tables["/t"].slice, **changes) for record, _ in held]
    return FoldedSource(
        path="/t",
        index=None,
        schema=SCHEMA,
        least=1,
        last=slices[-1],
        held=[
            HeldSlice(record.step, slice_, found)
            for slice_, (record, found) in zip(slices, held, strict=True)
        ],
    )


HERE = segment((1,), (2,), 100)
SENT = replace(HERE, file="/repository/objects/a#1")


def test_what_one_increment_alone_has_changed_is_shared() -> None:
    one, two = (ONE, [HERE]), (TWO, [HERE])
    nothing = of((ONE, []), (TWO, []))
    assert holder(nothing, None) is nothing.held[0]
    assert holder(nothing, "/repository") is nothing.held[0]
    for place, source in enumerate([of(one, (TWO, [])), of((ONE, []), two)]):
        assert holder(source, None) is source.held[place]
        assert holder(source, "/repository") is None, "it is not there"
    assert holder(of(one, two), None) is None
    sent = of((ONE, [SENT]), (TWO, []))
    assert holder(sent, "/repository") is sent.held[0]
    assert holder(sent, "/repository/objects/") is sent.held[0]
    assert holder(sent, "/repo") is None
    assert holder(sent, None) is None


def test_what_began_in_the_run_is_shared_only_if_nothing_came_after_it() -> None:
    """A later slice may have tombstones, which a whole slice must not have."""
    began = of((ONE, [HERE]), (TWO, []), whole=True)
    assert holder(began, None) is began.held[0]
    assert holder(of((ONE, []), (TWO, [HERE]), whole=True), None) is None


def test_the_shards_of_what_is_folded() -> None:
    (found,) = merge_shards(of((ONE, [HERE]), (TWO, [HERE])), 7, 1000, 10)
    assert (found.after, found.whole) == (10, False)
    assert (found.shard.staging_id, found.shard.target_id, found.shard.bytes) == (7, 20, 200)
    assert found.shard.slices == ((20, 20), (20, 30))
    (found,) = merge_shards(of((ONE, [HERE]), (TWO, [HERE]), whole=True), 7, 1000, 10)
    assert (found.after, found.whole) == (0, True), "its rows may be older"


def merged(source: FoldedSource) -> SliceRecord:
    return merge_slices(source, Amount(rows=3, tombstones=2, bytes=50))


def test_the_slice_of_several() -> None:
    source = of((ONE, [HERE]), (TWO, [HERE]))
    assert before(source) == digest(3)
    assert merged(source) == replace(
        TWO.tables["/t"].slice,
        before=digest(3),
        delta=digest(2) - digest(3),
        rows=3,
        tombstones=2,
        bytes=50,
    )
    first, then = source.held
    whole = replace(source, held=[replace(first, slice=replace(first.slice, whole=True)), then])
    assert (before(whole), merged(whole).delta, merged(whole).whole) == (Digest(), digest(2), True)


def test_what_a_restore_has_put_in_its_place_is_continued() -> None:
    first, then = (of((record, [])).held[0] for record in (ONE, TWO))
    restored = replace(then, slice=replace(then.slice, source_id=77, continues=10))
    source = replace(of((ONE, []), (TWO, [])), last=restored.slice, held=[first, restored])
    assert merged(source).continues == 10
    began = replace(first, slice=replace(first.slice, source_id=10, continues=5))
    assert merged(replace(source, held=[began, restored])).continues == 5
    assert (
        merged(
            replace(source, held=[replace(first, slice=replace(first.slice, whole=True)), restored])
        ).continues
        is None
    )
    assert merged(of((ONE, []), (TWO, []))).continues is None


def test_the_record_of_several() -> None:
    one = replace(ONE, merged=("1a_incremental",))
    last = replace(TWO, tables={"/u": replace(TWO.tables["/t"], was="/t")}, merged=("2a_incremental",))
    made = replace(last.tables["/u"].slice, rows=99)
    found = merge_records([one, last], {20: made})
    assert (found.name, found.parent, found.after_step, found.step) == (last.name, "1_full", 10, 30)
    assert found.merged == ("1a_incremental", "2_incremental", "2a_incremental")
    table = found.tables["/u"]
    assert (table.slice, table.was) == (made, "/t")
    assert [index.slice for index in table.indexes] == [made]
