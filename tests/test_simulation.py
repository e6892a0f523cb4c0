"""Random interleavings, with crashes and late news: no reader ever gets a mismatched plan, nobody ever sees
rows that never were."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.catalogs import counted
from tests.effort import EVERY
from tests.simulation.data.runner import run_seeds, running
from tests.simulation.data.without import SAFEGUARDS
from tests.simulation.runner import Runner, run_all


@pytest.mark.slow
def test_no_history_has_a_mismatched_plan_or_leaves_anything() -> None:
    # Among these few there is one with a mismatch that is cured.
    found, counts = run_all(range(4000) if EVERY else range(100, 200))
    assert found == {}, "replay one with: python -m tests.simulation --seed N"
    for what in ("copies done", "deaths", "taken over", "haunted", "commits", "refusals", "mismatches cured"):
        assert counts[what] > 0, f"the simulation has lost its bite: {what}"
    assert counts["mismatches failed"] == 0
    assert counts["mismatches seen"] == counts["mismatches cured"]


def test_parts_that_publish_by_themselves_are_caught() -> None:
    """The original failure, on purpose: it proves that the simulation can see it."""
    runner = Runner(eager=True)
    found = next(violation for violation in (runner.run(seed) for seed in range(1000)) if violation)
    assert "schema version mismatch for" in found
    assert "expects version 1, got 2" in found
    assert counted(runner.metrics, "schema_mismatches_total", result="failed") == 1
    runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("eager", [False, True])
def test_a_seed_can_be_replayed(eager: bool) -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        runner = Runner(eager=eager, trace=lines.append)
        lines += [f"{runner.run(seed)}" for seed in (3, 4, 5, 6, 7)]
        runner.close()
        traces.append(lines)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 50


SEEDS = 40 if EVERY else 24


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, (8 if EVERY else 1) * SEEDS, SEEDS))
def test_whatever_gets_in_its_way_a_statement_sees_and_makes_what_the_model_says(first: int) -> None:
    found, counts = run_seeds(range(first, first + SEEDS))
    assert found == {}, "replay one with: python -m tests.simulation --seed N"
    for what in (
        "ambush",
        "deaths",
        "transact",
        "back_up",
        "drop_backup",
        "prune",
        "undrop",
        "roll_back",
        "list_commits",
        "told done",
        "told rows",
        "told CONFLICT",
        "told UNDER_OPERATION",
    ):
        assert counts[what] > 0, f"the simulation has lost its bite: {what}"


SOON = {
    "moment": 4,
    "kept": 52,
    "session": 4,
    "live": 10,
    "identity": 92,
    "pins": 36,
    "said": 96,
    "grace": 9,
    "collected": 31,
    "orphans": 4,
}
"""Where to begin to look: the first seed that showed it when it was last looked for from the beginning."""


@pytest.mark.slow
@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_without_a_safeguard_what_it_is_for_is_noticed(safeguard: str) -> None:
    """Each of them is taken out, on purpose: it proves that the simulation could see its failure."""
    with running() as runner:
        seeds = [SOON.get(safeguard, 0), *range(320)]
        seed = next((seed for seed in seeds if runner.run(seed, safeguard)), None)
        assert seed is not None, "nothing was noticed"
        assert runner.run(seed, focus=SAFEGUARDS[safeguard].focus) is None, "with it, the same is harmless"


@pytest.mark.slow
def test_a_seed_with_rows_can_be_replayed_in_another_process() -> None:
    def trace(seed: int, hashes: str) -> str:
        command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
        return subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout

    lines = trace(5, "1").splitlines()
    assert lines == trace(5, "2").splitlines()
    assert len(lines) > 100
