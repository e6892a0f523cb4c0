"""The command line; see the docstring of the package."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation import runner as versions
from tests.simulation.data import runner as data
from tests.simulation.data.without import SAFEGUARDS


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Random interleavings and crashes, without Spark."
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run, from 0 on")
    parser.add_argument("--seed", type=int, help="run only this seed, and print everything that happens")
    parser.add_argument(
        "--without",
        choices=SAFEGUARDS,
        help="disable a safeguard and provoke what it protects against: violations must be found",
    )
    parser.add_argument("--versions", action="store_true", help="the simulation of versions, without rows")
    parser.add_argument(
        "--eager",
        action="store_true",
        help="with --versions: disable deferred publication; mismatches must be found",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if (chosen.eager and not chosen.versions) or (chosen.without and chosen.versions):
        parser.error("--eager needs --versions, and --without excludes it")
    if chosen.seed is not None:
        violation = _replayed(chosen)
        say(f"seed {chosen.seed}: {violation or 'nothing wrong'}")
        return 1 if violation else 0
    started = time.monotonic()

    def on_progress(done: int, wrong: int) -> None:
        sys.stderr.write(f"\r{done} of {chosen.seeds} seeds, {wrong} with a violation ")

    seeds = range(chosen.seeds)
    if chosen.versions:
        found, counts = versions.run_all(
            seeds, eager=chosen.eager, workers=chosen.workers, on_progress=on_progress
        )
    else:
        found, counts = data.run_all(
            seeds, without=chosen.without, workers=chosen.workers, on_progress=on_progress
        )
    sys.stderr.write("\n")
    for seed, violation in sorted(found.items())[:20]:
        say(f"seed {seed}: {violation}")
    say(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    say(
        f"{chosen.seeds} seeds in {time.monotonic() - started:.0f} s, {len(found)} with a violation; replay one with --seed N"
    )
    return 1 if found else 0


def _replayed(chosen: argparse.Namespace) -> str | None:
    if chosen.versions:
        runner = versions.Runner(eager=chosen.eager, trace=say)
        violation = runner.run(chosen.seed)
        runner.close()
        return violation
    with data.running(say) as runner_:
        return runner_.run(chosen.seed, chosen.without)


if __name__ == "__main__":
    sys.exit(main())
