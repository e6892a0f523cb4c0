"""The directory of a long chain: reads find the same rows in fewer segments."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.model import PENDING, Chain, KeyRange, Segment, State
from strandline.storage.arrow import directory
from strandline.storage.arrow.directory import directory_of, with_few_segments
from strandline.storage.arrow.lookup import lookup
from strandline.storage.arrow.scan import scan
from strandline.storage.keys import keys_of
from strandline.storage.segment_cache import SegmentCache
from tests.storage.examples import History, QuickFiles, schema

KV = schema("k Int64", "t Utf8 NOT NULL", "v Utf8", key="k t")
KEYS = [(k, t) for k in (None, *range(40)) for t in "ab"]


def grow(history: History, rng: random.Random, commits: int) -> None:
    for _ in range(commits):
        some = rng.sample(KEYS, rng.randint(1, 3))
        if rng.random() < 0.3:
            history.write("DELETE ON", ["k", "t"], some)
        else:
            inline = rng.random() < 0.95
            history.write(
                "UPSERT", ["k", "t", "v"], [(*key, str(history.step)) for key in some], inline=inline
            )


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(QuickFiles(tmp_path), KV)
    made.write("INSERT", ["k", "t", "v"], [(*key, "first") for key in KEYS[::2]])
    made.compact(1)
    return made


def rows_of(cache: SegmentCache, state: State) -> dict[Any, tuple[Any, ...]]:
    found = scan(cache, with_few_segments(cache, state))
    keys = keys_of(KV, found)
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(*(found.column(n).to_pylist() for n in KV.names), strict=True), strict=True))


def test_reads_find_the_rows_of_each_step_while_the_chain_grows(history: History) -> None:
    rng = random.Random(1)
    grow(history, rng, directory.LONG - 20)
    for _ in range(40):
        grow(history, rng, rng.randint(1, 12))
        state = State(KV, history.chain())
        expected = history.states[-1]
        assert lookup(history.cache, state, KEYS) == expected
        some = rng.sample(KEYS, 1)
        assert lookup(history.cache, state, some) == {k: v for k, v in expected.items() if k in some}
        assert rows_of(history.cache, state) == expected
    assert len(history.segments) > directory.LONG


def test_a_range_of_keys(history: History) -> None:
    grow(history, random.Random(2), directory.LONG + 10)
    for within in (KeyRange((3,), (7,), True), KeyRange(None, (7,)), KeyRange((None,), (None,), True)):
        part = {k: v for k, v in history.states[-1].items() if _is_in(k, within)}
        assert rows_of(history.cache, State(KV, history.chain(), within)) == part


def _is_in(key: Any, within: KeyRange) -> bool:
    def number(k: Any) -> float:
        return -1.0 if k[0] is None else float(k[0])

    above = within.lower is None or number(key) >= number(within.lower)
    if within.upper is None:
        return above
    return above and (
        number(key) <= number(within.upper) if within.closed else number(key) < number(within.upper)
    )


def test_an_earlier_step_and_another_chain_are_read_as_they_are(history: History) -> None:
    rng = random.Random(3)
    grow(history, rng, directory.LONG + 40)
    now = State(KV, history.chain())
    assert directory_of(history.cache, now) is not None
    for step in (history.step - 1, directory.LONG + 5, 3):
        assert lookup(history.cache, State(KV, history.chain(step)), KEYS) == history.states[step]
        short = Chain(tuple(s for s in history.segments if s.upto <= step), step)
        assert lookup(history.cache, State(KV, short), KEYS) == history.states[step]
    expected = history.states[-1]
    history.merge(5, 9)
    assert lookup(history.cache, State(KV, history.chain()), KEYS) == expected
    grow(history, rng, 3)
    assert lookup(history.cache, State(KV, history.chain()), KEYS) == history.states[-1]


def test_a_chain_that_a_merge_has_made_shorter_has_a_directory_as_well(history: History) -> None:
    rng = random.Random(5)
    grow(history, rng, directory.LONG + 40)
    longer = State(KV, history.chain())
    assert directory_of(history.cache, longer) is not None
    history.merge(1, 41)
    grow(history, rng, 1)
    now = State(KV, history.chain())
    assert len(now.chain.segments) < len(longer.chain.segments)
    assert directory_of(history.cache, now) is not None
    assert directory_of(history.cache, longer) is None, "the directory of the present state stays"
    assert lookup(history.cache, now, KEYS) == history.states[-1]


def test_the_changes_of_a_transaction_are_newest(history: History) -> None:
    grow(history, random.Random(4), directory.LONG + 5)
    step, before = history.step, Chain(tuple(history.segments), history.step)
    history.write("UPSERT", ["k", "t", "v"], [(1, "a", "mine")])
    history.write("DELETE ON", ["k", "t"], [(2, "a")])
    mine = tuple(
        replace(s, after=0, upto=PENDING + i) for i, s in enumerate(history.segments[len(before.segments) :])
    )
    state = State(KV, before.plus(mine))
    assert lookup(history.cache, state, KEYS) == history.states[-1]
    assert rows_of(history.cache, state) == history.states[-1]
    assert lookup(history.cache, State(KV, before), KEYS) == history.states[step]


def test_the_segments_that_a_read_opens_do_not_grow_with_the_commits(history: History) -> None:
    rng = random.Random(5)

    def small(segments: tuple[Segment, ...]) -> int:
        return sum(s.file is None for s in segments)

    for _ in range(12):
        grow(history, rng, 100)
    state = State(KV, history.chain())
    assert small(state.chain.segments) > 1000
    history.segments = [s for s in history.segments if s.file is None or s.role == "base"]
    state = State(KV, history.chain())
    assert small(with_few_segments(history.cache, state).chain.segments) < 4 * directory.FAN_IN
