"""The policy of merges: few segments, and few bytes written per byte committed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.model import Chain, Segment
from strandline.settings import Settings
from strandline.storage.compaction_policy import FAN_IN, adds_upkeep, find_due_logs, pays_off

SETTINGS = Settings(merge_segments=32)
LOG = Segment(
    id=0,
    role="log",
    fresh=False,
    stepped=False,
    after=0,
    upto=1,
    rows=1,
    bytes=10,
    file=None,
    checksum="",
    min_key=(0,),
    max_key=(9,),
    data=b"",
)


def merge_all(chain: list[Segment], settings: Settings) -> int:
    """Merge as long as the policy asks for it; return the number of rows written."""
    written = 0
    while logs := find_due_logs(chain, settings):
        at = chain.index(logs[0])
        assert chain[at : at + len(logs)] == logs, "they are consecutive"
        rows = sum(s.rows for s in logs)
        written += rows
        chain[at : at + len(logs)] = [
            replace(
                LOG,
                rows=rows,
                bytes=10 * rows,
                stepped=True,
                after=logs[0].after,
                upto=logs[-1].upto,
                id=logs[-1].id,
            )
        ]
    return written


def of_one_row(number: int) -> int:
    return 1


def of_any_size(number: int) -> int:
    return random.Random(number).choice((1, 1, 2, 10, 50))


@pytest.mark.parametrize("size", [of_one_row, of_any_size])
def test_a_stream_of_commits_leaves_logarithmically_many_segments(size: Callable[[int], int]) -> None:
    chain: list[Segment] = []
    rows = written = 0
    for number in range(1, 20_001):
        new = replace(
            LOG, id=number, after=number - 1, upto=number, rows=size(number), bytes=10 * size(number)
        )
        is_due = adds_upkeep(Chain(tuple(chain), number - 1), [new], SETTINGS)
        chain.append(new)
        rows += new.rows
        if is_due:
            written += merge_all(chain, SETTINGS)
        levels = 1 + int(math.log(rows, FAN_IN))
        assert len(chain) <= SETTINGS.merge_segments + (FAN_IN - 1) * levels
    assert sum(s.rows for s in chain) == rows
    assert written <= levels * rows
    assert [s.upto for s in chain] == sorted(s.upto for s in chain)


def test_logs_that_need_more_memory_than_the_process_may_use_stay() -> None:
    logs = [
        replace(LOG, id=n, stepped=True, after=n, upto=n + 1, rows=100, bytes=1000) for n in range(FAN_IN)
    ]
    assert find_due_logs(logs, Settings(bulk_bytes=16_000)) == logs
    assert find_due_logs(logs, Settings(bulk_bytes=15_999)) == []


def test_a_log_before_the_given_step_stays() -> None:
    logs = [replace(LOG, id=n, after=n, upto=n + 1) for n in range(40)]
    assert find_due_logs(logs, SETTINGS, after=5) == logs[5:]
    assert find_due_logs(logs, SETTINGS, after=9) == []


def test_a_process_compacts_what_is_worth_it() -> None:
    base = replace(LOG, role="base", fresh=True, rows=100_000)
    for rows, is_due in ((10_000, False), (10_001, True)):
        assert pays_off(Chain((base, replace(LOG, rows=rows)), 1), Settings()) == is_due
    new = replace(LOG, rows=50_000, fresh=True)
    assert not pays_off(Chain((base, new), 1), Settings()), "rows with new keys are read like a base"
    assert not pays_off(Chain((replace(LOG, rows=1000),), 1), Settings(inline_rows=0)), "too few"
