"""Random interleavings of everything that changes versions, with crashes and late news: no reader ever gets a
mismatched plan."""

from __future__ import annotations

import pytest

from tests.simulation.runner import Runner, run_all
from tests.world import counted


@pytest.mark.slow
def test_a_thousand_histories_have_no_mismatched_plan_and_leave_nothing() -> None:
    found, counts = run_all(range(1000))
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


@pytest.mark.parametrize("eager", [False, True])
def test_a_seed_can_be_replayed(eager: bool) -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        runner = Runner(eager=eager, trace=lines.append)
        lines += [f"{runner.run(seed)}" for seed in (3, 4, 5)]
        runner.close()
        traces.append(lines)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 50
