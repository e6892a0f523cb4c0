"""Cuts of tables into shards: each key is in one shard, shards have similar sizes, and are not too many."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.model import EVERYWHERE, Key, KeyRange, Segment, may_hold, order
from strandline.storage.shards import (
    MOST,
    begins_in,
    coarser,
    cuts,
    lies_in,
    ranges,
    segments_by_shard,
    segments_in,
    spread,
)


def segment(first: Key, last: Key, size: int = 1, *, fresh: bool = True) -> Segment:
    return Segment(
        id=0,
        role="base" if fresh else "log",
        fresh=fresh,
        stepped=True,
        after=0,
        upto=1,
        rows=1,
        bytes=size,
        file=None,
        checksum="",
        min_key=first,
        max_key=last,
    )


def row_of(*sizes: int) -> list[Segment]:
    """Return consecutive segments of these sizes."""
    return [segment((10 * i,), (10 * i + 9,), size) for i, size in enumerate(sizes)]


def sizes(limits: list[Key], segments: list[Segment]) -> list[int]:
    return [sum(s.bytes for s in found) for found in segments_by_shard(limits, segments).values()]


def test_what_is_small_is_one_shard() -> None:
    assert cuts((), row_of(50, 50), 100) == []
    assert cuts((), [], 100) == []


def test_it_is_cut_where_segments_begin() -> None:
    found = row_of(40, 40, 40, 40, 40)
    assert cuts((), found, 100) == [(20,), (40,)]
    assert sizes(cuts((), found, 100), found) == [80, 80, 40]


def test_a_segment_larger_than_a_shard_is_a_shard() -> None:
    found = row_of(10, 900, 10, 10)
    assert sizes(cuts((), found, 100), found) == [10, 900, 20]


def test_the_keys_a_table_was_created_with_stay_cuts() -> None:
    found = row_of(60, 60, 60, 60)
    assert cuts([(5,), (20,)], found, 100) == [(5,), (20,)]
    assert cuts([(5,), (20,)], found, 60) == [(5,), (20,), (30,)]
    assert cuts([(99,)], found, 60) == [(10,), (20,), (30,), (99,)]
    assert cuts([(5,)], [], 60) == [(5,)]


def test_an_index_is_cut_as_often_as_its_table() -> None:
    assert len(ranges(cuts((), row_of(1, 1, 1, 1, 1, 1), 100, least=3))) == 3
    assert len(ranges(cuts((), row_of(1, 1), 100, least=3))) == 2
    assert len(ranges(cuts((), row_of(9), 100, least=3))) == 1


def test_a_huge_table_has_larger_shards_not_more() -> None:
    found = row_of(*[100] * (5 * MOST))
    assert MOST / 2 < len(ranges(cuts((), found, 100))) <= MOST + 1


def test_segments_that_begin_at_the_same_key_stay_together() -> None:
    found = [segment((1,), (i,), 100) for i in range(1, 9)]
    assert cuts((), found, 100) == []


def test_the_spread_of_rows_is_told_by_what_was_not_changed_here_and_there() -> None:
    base, log = segment((1,), (9,)), segment((0,), (99,), fresh=False)
    assert spread([base, log]) == [base]
    assert spread([log]) == [log]


KEYS = st.tuples(
    st.one_of(st.none(), st.integers(0, 8)), st.one_of(st.none(), st.sampled_from(["", "a", "b"]))
)
PREFIXES = st.one_of(KEYS, KEYS.map(lambda key: key[:1]))


@st.composite
def segment_lists(draw: st.DrawFn) -> list[Segment]:
    found = []
    for _ in range(draw(st.integers(0, 12))):
        first, last = sorted([draw(KEYS), draw(KEYS)], key=order)
        found.append(segment(first, last, draw(st.integers(1, 50)), fresh=draw(st.booleans())))
    return found


def bounds_of(keys: set[Any]) -> list[Key]:
    return sorted(keys, key=order)


@given(segment_lists(), st.sets(PREFIXES, max_size=4), st.integers(1, 80), st.integers(1, 4), KEYS)
@example([], {(3,)}, 1, 1, (3, None))
@example([segment((3, None), (3, "a"), 5), segment((3, "a"), (4, ""), 5)], {(3,)}, 1, 1, (3, "a"))
def test_every_key_is_in_one_shard_and_every_segment_begins_in_one(
    segments: list[Segment], bounds: set[Any], size: int, least: int, key: Key
) -> None:
    limits = cuts(bounds_of(bounds), segments, size, least)
    assert [order(a) < order(b) for a, b in pairwise(limits)] == [True] * (len(limits) - 1 if limits else 0)
    assert bounds <= set(limits)
    shards = ranges(limits)
    here = segment(key, key)
    holding = [number for number, within in enumerate(shards) if may_hold(here, within)]
    assert holding == [bisect_right([order(limit) for limit in limits], order(key))]
    by_shard = segments_by_shard(limits, segments)
    for number, within in enumerate(shards):
        begun = [s for s in segments if begins_in(s, within)]
        assert begun == by_shard.get(number, [])
        assert all(may_hold(s, within) for s in begun)
    assert sum(map(len, by_shard.values())) == len(segments)


def test_a_segment_lies_in_a_shard_if_both_of_its_ends_do() -> None:
    within = KeyRange((3,), (5,))
    assert lies_in(segment((3, None), (4, "z")), within)
    assert lies_in(segment((None, None), (9, "z")), EVERYWHERE)
    for lowest, highest in [((2, "z"), (4, "a")), ((3, "a"), (5, None)), ((None, "a"), (9, "z"))]:
        assert not lies_in(segment(lowest, highest), within)


@pytest.mark.parametrize(
    ("within", "inside", "outside"),
    [
        (EVERYWHERE, [(None, None), (9, "x")], []),
        (KeyRange((3,), (5,)), [(3, None), (4, "z")], [(2, "z"), (5, None), (None, "a")]),
        (KeyRange((3,), (5,), closed=True), [(3, None), (5, "z")], [(2, "z"), (6, None)]),
        (KeyRange(None, (None, "a")), [(None, None)], [(None, "a"), (0, None)]),
        (KeyRange((3, "a"), None), [(3, "a"), (4, None)], [(3, None), (None, "z")]),
    ],
)
def test_a_range_ends_before_its_end_unless_it_is_closed(
    within: KeyRange, inside: list[Key], outside: list[Key]
) -> None:
    assert [key for key in inside if not may_hold(segment(key, key), within)] == []
    assert [key for key in outside if may_hold(segment(key, key), within)] == []


@given(st.integers(0, 40), st.integers(-1, 60))
def test_coarser_shards_are_some_of_the_others_joined_evenly(limits: int, most: int) -> None:
    made = coarser([(i,) for i in range(limits)], most)
    assert len(made) + 1 == max(1, min(most, limits + 1))
    sizes = [b - a for (a,), (b,) in pairwise([(-1,), *made, (limits,)])]
    assert max(sizes) - min(sizes) <= 1


ENDS = st.tuples(st.none() | st.integers(0, 9), st.integers(0, 3))


@given(
    st.lists(st.tuples(ENDS, ENDS), max_size=8),
    st.lists(ENDS | st.tuples(st.integers(0, 9)), max_size=6, unique=True),
)
def test_segments_in_a_shard_are_those_that_may_have_its_keys(
    spans: list[tuple[Key, Key]], limits: list[Key]
) -> None:
    ends = [sorted(span, key=order) for span in spans]
    segments = [segment(first, last) for first, last in ends]
    shards = ranges(sorted(limits, key=order))
    assert segments_in(shards, segments) == [[s for s in segments if may_hold(s, shard)] for shard in shards]
