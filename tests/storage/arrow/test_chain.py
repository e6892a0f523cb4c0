from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import Corrupted
from strandline.model import (
    BEGINNING,
    OP,
    PENDING,
    STEP,
    WAS_HI,
    WAS_LO,
    Chain,
    Key,
    KeyRange,
    State,
    TableSchema,
    order,
    split,
    visible,
)
from strandline.storage import segment as segments
from strandline.storage.arrow import stream as streams
from strandline.storage.arrow.changes import changes, fold
from strandline.storage.arrow.digest import digests
from strandline.storage.arrow.lookup import lookup, overlaps, touched_keys
from strandline.storage.arrow.row_filter import without
from strandline.storage.arrow.scan import scan
from strandline.storage.digest import digest_of, row_hashes, to_signed
from strandline.storage.keys import keys_of
from strandline.storage.segment import Inline, read_segment, write_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.types.arrays import column_to_python
from tests.quick_files import QuickFiles
from tests.storage.damage import describe_file
from tests.storage.examples import History, histories, schema, values
from tests.storage.rowwise import apply_write, is_fresh, log_table

KV = schema("k Int64 NOT NULL", "v Utf8", "n Int32", key="k")


@pytest.fixture
def files(tmp_path: Path) -> QuickFiles:
    return QuickFiles(tmp_path)


@pytest.fixture
def history(files: QuickFiles) -> History:
    return History(files, KV)


def by_key(table: TableSchema, found: pa.Table) -> dict[Key, tuple[Any, ...]]:
    """Return a state as a dictionary; check that no key occurs twice."""
    rows = list(zip(*(column_to_python(table[n].type, found.column(n)) for n in table.names), strict=True))
    at = [table.names.index(name) for name in table.key]
    state = {tuple(row[i] for i in at): row for row in rows}
    assert len(state) == len(rows)
    return state


def was_of(table: TableSchema, row: tuple[Any, ...] | None) -> tuple[int | None, int | None]:
    if row is None:
        return None, None
    changes = apply_write(table, "UPSERT", table.names, [row], {})
    high, low = row_hashes(table, {n: log_table(table, changes)[0].column(n) for n in table.names})
    return int(to_signed(high)[0]), int(to_signed(low)[0])


# --- property: reading agrees with plain dictionaries, however the rows were written ----------------------


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_every_way_of_reading_agrees_with_the_history(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROW_GROUP_ROWS", data.draw(st.sampled_from([2, 3, 8192])))
        patch.setattr(segments, "FEW_ROWS", 1)
        patch.setattr(segments, "BATCH_ROWS", data.draw(st.integers(1, 5)))
        history = data.draw(histories(tmp_path_factory.mktemp("h")))
        cache, table = history.cache, history.schema
        keys = {change.key for _, change in history.log}
        first = min((s.upto for s in history.segments if s.role == "base"), default=0)
        for step in range(first, history.step + 1):
            state, chain = history.states[step], history.chain(step)
            found = scan(cache, State(table, chain))
            assert by_key(table, found) == state
            assert (
                digest_of(*row_hashes(table, {n: found.column(n) for n in table.names}))
                == history.digests[step]
            )
            assert digests(cache, State(table, chain), [table]) == [history.digests[step]]
            assert lookup(cache, State(table, chain), keys) == state
            some = data.draw(st.lists(st.sampled_from(sorted(keys, key=order)))) if keys else []
            assert lookup(cache, State(table, chain), some) == {k: state[k] for k in some if k in state}


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_a_range_is_what_lies_between_two_prefixes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROW_GROUP_ROWS", data.draw(st.sampled_from([2, 8192])))
        history = data.draw(histories(tmp_path_factory.mktemp("h")))
        table = history.schema
        known = [c.key for _, c in history.log]
        part = [st.none() | values(c.type) for c in table.key_columns]
        prefix = st.one_of(
            st.none(),
            *(st.tuples(*part[:n]) for n in range(len(part) + 1)),
            *(
                (st.builds(lambda k, n: k[:n], st.sampled_from(known), st.integers(1, len(part))),)
                if known
                else ()
            ),
        )
        lower, upper = data.draw(prefix), data.draw(prefix)
        inside = State(table, history.chain(), KeyRange(lower, upper, closed=True))
        rows = scan(history.cache, inside)
        found = by_key(table, rows)
        expected = {
            key: row
            for key, row in history.states[-1].items()
            if (lower is None or order(key[: len(lower)]) >= order(lower))
            and (upper is None or order(key[: len(upper)]) <= order(upper))
        }
        assert found == expected
        assert digests(history.cache, inside, [table]) == [
            digest_of(*row_hashes(table, {n: rows.column(n) for n in table.names}))
        ]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_logs_tell_what_happened(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROW_GROUP_ROWS", data.draw(st.sampled_from([2, 8192])))
        history = data.draw(histories(tmp_path_factory.mktemp("h")))
        cache, table = history.cache, history.schema
        first = min((s.upto for s in history.segments if s.role == "base"), default=0)
        logs = [s for s in history.segments if s.role == "log"]
        after = data.draw(st.integers(first, history.step))
        upto = data.draw(st.integers(after, history.step))
        window = [(step, change) for step, change in history.log if after < step <= upto]

        found = changes(cache, table, logs, after=after, upto=upto)
        expected = sorted(window, key=lambda item: (item[0], order(item[1].key)))
        assert found.column(STEP).to_pylist() == [step for step, _ in expected]
        assert found.column(OP).to_pylist() == [change.op for _, change in expected]
        assert keys_of(table, found) == [change.key for _, change in expected]
        was = list(zip(found.column(WAS_HI).to_pylist(), found.column(WAS_LO).to_pylist(), strict=True))
        assert was == [was_of(table, change.old) for _, change in expected]

        folded = fold(cache, table, logs, after=after, upto=upto)
        was = list(zip(folded.column(WAS_HI).to_pylist(), folded.column(WAS_LO).to_pylist(), strict=True))
        steps = folded.column(STEP).to_pylist()
        ops = folded.column(OP).to_pylist()
        got = dict(zip(keys_of(table, folded), zip(was, steps, ops, strict=True), strict=True))
        last = {change.key: (step, change.op) for step, change in window}
        assert got == {k: (was_of(table, history.states[after].get(k)), *last[k]) for k in last}
        alive = folded.filter(pc.not_equal(folded.column(OP), "E"))
        assert by_key(table, alive) == {
            k: history.states[upto][k] for k, (_, op) in last.items() if op != "E"
        }

        later = {change.key for step, change in history.log if step > after}
        assert touched_keys(cache, table, logs, after) == later
        known = sorted({change.key for _, change in history.log}, key=order)
        asked = data.draw(st.lists(st.sampled_from(known))) if known else []
        in_logs = {change.key for step, change in history.log if step > first}
        assert overlaps(cache, table, logs, asked) == bool(in_logs & set(asked))


# --- examples ---------------------------------------------------------------------------------------------


def test_an_erased_key_is_gone_and_comes_back_without_its_old_columns(history: History) -> None:
    history.write("UPSERT", ["k", "v", "n"], [(1, "a", 1), (2, "b", 2)])
    history.write("DELETE", ["k"], [(1,)])
    history.write("UPSERT", ["k", "n"], [(1, 7)])
    assert lookup(history.cache, State(KV, history.chain(2)), [(1,), (2,)]) == {(2,): (2, "b", 2)}
    assert lookup(history.cache, State(KV, history.chain()), [(1,)]) == {(1,): (1, None, 7)}


def test_only_the_asked_columns_are_answered_in_their_order(history: History) -> None:
    history.write("UPSERT", ["k", "v", "n"], [(1, "a", 10)])
    assert lookup(history.cache, State(KV, history.chain()), [(1,)], ["n", "k"]) == {(1,): (10, 1)}
    assert scan(history.cache, State(KV, history.chain()), ["v"]).to_pydict() == {"v": ["a"]}


def test_columns_without_the_key_are_right_where_rows_are_overwritten(history: History) -> None:
    history.write("UPSERT", ["k", "v"], [(1, "a"), (2, "b")])
    history.write("UPSERT", ["k", "v"], [(2, "c")])
    history.write("INSERT", ["k", "v"], [(3, "d")])
    found = scan(history.cache, State(KV, history.chain()), ["v"])
    assert found.column_names == ["v"]
    assert sorted(found.column("v").to_pylist()) == ["a", "c", "d"]


def test_the_step_of_each_row_can_be_asked_for(history: History) -> None:
    history.write("UPSERT", ["k"], [(1,), (2,)])
    history.write("UPSERT", ["k"], [(2,)])
    history.compact(1)
    history.write("INSERT", ["k"], [(3,)])
    history.merge(1, 3)
    for step, expected in ((1, {1: 1, 2: 1}), (2, {1: 1, 2: 2}), (3, {1: 1, 2: 2, 3: 3})):
        found = scan(history.cache, State(KV, history.chain(step)), ["k", STEP])
        assert (
            dict(zip(found.column("k").to_pylist(), found.column(STEP).to_pylist(), strict=True)) == expected
        )


def test_an_empty_chain_has_no_rows(files: QuickFiles) -> None:
    empty = Chain((), 5)
    assert lookup(SegmentCache(files), State(KV, empty), [(1,)]) == {}
    assert scan(SegmentCache(files), State(KV, empty)).schema.names == ["k", "v", "n"]
    assert scan(SegmentCache(files), State(KV, empty)).num_rows == 0
    assert changes(SegmentCache(files), KV, [], after=0, upto=5).num_rows == 0
    assert fold(SegmentCache(files), KV, [], after=BEGINNING, upto=5).column_names == [
        "k",
        "v",
        "n",
        OP,
        WAS_HI,
        WAS_LO,
        STEP,
    ]
    assert touched_keys(SegmentCache(files), KV, [], 0) == set()
    assert not overlaps(SegmentCache(files), KV, [], [(1,)])


def test_nothing_is_read_for_no_keys(history: History) -> None:
    history.write("UPSERT", ["k"], [(1,)])
    assert lookup(history.cache, State(KV, history.chain()), []) == {}
    assert not overlaps(history.cache, KV, history.segments, [])


def test_later_statements_of_a_transaction_see_its_pending_changes_in_order(history: History) -> None:
    history.write("UPSERT", ["k", "v"], [(1, "a"), (2, "b")])
    chain = history.chain()
    state = dict(history.states[-1])
    statements: list[tuple[Any, list[tuple[Any, ...]]]] = [
        ("UPSERT", [(3, "c"), (1, "x")]),
        ("DELETE ON", [(3,), (2,)]),
        ("UPSERT", [(2, "again")]),
    ]
    for at, (mode, rows) in enumerate(statements):
        done = apply_write(KV, mode, ["k", "v"][: len(rows[0])], rows, state)
        pending = write_segment(
            history.files,
            KV,
            log_table(KV, done)[0],
            name="",
            role="log",
            fresh=is_fresh(done),
            stepped=False,
            upto=PENDING + at,
            inline=Inline(100, 1 << 18),
        )
        chain = chain.plus((pending,))
        for change in done:
            if change.new is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.new
        assert by_key(KV, scan(history.cache, State(KV, chain))) == state
        assert lookup(history.cache, State(KV, chain), [(1,), (2,), (3,)]) == state
    assert overlaps(history.cache, KV, chain.segments[1:], [(3,)])


def test_a_key_with_many_steps_across_row_groups_reads_as_its_last(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr("strandline.storage.arrow.lookup.BATCH_ROWS", 4)
    for i in range(30):
        history.write("UPSERT", ["k", "n"], [(1, i), (2 + i, i)])
    history.merge(0, 30)
    assert history.segments[0].file is not None
    for step in (1, 7, 30):
        assert lookup(history.cache, State(KV, history.chain(step)), [(1,)]) == {(1,): (1, None, step - 1)}
    assert scan(history.cache, State(KV, history.chain(9))).num_rows == 10


def test_null_is_a_key_like_any_other(files: QuickFiles) -> None:
    table = schema("a Utf8", "b Int32", "v Utf8", key="a b")
    history = History(files, table)
    history.write(
        "UPSERT",
        ["a", "b", "v"],
        [(None, None, "1"), (None, 1, "2"), ("", None, "3"), ("", 1, "4")],
        inline=False,
    )
    history.compact(1)
    history.write("UPSERT", ["a", "b", "v"], [(None, 1, "new")])
    history.write("DELETE", ["a", "b"], [("", None)])
    assert by_key(table, scan(SegmentCache(files), State(table, history.chain()))) == history.states[-1]
    found = lookup(
        SegmentCache(files), State(table, history.chain()), [(None, None), (None, 1), ("", None), ("", 2)]
    )
    assert found == {(None, None): (None, None, "1"), (None, 1): (None, 1, "new")}


def test_a_range_finds_null_in_a_row_group_that_also_has_values(files: QuickFiles) -> None:
    table = schema("a Int64", "v Int64", key="a")
    history = History(files, table)
    history.write("UPSERT", ["a", "v"], [(None, 0), *((i, i) for i in range(100, 9_000))], inline=False)
    assert scan(
        SegmentCache(files), State(table, history.chain(), KeyRange(None, (50,), closed=True))
    ).to_pydict() == {
        "a": [None],
        "v": [0],
    }
    assert (
        scan(
            SegmentCache(files), State(table, history.chain(), KeyRange((None,), (None,), closed=True))
        ).num_rows
        == 1
    )
    assert scan(SegmentCache(files), State(table, history.chain(), KeyRange((8_999,)))).num_rows == 1


def test_only_row_groups_that_may_hold_the_key_are_read(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.write("UPSERT", ["k", "v"], [(i, f"v{i}") for i in range(30_000)], inline=False)
    read: list[tuple[list[str], Any]] = []

    def spy(
        cache: Any, table: Any, segment: Any, columns: Any = None, row_groups: Any = None, **how: Any
    ) -> pa.Table:
        read.append((list(columns), row_groups))
        return read_segment(cache, table, segment, columns, row_groups, **how)

    monkeypatch.setattr("strandline.storage.arrow.lookup.read_segment", spy)
    assert lookup(history.cache, State(KV, history.chain()), [(9_000,), (-1,), (50_000,)]) == {
        (9_000,): (9_000, "v9000", None)
    }
    assert read == [(["k"], [1]), (["v", "n", OP], [1])]
    read.clear()
    assert lookup(history.cache, State(KV, history.chain()), [(-5,)]) == {}
    assert read == []


def test_a_second_key_column_narrows_the_search_where_the_first_does_not(files: QuickFiles) -> None:
    table = schema("tenant Utf8", "id Int64", key="tenant id")
    history = History(files, table)
    history.write("UPSERT", ["tenant", "id"], [("one", i) for i in range(40_000)], inline=False)
    footer = segments.footer_of(SegmentCache(files), history.segments[0])
    assert footer.groups_with(table, [pa.array(["one"]), pa.array([20_000])]) == [2]
    assert footer.groups_with(table, [pa.array(["one", "one"]), pa.array([None, 39_999])]) == [4]
    assert footer.groups_between(table, KeyRange(("one", 8_192), ("one", 16_383))) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"write_statistics": False}, {}])
def test_keys_whose_statistics_are_missing_or_left_out_are_found(
    files: QuickFiles, options: dict[str, Any]
) -> None:
    table = schema("k Utf8", "v Int64", key="k")
    keys = sorted("é" * 3000 + f"{i:06d}" for i in range(9_000))
    rows = pa.table({"k": keys, "v": range(9_000), STEP: pa.array([1] * 9_000)})
    pq.write_table(rows, files.path("f"), row_group_size=1_000, **options)
    segment = describe_file(files, table, "f", role="base", fresh=True, stepped=True, upto=1)
    chain = Chain((segment,), 1)
    assert lookup(SegmentCache(files), State(table, chain), [(keys[4_321],), ("é",)]) == {
        (keys[4_321],): (keys[4_321], 4_321)
    }
    assert scan(
        SegmentCache(files), State(table, chain, KeyRange((keys[10],), (keys[12],), closed=True))
    ).column("v").to_pylist() == [
        10,
        11,
        12,
    ]


def test_many_keys_over_many_row_groups(files: QuickFiles) -> None:
    table = schema("a Int32", "k Int64", "v Int64", key="a k")
    count = 100_000
    rows = pa.table(
        {
            "a": pa.array(np.arange(count) // 30_000, pa.int32()),
            "k": np.arange(count) * 2,
            "v": np.arange(count),
        }
    )
    stepped = rows.append_column(STEP, pa.array(np.ones(count, np.int64)))
    base = write_segment(files, table, stepped, name="b", role="base", fresh=True, stepped=True, upto=1)
    keys: list[Key] = [(i // 30_000, i * 2 + i % 2) for i in range(0, count, 3)]
    found = lookup(SegmentCache(files), State(table, Chain((base,), 1)), keys)
    assert found == {(i // 30_000, i * 2): (i // 30_000, i * 2, i) for i in range(0, count, 6)}


def test_a_damaged_file_in_a_chain_is_named(history: History) -> None:
    history.write("UPSERT", ["k"], [(i,) for i in range(9_000)], inline=False)
    history.files.remove("t/0.parquet")
    with pytest.raises(Corrupted, match=r"t/0\.parquet"):
        lookup(history.cache, State(KV, history.chain()), [(1,)])


def test_a_column_added_later_is_null_in_older_rows(history: History) -> None:
    history.write("UPSERT", ["k", "v"], [(1, "a")])
    longer = KV.with_column("extra", KV["n"].type)
    history.schema = longer
    history.states[-1] = {key: (*row, None) for key, row in history.states[-1].items()}
    history.write("UPSERT", ["k", "extra"], [(2, 5)])
    expected = {(1,): (1, "a", None, None), (2,): (2, None, None, 5)}
    assert lookup(history.cache, State(longer, history.chain()), [(1,), (2,)]) == expected
    assert by_key(longer, scan(history.cache, State(longer, history.chain()))) == expected


def test_split_keeps_fresh_logs_on_both_sides_as_they_are(history: History) -> None:
    for mode, key in (
        ("INSERT", 1),
        ("INSERT", 2),
        ("UPSERT", 1),
        ("INSERT", 3),
        ("DELETE", 2),
        ("INSERT", 4),
    ):
        history.write(mode, ["k"], [(key,)])  # type: ignore[arg-type]
    old, middle, new = split(history.segments)
    assert [len(old), len(middle), len(new)] == [2, 3, 1]
    assert [len(part) for part in split(old)] == [2, 0, 0]


def test_segments_beyond_the_step_are_not_visible(history: History) -> None:
    for key in range(4):
        history.write("INSERT", ["k"], [(key,)])
    assert visible(history.chain(2)) == history.segments[:2]
    history.merge(0, 4)
    assert len(visible(history.chain(2))) == 1
    assert scan(history.cache, State(KV, history.chain(2))).num_rows == 2
    later = replace(history.segments[0], after=2)
    assert visible(Chain((later,), 2)) == []


def test_small_segments_are_searched_together(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(100):
        history.write("INSERT", ["k", "v"], [(k, "new")])
    history.write("UPSERT", ["k", "v"], [(7, "changed")])
    searched: list[int] = []

    def spy(table: TableSchema, rows: pa.Table, keys: list[pa.Array]) -> pa.Table:
        searched.append(rows.num_rows)
        return without(table, rows, keys)

    monkeypatch.setattr(streams, "without", spy)
    found = scan(history.cache, State(KV, history.chain()), ["k", "v"])
    assert dict(zip(*found.to_pydict().values(), strict=True))[7] == "changed"
    assert (found.num_rows, searched) == (100, [100])
