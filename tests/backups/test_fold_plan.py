"""Plans of folds: which backups become one, what of them is shared, and the record of the result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.backups.fold.fold_plan import (
    FoldedShard,
    FoldedSource,
    HeldSlice,
    MergedShard,
    fold_records,
    is_at,
    runs,
)
from strandline.backups.record import BackupRecord
from strandline.model import Digest, Segment
from strandline.storage.chain_slices import Slice
from tests.backups.test_records import FULL, ONE, SCHEMA, TWO, digest, with_slice
from tests.storage.test_shards import segment

THREE = replace(TWO, name="4_incremental", parent="3_incremental", after_step=30, step=40)
CHAIN = [FULL, ONE, TWO, THREE]
NAMES = [record.name for record in CHAIN]
BEGAN = with_slice(ONE, whole=True, before=Digest(), delta=digest(4))
"""An increment that holds a new table."""


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


def of(*held: tuple[BackupRecord, list[Segment]]) -> FoldedSource:
    first = held[0][0]
    return FoldedSource(
        path="/t",
        index=None,
        schema=SCHEMA,
        least=1,
        is_full=first.kind == "full",
        after=first.after_step,
        held=[HeldSlice(record.step, record.tables["/t"].slice, found) for record, found in held],
    )


HERE = segment((1,), (2,), 100)
FILE, SENT = replace(HERE, file="data/a"), replace(HERE, file="/repository/objects/a#1")


@pytest.mark.parametrize(
    ("found", "root", "expected"),
    [
        (HERE, None, True),
        (FILE, None, True),
        (SENT, None, False),
        (HERE, "/repository", False),
        (FILE, "/repository", False),
        (SENT, "/repository", True),
        (SENT, "/repository/", True),
        (SENT, "/repo", False),
    ],
)
def test_where_a_segment_is(found: Segment, root: str | None, expected: bool) -> None:
    assert is_at(found, root) is expected
    assert of((FULL, [found])).is_shared(root) is expected
    assert of((ONE, []), (TWO, [found])).is_shared(root) is expected


def test_what_one_backup_alone_holds_is_shared() -> None:
    assert of((ONE, []), (TWO, [])).is_shared("/repository")
    assert of((ONE, [HERE]), (TWO, [])).is_shared(None)
    assert of((ONE, []), (TWO, [HERE])).is_shared(None)
    assert of((FULL, [HERE]), (ONE, [])).is_shared(None)
    assert not of((ONE, [HERE]), (TWO, [HERE])).is_shared(None)
    assert not of((FULL, [HERE]), (ONE, [HERE])).is_shared(None)


def test_what_begins_in_the_run_is_shared_only_if_nothing_came_after_it() -> None:
    """A later slice may have tombstones, which a whole slice must not have."""
    for first in (BEGAN, FULL):
        assert of((first, [HERE]), (TWO, [])).is_shared(None)
        assert of((first, []), (TWO, [])).is_shared(None)
        assert not of((first, []), (TWO, [HERE])).is_shared(None)


def test_what_lost_a_column_is_read() -> None:
    assert not of((FULL, [HERE]), (with_slice(ONE, delta=None), [])).is_shared(None)


def test_the_shards_of_all_rows() -> None:
    source = of((FULL, [HERE]), (ONE, [segment((5,), (9,), 60)]))
    assert (source.name, replace(source, index="i").name) == ("/t", "/t/i")
    ((kind, whole),) = source.shards(7, 1_000)
    assert isinstance(whole, FoldedShard)
    assert (kind, whole.target_id, whole.staging_id, whole.bytes, whole.digest) == ("fold", 20, 7, 160, None)
    assert whole.slices == ((20, 10), (20, 20))
    assert whole.finish(Slice((), 2, 0, digest(2))) == replace(whole, digest=digest(2))
    first, second = (shard.shard for _, shard in source.shards(7, 90))
    assert (first.bytes, second.bytes) == (100, 60)
    assert (first.within.lower, first.within.upper, second.within.lower) == (None, (5,), (5,))


def test_the_shards_of_changes() -> None:
    ((kind, found),) = of((ONE, [HERE]), (TWO, [HERE])).shards(7, 1000)
    assert isinstance(found, MergedShard)
    assert (kind, found.after, found.whole) == ("merge", 10, False)
    assert (found.shard.staging_id, found.shard.target_id, found.shard.bytes) == (7, 20, 200)
    assert found.shard.slices == ((20, 20), (20, 30))
    made = found.finish(Slice((), 3, 1, digest(2)))
    assert (made.rows, made.tombstones, made.shard.digest) == (3, 1, digest(2))
    ((kind, found),) = of((BEGAN, [HERE]), (TWO, [HERE])).shards(7, 1000)
    assert isinstance(found, MergedShard)
    assert (kind, found.after, found.whole) == ("merge", 0, True), "its rows may be older"


def test_the_slice_of_several() -> None:
    changes = of((ONE, [HERE]), (TWO, [HERE]))
    made = replace(TWO.tables["/t"].slice, rows=3, tombstones=2, bytes=50)
    assert changes.before == digest(3)
    assert changes.fold(3, 2, 50) == replace(made, before=digest(3), delta=digest(2) - digest(3))
    whole = replace(made, whole=True, before=Digest(), delta=digest(2), rows=2, tombstones=0)
    for first in (FULL, BEGAN):
        assert of((first, [HERE]), (TWO, [HERE])).fold(3, 2, 50) == whole


def test_what_a_restore_has_put_in_its_place_is_continued() -> None:
    restored = with_slice(TWO, source_id=77, continues=10)
    assert of((ONE, []), (restored, [])).fold(0, 0, 0).continues == 10
    assert of((with_slice(ONE, continues=5), []), (restored, [])).fold(0, 0, 0).continues == 5
    assert of((BEGAN, []), (restored, [])).fold(0, 0, 0).continues is None
    assert of((ONE, []), (TWO, [])).fold(0, 0, 0).continues is None


def test_the_record_of_increments() -> None:
    one = replace(ONE, merged=("1a_incremental",))
    last = replace(TWO, tables={"/u": replace(TWO.tables["/t"], was="/t")}, merged=("2a_incremental",))
    made = replace(last.tables["/u"].slice, rows=99)
    found = fold_records([one, last], {20: made})
    assert (found.name, found.kind, found.parent) == (last.name, "incremental", "1_full")
    assert (found.after_step, found.step, found.synthetic) == (10, 30, False)
    assert found.merged == ("1a_incremental", "2_incremental", "2a_incremental")
    table = found.tables["/u"]
    assert (table.slice, table.was) == (made, "/t")
    assert [index.slice for index in table.indexes] == [made]


def test_the_record_of_a_whole_chain() -> None:
    last = replace(TWO, tables={"/u": replace(TWO.tables["/t"], was="/t")}, pinned=True, merged=("x",))
    made = replace(last.tables["/u"].slice, rows=99)
    indexes = tuple(replace(index, slice=made) for index in TWO.tables["/t"].indexes)
    expected = replace(
        last,
        kind="full",
        parent=None,
        after_step=0,
        synthetic=True,
        tables={"/u": replace(TWO.tables["/t"], slice=made, indexes=indexes)},
    )
    assert fold_records([FULL, ONE, last], {20: made}) == expected
    defined = replace(TWO.tables["/t"].indexes[0], holds="definition", slice=None)
    without = replace(TWO, tables={"/t": replace(TWO.tables["/t"], indexes=(defined,))})
    assert fold_records([FULL, ONE, without], {20: made}).tables["/t"].indexes == (defined,)
