"""The command line: see the package's docstring."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.runner import Runner, run_all


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Random interleavings and crashes, without Spark."
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run, from 0 on")
    parser.add_argument("--seed", type=int, help="run this one only, and tell everything that happens")
    parser.add_argument(
        "--eager", action="store_true", help="switch deferred publication off: mismatches must be found"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.seed is not None:
        runner = Runner(eager=chosen.eager, trace=say)
        violation = runner.run(chosen.seed)
        runner.close()
        say(f"seed {chosen.seed}: {violation or 'nothing wrong'}")
        return 1 if violation else 0
    started = time.monotonic()

    def on_progress(done: int, wrong: int) -> None:
        sys.stderr.write(f"\r{done} of {chosen.seeds} seeds, {wrong} with a violation ")

    found, counts = run_all(
        range(chosen.seeds), eager=chosen.eager, workers=chosen.workers, on_progress=on_progress
    )
    sys.stderr.write("\n")
    for seed, violation in sorted(found.items())[:20]:
        say(f"seed {seed}: {violation}")
    say(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    say(
        f"{chosen.seeds} seeds in {time.monotonic() - started:.0f} s, {len(found)} with a violation; replay one with --seed N"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
