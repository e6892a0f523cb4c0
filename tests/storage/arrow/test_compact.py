"""Compaction in one pass keeps rows and digest, in key order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.clock import SystemClock
from strandline.errors import Corrupted
from strandline.model import EVERYWHERE, STEP, Chain, KeyRange, State, order
from strandline.settings import Limits
from strandline.storage import segment as segments
from strandline.storage.arrow import stream as streams
from strandline.storage.arrow.compact import fold
from strandline.storage.arrow.digest import digests
from strandline.storage.arrow.merge_logs import ObjectSink
from strandline.storage.arrow.scan import scan
from strandline.storage.arrow.stream import held_in_memory
from strandline.storage.file_router import Destination
from strandline.storage.keys import keys_of
from strandline.storage.order import examine_segment
from strandline.storage.throttle import Throttle
from tests.quick_files import QuickFiles
from tests.storage.damage import unsorted_segment
from tests.storage.examples import History, histories, schema

KV = schema("k Int64", "v Utf8", key="k")
PLENTY = 1 << 30


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(QuickFiles(tmp_path), KV)


def with_steps(cache: Any, state: State) -> list[tuple[Any, ...]]:
    found = scan(cache, state, [*state.schema.names, STEP])
    rows = zip(keys_of(state.schema, found), zip(*found.to_pydict().values(), strict=True), strict=True)
    return [row for _, row in sorted(rows, key=lambda pair: order(pair[0]))]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_what_is_written_is_the_state(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROW_GROUP_ROWS", data.draw(st.sampled_from([2, 8192])))
        patch.setattr(segments, "FEW_ROWS", 1)
        patch.setattr(segments, "BATCH_ROWS", data.draw(st.integers(1, 5)))
        patch.setattr(streams, "BLOCK_ROWS", data.draw(st.integers(1, 9)))
        history = data.draw(histories(tmp_path_factory.mktemp("h")))
        keys = sorted((change.key for _, change in history.log), key=order)
        cut = data.draw(st.sampled_from(keys)) if keys else None
        within = data.draw(st.sampled_from([EVERYWHERE, KeyRange(cut, None), KeyRange(None, cut)]))
        state = State(history.schema, history.chain(), within)
        made = fold(history.cache, state, "made", most=data.draw(st.sampled_from([1, PLENTY])))
        after = State(history.schema, Chain(made.segments, history.step))
        assert with_steps(history.cache, after) == with_steps(history.cache, state)
        assert [made.delta] == digests(history.cache, state, [history.schema])
        for segment in made.segments:
            assert examine_segment(history.files, history.schema, segment) == []
        ends = [key for segment in made.segments for key in (segment.min_key, segment.max_key)]
        assert ends == sorted(ends, key=lambda key: order(key or ()))


def test_files_are_of_about_one_size_and_their_groups_are_full(history: History) -> None:
    history.write("UPSERT", ["k", "v"], [(i, f"value {i * 7919}") for i in range(30_000)], inline=False)
    history.write("UPSERT", ["k", "v"], [(i, "changed") for i in range(0, 30_000, 100)], inline=False)
    state = State(KV, history.chain())
    (whole,) = fold(history.cache, state, "whole", most=PLENTY).segments
    file = pq.ParquetFile(history.files.path(whole.file or ""))
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert groups == [8192, 8192, 8192, 30_000 - 3 * 8192]
    made = fold(history.cache, state, "made", most=1)
    assert {s.rows for s in made.segments[:-1]} <= set(range(900, 2200)), "one group or two"
    assert made.delta == history.digests[-1]


def test_texts_that_do_not_repeat_have_no_dictionary(history: History) -> None:
    history.write("UPSERT", ["k", "v"], [(i, f"value {i}") for i in range(10_000)], inline=False)
    (made,) = fold(history.cache, State(KV, history.chain()), "made", most=PLENTY).segments
    columns = {
        column.path_in_schema: column.has_dictionary_page
        for column in (
            pq.ParquetFile(history.files.path(made.file or "")).metadata.row_group(0).column(i)
            for i in range(3)
        )
    }
    assert columns == {"k": False, "v": False, STEP: True}


def test_only_what_does_not_meet_others_passes(history: History) -> None:
    for keys in (range(0, 10, 2), range(20, 30, 2), range(5, 25, 2), range(40, 50)):
        history.write("INSERT", ["k", "v"], [(k, "v") for k in keys], inline=False)
    across = history.segments[2]
    assert held_in_memory(State(KV, history.chain()), ordered=True) == [across]
    assert held_in_memory(State(KV, history.chain())) == []
    history.write("UPSERT", ["k", "v"], [(1, "w"), (7, "w"), (20, "w")], inline=False)
    history.write("INSERT", ["k", "v"], [(60, "x"), (3, "x")], inline=False)
    assert held_in_memory(State(KV, history.chain()), ordered=True) == [across, *history.segments[4:]]
    assert held_in_memory(State(KV, history.chain())) == history.segments[4:5]
    made = fold(history.cache, State(KV, history.chain()), "made", most=PLENTY)
    assert across not in made.segments and made.delta == history.digests[-1]


def test_rows_that_lie_in_another_order_are_damage_and_no_file_is_left(history: History) -> None:
    files = history.files
    rows = [(k, "v") for k in (1, 3, 2, 4)]
    odd = unsorted_segment(files, KV, rows, "t/odd.parquet", steps=[1] * 4, role="base", upto=1)
    before = set(files.names())
    with pytest.raises(Corrupted, match="not in the order of their keys"):
        fold(history.cache, State(KV, Chain((odd,), 1)), "made", most=1)
    assert set(files.names()) == before


def test_objects_of_a_repository_are_named_by_their_content(history: History, tmp_path: Path) -> None:
    history.write("UPSERT", ["k", "v"], [(1, "a"), (2, "b")], inline=False)
    state, there = State(KV, history.chain()), QuickFiles(tmp_path / "repository")
    (here,) = fold(history.cache, state, "made", most=PLENTY).segments
    before = set(history.files.names())
    into = ObjectSink(there, Destination("/there"), Throttle(Limits(), SystemClock()))
    (sent,) = fold(history.cache, state, "unused", most=PLENTY, into=into).segments
    assert (sent.file, sent.checksum) == (into.name(here.checksum), here.checksum)
    assert there.checksum(sent.file or "") == sent.checksum
    assert set(history.files.names()) - {f"repository/{sent.file}"} == before
