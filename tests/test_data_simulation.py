"""Processes that write, read, define, back up, restore, sleep and die in any order: nobody ever sees what never
was."""

from __future__ import annotations

import os

import pytest

from tests.simulation.data.runner import run_seeds, running
from tests.simulation.data.without import SAFEGUARDS, taken_out

SEEDS = 120 * int(os.environ.get("STRANDLINE_EXAMPLES", "1"))
PARTS = 4
FIRST_TO_MISS = {
    "moment": 30, "kept": 5, "version": 0, "read_step": 8, "touched": 28, "session": 58,
}  # fmt: skip
"""A seed that was seen to miss each safeguard, which is tried first: to look for one takes a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_history_shows_what_never_was(part: int) -> None:
    found, counts = run_seeds(range(part, SEEDS, PARTS), None)
    assert found == {}, "replay one with: python -m tests.simulation --seed N"
    assert counts["deaths"] > 0 and counts["restore"] + counts["drop_and_restore"] > 0, counts


@pytest.mark.slow
@pytest.mark.parametrize("safeguard", FIRST_TO_MISS)
def test_each_safeguard_is_missed_when_it_is_taken_out(safeguard: str) -> None:
    first = FIRST_TO_MISS[safeguard]
    with taken_out(safeguard), running() as runner:
        seeds = (first, *(seed for seed in range(SEEDS) if seed != first))
        assert any(runner.run(seed) for seed in seeds), "nobody would notice"


def test_every_safeguard_can_be_missed() -> None:
    assert set(FIRST_TO_MISS) <= set(SAFEGUARDS)


def test_a_history_can_be_replayed() -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        with running(lines.append) as runner:
            assert runner.run(7) is None
        traces.append(lines)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 50
