"""The order of rows in segments and unique keys in states: accepted if right, reported if wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline import Settings
from strandline.model import Chain, Segment, State, TableSchema, order
from strandline.storage import segment as segments
from strandline.storage.files import LocalFiles
from strandline.storage.order import Finding, examine_segment, select_overlapping
from strandline.storage.store import Store
from tests.quick_files import QuickFiles
from tests.storage.damage import unsorted_segment
from tests.storage.examples import SCHEMAS, histories, schema, values

KV = schema("k Int64", "v Utf8", key="k")
PAIR = schema("a Utf8", "b Int32", "v Double", key="a b")


class Here(Store):
    """A store that must not use Spark."""

    @property
    def spark(self) -> Any:
        raise AssertionError("Spark was asked for")


def here(files: LocalFiles) -> Store:
    return Here(files, Settings(bulk_rows=10**9))


@pytest.fixture
def files(tmp_path: Path) -> QuickFiles:
    return QuickFiles(tmp_path)


@pytest.fixture(params=["file", "inline"])
def made(request: pytest.FixtureRequest, files: QuickFiles) -> Callable[..., tuple[QuickFiles, Segment]]:
    """Return a function that writes unsorted (key, value) rows as a segment, to a file or inline."""

    numbers = count()

    def make(*keys: int | None, **options: Any) -> tuple[QuickFiles, Segment]:
        name = f"{next(numbers)}.parquet" if request.param == "file" else None
        found = unsorted_segment(files, KV, [(key, "v") for key in keys], name, **options)
        return files, found

    return make


def kinds(files: QuickFiles, table: TableSchema, segment: Segment) -> dict[str, tuple[Any, ...]]:
    return {finding.kind: finding.keys for finding in examine_segment(files, table, segment)}


Made = Callable[..., tuple[QuickFiles, Segment]]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_nothing_is_wrong_with_what_is_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    history = data.draw(histories(tmp_path_factory.mktemp("h")))
    assert here(history.files).checks.examine(history.schema, history.segments) == []
    for step in range(history.step + 1):
        for ordered in (False, True):
            assert (
                here(history.files).checks.find_doubled_keys(
                    State(history.schema, history.chain(step)), ordered=ordered
                )
                == []
            )


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_segments_that_meet_no_other_need_not_be_looked_at(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Even if segments are wrongly marked as fresh, comparing only overlapping ones finds the same keys."""
    history = data.draw(histories(tmp_path_factory.mktemp("h")))
    forged = [replace(s, fresh=s.fresh or data.draw(st.booleans())) for s in history.segments]
    for step in range(history.step + 1):
        found = [
            here(history.files).checks.find_doubled_keys(
                State(history.schema, Chain(tuple(forged), step)), ordered=o
            )
            for o in (False, True)
        ]
        # A log that repeats a key at several steps and is marked as fresh is found by ``examine``.
        if not here(history.files).checks.examine(history.schema, forged):
            assert found[0] == found[1]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_a_row_that_does_not_follow_is_found_in_every_type(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = data.draw(st.sampled_from(SCHEMAS))
    one = st.tuples(*(st.none() | values(c.type) for c in table.key_columns))
    keys = data.draw(st.lists(one, min_size=1, max_size=8))
    steps = data.draw(st.lists(st.integers(1, 3), min_size=len(keys), max_size=len(keys)))
    rows = [tuple(dict(zip(table.key, key, strict=True)).get(name) for name in table.names) for key in keys]
    files = QuickFiles(tmp_path_factory.mktemp("r"))
    name = data.draw(st.sampled_from([None, "x.parquet"]))
    made = unsorted_segment(files, table, rows, name, steps=steps, fresh=data.draw(st.booleans()), upto=3)

    places = [(order(key), step) for key, step in zip(keys, steps, strict=True)]
    pairs = list(pairwise(places))
    unordered = {i for i, (before, here) in enumerate(pairs, 1) if here < before}
    doubled = {
        i
        for i, (before, here) in enumerate(pairs, 1)
        if here[0] == before[0] and (made.fresh or here[1] == before[1])
    }
    found = kinds(files, table, made)
    assert set(found) == {
        kind for kind, rows in (("unordered_rows", unordered), ("doubled_key", doubled)) if rows
    }
    for kind, which in (("unordered_rows", unordered), ("doubled_key", doubled)):
        assert list(found.get(kind, ())) == list(dict.fromkeys(keys[i] for i in sorted(which)))[:5]


def test_order_is_proven_across_batches(files: QuickFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "BATCH_ROWS", 2)
    for keys, expected in (
        ([1, 2, 3, 4, 5], {}),
        ([1, 3, 2, 4, 5], {"unordered_rows": ((2,),)}),
        ([1, 2, 2, 4, 5], {"doubled_key": ((2,),)}),
    ):
        name = f"{keys[1]}{keys[2]}.parquet"
        made = unsorted_segment(files, KV, [(k, None) for k in keys], name)
        assert kinds(files, KV, made) == expected


def test_a_key_of_a_base_or_of_one_commit_occurs_once(made: Made) -> None:
    for options in (
        {"role": "base", "steps": [1, 2, 3], "upto": 3},
        {"fresh": False},
        {"fresh": True, "steps": [1, 2, 3], "upto": 3},
    ):
        files, segment = made(1, 1, 2, **options)
        assert kinds(files, KV, segment) == {"doubled_key": ((1,),)}, options
    files, segment = made(1, 1, 2, fresh=False, steps=[1, 2, 2], upto=3)
    assert kinds(files, KV, segment) == {}


def test_the_ends_are_the_recorded_ones(made: Made) -> None:
    files, segment = made(None, 2, 3)
    assert (segment.min_key, segment.max_key) == ((None,), (3,))
    (finding,) = examine_segment(files, KV, replace(segment, min_key=(0,), max_key=(4,)))
    assert (finding.kind, finding.keys) == ("unordered_rows", ((None,), (3,)))
    assert "(0,) and (4,)" in finding.message


def test_steps_lie_in_the_window(made: Made) -> None:
    files, segment = made(1, 2, 3, 4, steps=[4, 5, 8, 9], after=4, upto=8)
    (finding,) = examine_segment(files, KV, segment)
    assert (finding.kind, finding.keys) == ("unordered_rows", ((1,), (4,)))
    assert "2 rows" in finding.message
    assert "(4, 8]" in finding.message


def test_there_are_as_many_rows_as_recorded(made: Made) -> None:
    files, segment = made(1, 2, 3)
    (finding,) = examine_segment(files, KV, replace(segment, rows=4))
    assert finding.kind == "corrupt_file"
    assert "3 rows instead of 4" in finding.message


def test_five_examples_are_named(made: Made) -> None:
    files, segment = made(*range(20, 0, -1))
    (finding,) = examine_segment(files, KV, segment)
    assert finding.message.startswith("19 rows")
    assert finding.keys == ((19,), (18,), (17,), (16,), (15,))


def test_a_file_without_a_key_column_cannot_be_examined(files: QuickFiles) -> None:
    made = unsorted_segment(files, KV, [(1, "v")], "x.parquet")
    other = schema("other Int64", "v Utf8", key="other")
    assert examine_segment(files, other, made) == [
        Finding("corrupt_file", "the file x.parquet has no column other")
    ]


def test_a_key_in_two_segments_that_call_it_new(files: QuickFiles) -> None:
    base = unsorted_segment(
        files, PAIR, [(None, 1, 0.0), ("a", None, float("nan")), ("a", 1, None)], "1", role="base", upto=1
    )
    log = unsorted_segment(
        files, PAIR, [(None, 1, 0.0), ("a", 1, None), ("b", 1, None)], None, after=1, upto=2
    )
    assert here(files).checks.find_doubled_keys(State(PAIR, Chain((base, log), 1))) == []
    assert here(files).checks.find_doubled_keys(State(PAIR, Chain((base, log), 2))) == [
        Finding("doubled_key", "2 keys are in the table more than once", ((None, 1), ("a", 1)))
    ]
    assert (
        here(files).checks.find_doubled_keys(State(PAIR, Chain((base, replace(log, fresh=False)), 2))) == []
    )


def test_a_log_that_changes_rows_stays_where_it_is_though_it_meets_no_other(files: QuickFiles) -> None:
    """Between two such logs, a key wrongly marked as new replaces the older row and occurs once."""
    given: list[tuple[list[int], bool]] = [([1, 5], True), ([100], False), ([1], True), ([2, 5], False)]
    made = [
        unsorted_segment(
            files, KV, [(key, "v") for key in keys], None, fresh=fresh, after=step, upto=step + 1
        )
        for step, (keys, fresh) in enumerate(given)
    ]
    chain = Chain(tuple(made), 4)
    assert [
        here(files).checks.find_doubled_keys(State(KV, chain), ordered=ordered) for ordered in (False, True)
    ] == [
        [],
        [],
    ]


def test_only_segments_outside_of_the_logs_that_change_rows_can_double_a_key(files: QuickFiles) -> None:
    def met(*given: tuple[list[int], bool]) -> list[int]:
        made = [
            unsorted_segment(
                files, KV, [(key, "v") for key in keys], None, fresh=fresh, after=step, upto=step + 1
            )
            for step, (keys, fresh) in enumerate(given)
        ]
        return [made.index(segment) for segment in select_overlapping(made)]

    base, log = ([1, 5], True), ([2, 3], False)
    assert met(base, log) == []
    assert met(base, log, ([9], True)) == []
    assert met(base, ([7], True), log, ([4], True)) == [0, 2, 3]
    assert met(base, ([7, 9], False), ([8], True)) == [1, 2]
    assert met(base, ([5, 6], True), log) == [0, 1, 2]
    assert met(base, ([5, 6], True), ([8], True)) == [0, 1]
