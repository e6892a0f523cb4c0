"""A slice applied to the state at the window's beginning gives the state at its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import StrandlineError, Unavailable
from strandline.model import OP, STEP, Chain, Key, Segment, State, TableSchema, order
from strandline.storage.arrow.changes import changes, write_slice
from strandline.storage.arrow.scan import scan
from strandline.storage.chain_slices import Slice, Window
from strandline.storage.files import LocalFiles
from strandline.storage.keys import by_shard
from strandline.storage.segment import Inline, read_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.types import parse_type
from strandline.types.arrays import column_to_python
from tests.quick_files import QuickFiles
from tests.storage.examples import History, histories, schema
from tests.values import shard_of

INLINE = Inline(2_000, 1 << 18)
KV = schema("k Int64", "v Utf8", "n Int32", key="k")


def slice_of(history: History, window: Window, name: str = "slice") -> Slice:
    return write_slice(history.cache, history.schema, window, name, INLINE)


def rows_of(files: LocalFiles, table: TableSchema, segments: tuple[Segment, ...]) -> list[dict[str, Any]]:
    found = []
    for segment in segments:
        part = read_segment(SegmentCache(files), table, segment)
        columns = {n: column_to_python(table[n].type, part[n]) for n in table.names} | {
            n: part[n].to_pylist() for n in (OP, STEP)
        }
        found += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return found


def applied(state: dict[Key, Any], table: TableSchema, rows: list[dict[str, Any]]) -> dict[Key, Any]:
    """Apply a slice to a plain model: each row is the last change of its key."""
    state = dict(state)
    seen: set[Key] = set()
    for row in rows:
        key = tuple(row[n] for n in table.key)
        assert key not in seen, "a slice has one row per key"
        seen.add(key)
        state.pop(key, None)
        if row[OP] != "E":
            state[key] = tuple(row[n] for n in table.names)
    return state


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_window_of_every_history(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    history = data.draw(histories(tmp_path_factory.mktemp("history")))
    compacted = max([0, *(s.upto for s in history.segments if s.role == "base")])
    after = data.draw(st.integers(compacted, history.step))
    upto = data.draw(st.integers(after, history.step))
    logs = tuple(s for s in history.segments if s.role == "log" and s.upto > after and s.after < upto)
    made = slice_of(history, Window(after, upto, logs))
    rows = rows_of(history.files, history.schema, made.segments)
    assert applied(history.states[after], history.schema, rows) == history.states[upto]
    touched = {change.key: step for step, change in history.log if after < step <= upto}
    assert {tuple(r[n] for n in history.schema.key): r[STEP] for r in rows} == touched
    assert made.rows == len(rows)
    assert made.tombstones == sum(row[OP] == "E" for row in rows)
    assert history.digests[after] + made.delta == history.digests[upto]
    if after == 0:  # A slice from the beginning is a chain of its own.
        assert scan(history.cache, State(history.schema, Chain(made.segments, upto))).num_rows == len(
            history.states[upto]
        )


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_whole_state_as_a_slice(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    history = data.draw(histories(tmp_path_factory.mktemp("history")))
    compacted = max([0, *(s.upto for s in history.segments if s.role == "base")])
    step = data.draw(st.integers(compacted, history.step))
    made = slice_of(history, Window(0, step, chain=history.chain(step)))
    rows = rows_of(history.files, history.schema, made.segments)
    assert applied({}, history.schema, rows) == history.states[step]
    assert made.delta == history.digests[step]
    assert made.tombstones == 0
    assert all(s.fresh for s in made.segments)


BOUNDS: list[tuple[str, list[list[tuple[Any]]]]] = [
    ("k Int64", [[(0,)], [(-5,), (5,)], [(None,), (1,), (2,), (3,)]]),
    ("k Utf8", [[("",)], [("a",), ("aa",), ("ü",)]]),
    ("k String", [[(b"",)], [(b"\x00",), (b"a",), (b"\xff",)]]),
]


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(st.data())
def test_no_segment_has_keys_of_two_shards(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Also with composite keys, of which a bound is only a prefix, and NULLs, which sort first."""
    first, choices = data.draw(st.sampled_from(BOUNDS))
    table = replace(
        schema(first, "b Int64", "v Utf8", key="k b"), bounds=tuple(data.draw(st.sampled_from(choices)))
    )
    if data.draw(st.booleans()):
        table = replace(table, bounds=tuple((*bound, 0) for bound in table.bounds))
    kinds = {
        "k Int64": st.integers(-8, 8),
        "k Utf8": st.text("aüz", max_size=2),
        "k String": st.binary(max_size=2),
    }
    keys = data.draw(
        st.lists(st.tuples(st.none() | kinds[first], st.none() | st.integers(-2, 2)), min_size=1, unique=True)
    )
    history = History(QuickFiles(tmp_path_factory.mktemp("shards")), table)
    history.write("UPSERT", ["k", "b", "v"], [(*key, "x") for key in keys])
    made = slice_of(history, Window(0, 1, tuple(history.segments)))
    shards: list[Any] = []
    for segment in made.segments:
        found = {shard_of(table, (row["k"], row["b"])) for row in rows_of(history.files, table, (segment,))}
        assert len(found) == 1
        shards += found
    assert shards == sorted({shard_of(table, key) for key in keys})
    expected = {
        key: sum(1 for bound in table.bounds if order(key[: len(bound)]) >= order(bound)) for key in keys
    }
    assert {key: shard_of(table, key) for key in keys} == expected
    assert sum(s.rows for s in made.segments) == len(keys)


@pytest.mark.slow
def test_ten_thousand_shards_are_cut_at_once(tmp_path: Path) -> None:
    bounds = tuple((i * 10,) for i in range(1, 10_000))
    history = History(QuickFiles(tmp_path), replace(KV, bounds=bounds))
    history.write("UPSERT", ["k"], [(i,) for i in range(0, 100_000, 50)])
    rows = changes(history.cache, history.schema, history.segments, after=0, upto=1)
    assert [part["k"].to_pylist() for part in by_shard(history.schema, rows)] == [
        [i] for i in range(0, 100_000, 50)
    ]


def test_a_key_changed_many_times_is_one_row(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), KV)
    for i in range(300):
        history.write("UPSERT", ["k", "n"], [(1, i)])
    made = slice_of(history, Window(0, 300, tuple(history.segments)))
    assert (made.rows, made.tombstones) == (1, 0)
    assert rows_of(history.files, KV, made.segments) == [{"k": 1, "v": None, "n": 299, OP: "U", STEP: 300}]


def test_each_row_has_the_step_of_its_last_change(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), KV)
    for keys in ([1, 2, 3], [2, 3], [3]):
        history.write("UPSERT", ["k"], [(key,) for key in keys])
    for window in (Window(0, 3, tuple(history.segments)), Window(0, 3, chain=history.chain())):
        made = slice_of(history, window)
        found = rows_of(history.files, KV, made.segments)
        assert {row["k"]: row[STEP] for row in found} == {1: 1, 2: 2, 3: 3}


def test_nothing_but_deletes(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), KV)
    history.write("UPSERT", ["k", "n"], [(i, i) for i in range(50)])
    history.write("DELETE ON", ["k"], [(i,) for i in range(60)])
    made = slice_of(history, Window(1, 2, tuple(history.segments)))
    assert (made.rows, made.tombstones) == (60, 60)
    assert history.digests[1] + made.delta == history.digests[2]
    assert history.digests[2].rows == 0


def test_a_column_that_was_dropped_is_not_in_the_slice(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), KV)
    history.write("UPSERT", ["k", "v", "n"], [(1, "old", 1)])
    later = KV.without_column("v").with_column("v", parse_type("Utf8"))
    made = write_slice(history.cache, later, Window(0, 1, tuple(history.segments)), "slice", INLINE)
    assert rows_of(history.files, later, made.segments) == [{"k": 1, "n": 1, "v": None, OP: "U", STEP: 1}]


class FullDisk(QuickFiles):
    """Fails after two files."""

    left = 2

    def write(self, name: str, data: bytes) -> None:
        if self.left == 0:
            raise Unavailable("cannot write: the disk is full")
        self.left -= 1
        super().write(name, data)


def test_a_slice_that_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replace(KV, bounds=((10_000,), (20_000,)))
    history = History(QuickFiles(tmp_path), table)
    history.write("UPSERT", ["k", "n"], [(i, i) for i in range(0, 30_000, 3)])
    before = list(history.files.names())
    with pytest.raises(StrandlineError, match="full"):
        write_slice(
            SegmentCache(FullDisk(tmp_path)), table, Window(0, 1, tuple(history.segments)), "slice", INLINE
        )
    assert list(history.files.names()) == before
