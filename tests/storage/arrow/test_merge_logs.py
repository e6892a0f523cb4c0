from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import Internal
from strandline.model import PENDING, STEP, State
from strandline.storage.arrow.changes import changes
from strandline.storage.arrow.lookup import lookup
from strandline.storage.arrow.merge_logs import merge_logs
from strandline.storage.segment import read_segment
from tests.quick_files import QuickFiles
from tests.storage.examples import History, histories, schema

KV = schema("k Int64 NOT NULL", "v Utf8", key="k")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(QuickFiles(tmp_path), KV)


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_a_merge_keeps_every_change(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    history = data.draw(histories(tmp_path_factory.mktemp("m")))
    logs = [s for s in history.segments if s.role == "log"]
    if not logs:
        return
    before = changes(history.cache, history.schema, logs, after=-1, upto=history.step)
    merged = merge_logs(history.cache, history.schema, logs, history.name())
    after = changes(history.cache, history.schema, [merged], after=-1, upto=history.step)
    assert after.equals(before)
    assert (merged.after, merged.upto, merged.stepped) == (logs[0].after, logs[-1].upto, True)
    assert merged.rows == sum(s.rows for s in logs)


def test_rows_lie_by_key_then_step(history: History) -> None:
    history.write("UPSERT", ["k", "v"], [(2, "a"), (1, "a")])
    history.write("UPSERT", ["k", "v"], [(1, "b")])
    merged = merge_logs(history.cache, KV, history.segments, "m")
    found = read_segment(history.cache, KV, merged, ["k", "v", STEP]).to_pydict()
    assert found == {"k": [1, 1, 2], "v": ["a", "b", "a"], STEP: [1, 2, 1]}


def test_a_merge_covers_the_steps_of_what_it_was_made_of_and_no_others(history: History) -> None:
    for number in range(4):
        history.write("UPSERT", ["k"], [(number,)])
    merged = merge_logs(history.cache, KV, history.segments[1:3], "m")
    assert (merged.after, merged.upto, merged.role, merged.stepped) == (1, 3, "log", True)


def test_fresh_logs_stay_fresh_when_no_key_repeats(history: History) -> None:
    history.write("INSERT", ["k"], [(1,)])
    history.write("INSERT", ["k"], [(2,)])
    assert merge_logs(history.cache, KV, history.segments, "a").fresh
    history.write("UPSERT", ["k"], [(1,)])
    assert not merge_logs(history.cache, KV, history.segments, "b").fresh
    # Both are fresh, but the erase between them is missing here: the repeated key alone makes it not fresh.
    again = replace(history.segments[0], after=1, upto=2)
    assert not merge_logs(history.cache, KV, [history.segments[0], again], "c").fresh


def test_what_is_merged_can_be_merged_again(history: History) -> None:
    for i in range(6):
        history.write("UPSERT", ["k", "v"], [(i % 2, str(i))], inline=i % 2 == 0)
    history.merge(1, 3)
    history.merge(0, 3)
    history.merge(0, len(history.segments))
    for step in range(7):
        found = lookup(history.cache, State(KV, history.chain(step)), [(0,), (1,)])
        assert found == history.states[step]


def test_only_committed_logs_in_order_are_merged(history: History) -> None:
    history.write("INSERT", ["k"], [(1,)])
    history.write("INSERT", ["k"], [(2,)])
    first, second = history.segments
    for wrong in ([], [replace(first, upto=PENDING)], [second, first], [replace(first, role="base"), second]):
        with pytest.raises(Internal):
            merge_logs(history.cache, KV, wrong, "m")
