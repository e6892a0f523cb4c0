"""The command line: see the package's docstring."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.simulation import runner as versions
from tests.simulation.data import runner as data
from tests.simulation.data.without import SAFEGUARDS, taken_out


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Random interleavings and crashes, without Spark."
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run, from 0 on")
    parser.add_argument("--seed", type=int, help="run this one only, and tell everything that happens")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--without", choices=sorted(SAFEGUARDS), help="take a safeguard out: it must be missed"
    )
    parser.add_argument("--versions", action="store_true", help="the simulation of versions instead of rows")
    parser.add_argument(
        "--eager",
        action="store_true",
        help="of versions: switch deferred publication off, which must be seen",
    )
    return parser.parse_args()


def replay(chosen: argparse.Namespace) -> str | None:
    if chosen.versions:
        runner = versions.Runner(eager=chosen.eager, trace=say)
        try:
            return runner.run(chosen.seed)
        finally:
            runner.close()
    with taken_out(chosen.without), data.running(say) as one:
        return one.run(chosen.seed)


def run(
    chosen: argparse.Namespace, on_progress: Callable[[int, int], None]
) -> tuple[dict[int, str], Counter[str]]:
    seeds = range(chosen.seeds)
    if chosen.versions:
        return versions.run_all(seeds, eager=chosen.eager, workers=chosen.workers, on_progress=on_progress)
    return data.run_all(seeds, without=chosen.without, workers=chosen.workers, on_progress=on_progress)


def main() -> int:
    chosen = parsed()
    if chosen.seed is not None:
        violation = replay(chosen)
        say(f"seed {chosen.seed}: {violation or 'nothing wrong'}")
        return 1 if violation else 0
    started = time.monotonic()

    def on_progress(done: int, wrong: int) -> None:
        sys.stderr.write(f"\r{done} of {chosen.seeds} seeds, {wrong} with a violation ")

    found, counts = run(chosen, on_progress)
    sys.stderr.write("\n")
    for seed, violation in sorted(found.items())[:20]:
        say(f"seed {seed}: {violation}")
    say(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    seconds = time.monotonic() - started
    say(f"{chosen.seeds} seeds in {seconds:.0f} s, {len(found)} with a violation; replay one with --seed N")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
