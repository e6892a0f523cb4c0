"""The store: its choice between Arrow and Spark, its cache, and its cleanup after errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.errors import Corrupted, PreconditionFailed, Unavailable
from strandline.model import Chain, KeyRange, Segment, State
from strandline.settings import Limits, Settings
from strandline.storage.budget import COPIED, HASHED
from strandline.storage.chain_slices import Window
from strandline.storage.rows import Mode, Outcome, Target
from strandline.storage.segment_files import Copies
from strandline.storage.store import Store
from strandline.storage.throttle import Throttle
from tests.quick_files import QuickFiles
from tests.storage.examples import History, schema
from tests.storage.rowwise import table_of

KV = schema("k Int64", "v Utf8", key="k")
BY_V = schema("v Utf8", "k Int64", key="v k")
FILES = Settings(inline_rows=0, inline_bytes=0)


class Asked(Exception):
    """The store asked for Spark."""


class Here(Store):
    """A store without Spark."""

    @property
    def spark(self) -> Any:
        raise Asked


class Written:
    """A table with an index that is written through a store; records what the store asks."""

    def __init__(self, files: QuickFiles, settings: Settings = FILES) -> None:
        self.files = files
        self.store = Here(files, settings)
        self.names: list[str | None] = []
        self.read: list[list[dict[str, Any]]] = []

    def write(self, mode: Mode, rows: list[tuple[Any, ...]], *before: Segment) -> Outcome:
        target = Target(
            state=State(KV, Chain(before, 1)),
            indexes=lambda: {"by_v": BY_V},
            name=self._name,
            reads=lambda keys: self.read.append(keys.to_pylist()),
        )
        return self.store.write(target, mode, table_of(KV, KV.names, rows))

    def _name(self, index: str | None) -> str:
        self.names.append(index)
        return f"data/{index or 'table'}/{len(self.names)}"


@pytest.fixture
def files(tmp_path: Path) -> QuickFiles:
    return QuickFiles(tmp_path)


# --- choice of engine -------------------------------------------------------------------------------------


def calls(state: State) -> dict[str, Callable[[Store], Any]]:
    """Return the operations that run in process up to ``bulk_rows`` rows (folding and streaming: more)."""
    table, chain = state.schema, state.chain
    return {
        "examine": lambda s: s.checks.examine(table, chain.segments),
        "doubled keys": lambda s: s.checks.find_doubled_keys(state),
        "compare index": lambda s: s.checks.compare_index(state, state, "i"),
        "entries": lambda s: s.entries(state, BY_V, "entries"),
        "compact": lambda s: s.compact(state, "compacted"),
        "slice": lambda s: s.slice(table, Window(0, chain.step, chain.segments), "slice"),
        "collapse": lambda s: s.collapse(table, chain.segments, lambda: "collapsed"),
    }


@pytest.mark.parametrize("name", sorted(calls(State(KV, Chain((), 0)))))
def test_up_to_so_many_rows_are_dealt_with_here(files: QuickFiles, name: str) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k", "v"], [(1, "a"), (2, "b"), (3, "c")], inline=False)
    call = calls(State(KV, history.chain()))[name]
    assert call(Here(files, Settings(bulk_rows=3))) is not None
    with pytest.raises(Asked):
        call(Here(files, Settings(bulk_rows=0 if name in ("slice", "examine") else 2)))


def test_eight_times_as_many_changes_are_folded_here(files: QuickFiles) -> None:
    """Planning a job takes longer than folding them in columns."""
    history = History(files, KV)
    history.write("UPSERT", ["k", "v"], [(i, "v") for i in range(17)], inline=False)
    window = Window(0, history.step, tuple(history.segments))
    with pytest.raises(Asked):
        Here(files, Settings(bulk_rows=2)).slice(KV, window, "slice")
    assert Here(files, Settings(bulk_rows=3)).slice(KV, window, "slice").rows == 17


@pytest.mark.parametrize("name", sorted(calls(State(KV, Chain((), 0)))))
def test_few_rows_that_take_much_memory_are_not_dealt_with_here(files: QuickFiles, name: str) -> None:
    """Their file is small: the size of a segment is that of compressed bytes."""
    history = History(files, KV)
    history.write("UPSERT", ["k", "v"], [(i, "x" * 100_000) for i in range(40)], inline=False)
    assert history.segments[0].bytes < 10_000
    call = calls(State(KV, history.chain()))[name]
    assert call(Here(files, Settings(bulk_bytes=8_000_000))) is not None
    if name == "examine":  # Streamed: only a piece is in memory.
        assert call(Here(files, Settings(bulk_bytes=3_000_000))) is not None
    else:
        with pytest.raises(Asked):
            call(Here(files, Settings(bulk_bytes=3_000_000)))
    with pytest.raises(Asked):
        call(Here(files, Settings(bulk_bytes=history.segments[0].bytes - 1)))


def test_a_scan_of_long_rows_is_left_to_the_caller(files: QuickFiles) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k", "v"], [(i, f"{i}" * 50_000) for i in range(40)], inline=False)
    state = State(KV, history.chain())
    assert Here(files, Settings(bulk_bytes=1_000_000)).scan(state) is None
    assert Here(files, Settings(bulk_bytes=8_000_000)).scan(state) is not None


def test_a_write_of_long_rows_asks_for_spark(files: QuickFiles) -> None:
    table = Written(files, Settings(bulk_bytes=1_000))
    with pytest.raises(Asked):
        table.write("UPSERT", [(1, "x" * 1_000)])
    assert [s.rows for s in table.write("UPSERT", [(1, "x")]).table.segments] == [1]
    wide = table.write("UPSERT", [(i, f"{i}{'x' * 90}") for i in range(5)]).table.segments
    with pytest.raises(Asked):
        Written(files, Settings(bulk_bytes=wide[0].bytes // 5)).write("UPSERT", [(1, "x"), (2, "y")], *wide)


@pytest.fixture
def stored(files: QuickFiles) -> list[Segment]:
    """Two files and an inline segment, which is in memory anyway."""
    history = History(files, KV)
    for k in range(2):
        history.write("UPSERT", ["k", "v"], [(k, "a")], inline=False)
    history.write("UPSERT", ["k", "v"], [(9, "x" * 1000)])
    return history.segments


@pytest.mark.parametrize("name", ["copy", "damaged", "digest"])
def test_so_many_bytes_of_files_pass_through_the_process(
    files: QuickFiles, stored: list[Segment], name: str
) -> None:
    size = sum(s.bytes for s in stored if s.file)
    call = {
        "copy": lambda s: s.copy([Copies(stored, "copies")], Throttle(Limits(), SystemClock()), among=10**9),
        "damaged": lambda s: s.checks.find_damaged(stored),
        "digest": lambda s: s.checks.digest(State(KV, Chain(tuple(stored), 3))),
    }[name]
    assert call(Here(files, Settings(bulk_bytes=size, bulk_rows=1))) is not None
    with pytest.raises(Asked):
        call(Here(files, Settings(bulk_bytes=size - 1)))


def test_more_are_copied_here_if_there_is_nothing_else_to_copy(
    files: QuickFiles, stored: list[Segment]
) -> None:
    store = Here(files, Settings(bulk_bytes=100))
    throttle = Throttle(Limits(), SystemClock())
    (made,) = store.copy([Copies(stored, "copies")], throttle, among=COPIED * 100)
    assert isinstance(made, list) and len(made) == 3
    with pytest.raises(Asked):
        store.copy([Copies(stored, "others")], throttle, among=COPIED * 100 + 1)
    assert store.bytes_per_copy(COPIED * 100) == 0 < store.bytes_per_copy(COPIED * 100 + 1)


def test_more_are_hashed_here_if_there_is_nothing_else_to_read(
    files: QuickFiles, stored: list[Segment]
) -> None:
    state, store = State(KV, Chain(tuple(stored), 3)), Here(files, Settings(bulk_bytes=100))
    assert [d.rows for d in store.checks.digests(state, [KV, BY_V], among=COPIED * 100)] == [3, 3]
    with pytest.raises(Asked):
        store.checks.digests(state, [KV, BY_V], among=COPIED * 100 + 1)


def test_so_many_rows_are_hashed_here(files: QuickFiles) -> None:
    """Rows are streamed, but this takes time, and there are more executors."""
    history = History(files, KV)
    history.write("UPSERT", ["k"], [(i,) for i in range(2 * HASHED)], inline=False)
    state = State(KV, history.chain())
    assert Here(files, Settings(bulk_rows=2)).checks.digest(state).rows == 2 * HASHED
    with pytest.raises(Asked):
        Here(files, Settings(bulk_rows=1)).checks.digest(state)


def test_so_many_rows_are_folded_here_if_there_is_not_much_else(files: QuickFiles) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k"], [(i,) for i in range(2 * HASHED)], inline=False)
    state = State(KV, history.chain())
    for settings, among, is_here in (
        (Settings(bulk_rows=2, bulk_bytes=100), COPIED * 100, True),
        (Settings(bulk_rows=2, bulk_bytes=100), COPIED * 100 + 1, False),
        (Settings(bulk_rows=1, bulk_bytes=100), 0, False),
    ):
        store = Here(files, settings)
        if is_here:
            assert store.fold(state, "folded", among=among).delta == history.digests[-1]
        else:
            with pytest.raises(Asked):
                store.fold(state, "folded", among=among)


def test_changes_of_other_rows_are_in_memory_while_they_are_hashed(files: QuickFiles) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k"], [(1,)], inline=False)
    history.write("UPSERT", ["k", "v"], [(1, "x" * 100_000)], inline=False)
    state = State(KV, history.chain())
    assert Here(files, Settings(bulk_bytes=1_000_000)).checks.digest(state).rows == 1
    with pytest.raises(Asked):
        Here(files, Settings(bulk_bytes=50_000)).checks.digest(state)


def test_changes_of_rows_of_other_shards_do_not_count(files: QuickFiles) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k"], [(i,) for i in range(40_000)], inline=False)
    history.write("UPSERT", ["k", "v"], [(i, f"{i:0100}") for i in range(40_000)], inline=False)
    state = State(KV, history.chain())
    store = Here(files, Settings(bulk_bytes=2_000_000))
    assert store.checks.digest(state.narrow(KeyRange((5,), (7,), closed=True))).rows == 3
    with pytest.raises(Asked):
        store.checks.digest(state)


def test_a_scan_of_too_many_rows_is_left_to_the_caller(files: QuickFiles) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k"], [(i,) for i in range(20_000)], inline=False)
    state = State(KV, history.chain())
    store = Here(files, Settings(scan_rows=10_000))
    assert store.scan(state) is None
    found = store.scan(state.narrow(KeyRange((5,), (7,), closed=True)), ["k"])
    assert found is not None
    assert found["k"].to_pylist() == [5, 6, 7]


def test_following_too_many_changes_is_left_to_the_caller_or_to_spark(files: QuickFiles) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k", "v"], [(1, "a"), (2, "b")])
    before, after = State(KV, history.chain(0)), State(KV, history.chain())
    store = Here(files, Settings(bulk_rows=1))
    assert store.follow(before, after, history.segments, BY_V, name=lambda: "i") is None
    with pytest.raises(Asked):
        store.follow(before, after, history.segments, BY_V, name=lambda: "i", at_any_size=True)
    for at_any_size in (False, True):
        made = Here(files, Settings(bulk_rows=2)).follow(
            before, after, history.segments, BY_V, name=lambda: "i", at_any_size=at_any_size
        )
        assert made is not None
        assert (made.delta.rows, [s.rows for s in made.segments]) == (2, [2])


def test_a_write_of_many_rows_asks_for_spark(files: QuickFiles) -> None:
    table = Written(files, Settings(bulk_rows=1))
    with pytest.raises(Asked):
        table.write("UPSERT", [(1, "a"), (2, "b")])
    assert [s.rows for s in table.write("UPSERT", [(1, "a")]).table.segments] == [1]


def test_logs_of_many_bytes_are_not_merged_here(files: QuickFiles) -> None:
    history = History(files, KV)
    for k in range(4):
        history.write("UPSERT", ["k", "v"], [(k, "x" * 1000)])
    together = sum(s.bytes for s in history.segments)
    for most, found in ((together, 4), (together - 1, 0)):
        store = Here(files, Settings(merge_segments=4, bulk_bytes=most))
        assert len(store.due_logs(history.chain())) == found


# --- writing ----------------------------------------------------------------------------------------------


def test_only_what_becomes_a_file_has_a_name(files: QuickFiles) -> None:
    inline = Written(files, Settings())
    assert [s.file for s in inline.write("UPSERT", [(1, "a")]).table.segments] == [None]
    assert inline.names == []
    stored = Written(files)
    made = stored.write("UPSERT", [(1, "a")])
    assert stored.names == [None, "by_v"]
    assert [s.file for s in made.table.segments] == ["data/table/1.parquet"]
    assert [s.file for s in made.indexes["by_v"].segments] == ["data/by_v/2.parquet"]


def test_the_keys_that_decide_are_told_though_the_write_is_refused(files: QuickFiles) -> None:
    """A caller that continues after the refusal depends on the key's existence."""
    table = Written(files)
    before = table.write("INSERT", [(1, "a")]).table.segments
    with pytest.raises(PreconditionFailed, match="already in the table"):
        table.write("INSERT", [(1, "b")], *before)
    assert table.write("UPDATE", [(9, "b")], *before) == Outcome()
    assert table.read == [[{"k": 1}], [{"k": 1}], [{"k": 9}]]


class Choosy(QuickFiles):
    """Fails to write files of an index."""

    def write(self, name: str, data: bytes) -> None:
        if "by_v" in name:
            raise Unavailable("Cannot write: the disk is full.")
        super().write(name, data)


def test_a_write_that_fails_at_an_index_leaves_no_file_of_the_table(tmp_path: Path) -> None:
    table = Written(Choosy(tmp_path))
    with pytest.raises(Unavailable):
        table.write("UPSERT", [(1, "a")])
    assert list(table.files.names()) == []


def test_what_is_discarded_is_gone_and_what_cannot_be_is_left(tmp_path: Path) -> None:
    class Stubborn(QuickFiles):
        def remove(self, name: str) -> None:
            if "table" in name:
                raise Unavailable("Cannot remove it.")
            super().remove(name)

    table = Written(Stubborn(tmp_path))
    made = table.write("UPSERT", [(1, "a")])
    table.store.discard([*made.table.segments, *made.indexes["by_v"].segments])
    assert list(table.files.names()) == ["data/table/1.parquet"]


def test_a_fork_discards_nothing_of_the_process_it_comes_from(
    files: QuickFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Written(files)
    made = table.write("UPSERT", [(1, "a")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        table.store.discard(made.table.segments)
    assert len(list(files.names())) == 2
    table.store.discard(made.table.segments)
    assert len(list(files.names())) == 1


# --- cache ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [10, 20_000], ids=["small", "large"])
def test_what_was_read_ends_with_the_store(files: QuickFiles, rows: int) -> None:
    history = History(files, KV)
    history.write("UPSERT", ["k"], [(i,) for i in range(rows)], inline=False)
    state = State(KV, history.chain())
    store = Store(files, Settings())
    assert store.lookup(state, [(1,)]) == {(1,): (1, None)}
    path = Path(files.path(history.segments[0].file or ""))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert store.lookup(state, [(1,)]) == {(1,): (1, None)}, "its footer or its content is cached"
    with pytest.raises(Corrupted):
        Store(files, Settings()).lookup(state, [(1,)])
