"""Change functions, one place at a time, and report which changes no test detects.

    python -m tools.mutants --sample 200           # a sample, chosen by the seed
    python -m tools.mutants --only backups/lease   # all mutants of a module
    python -m tools.mutants --again                # find out again which tests reach which lines
    python -m tools.mutants --tests tests/backups  # the reverse: see each of these tests fail

The tests that reach the changed lines run until one fails, the fastest test of each file first. Surviving
mutants are compared with the list in tests/mutants.md, which explains why they may survive. With ``--tests``,
a test is run with mutants that it reaches, first those that the fewest other tests reach.

The load of the machine must not matter: a test that has detected mutants must pass without them in the end.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tools.mutations import Mutant, mutants
from tools.reached import Reached, watched
from tools.trials import NOTICED, SURVIVED, UNFIT, UNREACHED, Outcome, Trial, attempt, failing, side_by_side

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "strandline"
LIST = ROOT / "tests" / "mutants.md"
MAP = ROOT / "build" / "mutants" / "reached.json"
TARGETS = (
    "operations/*.py", "backups/*.py", "catalog/versions.py", "catalog/chains.py", "catalog/cache.py",
    "catalog/commits.py", "catalog/operations.py", "catalog/tables.py", "storage/arrow/changes.py",
    "storage/arrow/write.py", "storage/arrow/merge.py", "storage/arrow/feed.py", "storage/slices.py",
)  # fmt: skip
TESTS = ["tests", "-m", "not spark", "--ignore=tests/cluster", "--ignore=tests/cli", "--ignore=tests/sql"]
TESTS += ["-k", "not postgres", "-o", "timeout=600"]
"""Tests that are used: those without Spark and other servers, whose start takes too long."""
SECONDS = 60.0
"""Processor time of tests spent on a surviving mutant, unless the fastest test takes longer."""
TRIES = 30
"""Maximum number of mutants tried on a test that none of them makes fail."""
DOUBTFUL = "doubtful"
"""Detected by a test that also fails without a change."""
FAILED = "failed"
"""Outcome of a test that failed with some mutant."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--sample", type=int, help="number of mutants, chosen by the seed (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only mutants whose name matches this regular expression")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests per surviving mutant")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--again", action="store_true", help="run all tests to see which lines they reach")
    parser.add_argument("--more", action="store_true", help="run other tests, too, and add their lines")
    parser.add_argument("--tests", metavar="PATH", help="see each test below this path fail, with any mutant")
    parser.add_argument("--tries", type=int, default=TRIES, help="maximum of mutants per test")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="concurrent processes")
    parser.add_argument("asked", nargs="*", default=TESTS, help="pytest arguments that select tests")
    chosen = parser.parse_args()
    files = [file for pattern in TARGETS for file in sorted(SOURCE.glob(pattern))]
    is_known = MAP.exists() and Reached.read(MAP).is_of(SOURCE, files)
    if chosen.again or chosen.more or not is_known:
        sys.stderr.write("running the tests to see which lines they reach\n")
        found = watched(SOURCE, files, chosen.asked, chosen.workers)
        (Reached.read(MAP).with_more(found) if chosen.more and is_known else found).write(MAP)
    reached = Reached.read(MAP)
    every = [m for file in files for m in mutants(SOURCE, file) if re.search(chosen.only, m.name)]
    decide = random.Random(chosen.seed)
    # Imports before the first fork happen only once, and only functions that exist can be changed: many
    # modules are imported where they are first used. Nothing but imports happens before the fork.
    for file in files:
        importlib.import_module(".".join(file.relative_to(SOURCE.parent).with_suffix("").parts))
    with open(os.devnull, "w") as nowhere, _output(nowhere.fileno()):
        pytest.main(["-q", "--collect-only", "-n", "0", "-p", "no:cacheprovider", *chosen.asked])
    gc.freeze()
    until = time.monotonic() + 60 * chosen.minutes
    if chosen.tests is not None:
        decide.shuffle(every)
        of_tests = trials_of_tests(reached, every, chosen.tests, chosen.tries)
        return report_of_tests(see_failing(of_tests, chosen.workers, until), len(of_tests))
    if chosen.sample is not None and chosen.sample < len(every):
        every = decide.sample(every, chosen.sample)
    trials = [trial_of(mutant, reached, chosen.seconds) for mutant in every]
    return report(tried(trials, chosen.workers, until), len(trials))


def say(line: str) -> None:
    print(line, flush=True)


def trial_of(mutant: Mutant, reached: Reached, seconds: float) -> Trial:
    """Return the mutant with the tests that reach it, as many as fit into ``seconds``."""
    asked: list[str] = []
    total = 0.0
    for test in by_turns(reached, reached.by(mutant.file, mutant.lines)):
        if asked and total + reached.seconds[test] > seconds:
            break
        asked.append(reached.tests[test])
        total += reached.seconds[test]
    return Trial(SOURCE, mutant, tuple(asked), total)


def by_turns(reached: Reached, found: Sequence[int]) -> list[int]:
    """Return tests in the order in which they are tried, fastest first.

    First one test of each file, then others of each file, then the same tests with other parameters: a
    similar test seldom detects what the first one has missed.
    """
    of_file, of_function = Counter[str](), Counter[str]()
    turns: dict[int, tuple[int, int]] = {}
    for test in found:
        function = reached.tests[test].partition("[")[0]
        file = function.partition("::")[0]
        turns[test] = of_function[function], of_file[file]
        of_file[file] += not of_function[function]
        of_function[function] += 1
    return sorted(found, key=turns.__getitem__)


def tried(trials: Sequence[Trial], workers: int, until: float) -> dict[Mutant, str]:
    """Run the trials; return the outcome of each mutant."""
    found: dict[Mutant, Outcome] = {}
    for trial, (outcome, by) in side_by_side(attempt, trials, workers, until):
        found[trial.mutant] = outcome, by
        say(f"{outcome:11} {trial.mutant.name}" + (f"   by {by}" if by else ""))
    wrong = failing_among([by for _, by in found.values()], workers)
    return {mutant: DOUBTFUL if by in wrong else outcome for mutant, (outcome, by) in found.items()}


def failing_among(tests: Iterable[str], workers: int) -> set[str]:
    """Return the tests that fail without any change."""
    asked = sorted(set(tests) - {""})
    shares = [asked[number::workers] for number in range(workers) if asked[number::workers]]
    return {test for _, found in side_by_side(failing, shares, workers) for test in found}


TrialsOfTest = tuple[str, list[Trial]]


def trials_of_tests(reached: Reached, every: Sequence[Mutant], under: str, tries: int) -> list[TrialsOfTest]:
    """Return for each test below a path, with its fastest parameters, some mutants that it reaches.

    Mutants that the fewest other tests reach come first.
    """
    functions = [test.partition("[")[0] for test in reached.tests]
    fastest = {
        functions[number]: number
        for number in sorted(range(len(functions)), key=lambda number: -reached.seconds[number])
        if functions[number].startswith(under)
    }
    met: dict[int, list[tuple[int, Mutant]]] = {number: [] for number in sorted(fastest.values())}
    for mutant in every:
        found = reached.by(mutant.file, mutant.lines)
        many = len({functions[number] for number in found})
        for number in met.keys() & set(found):
            met[number].append((many, mutant))
    made = []
    for number, those in met.items():
        test, seconds = reached.tests[number], reached.seconds[number]
        first = sorted(those, key=lambda each: each[0])[:tries]
        made.append((test, [Trial(SOURCE, mutant, (test,), seconds) for _, mutant in first]))
    return made


def first_noticed(of_test: TrialsOfTest) -> Mutant | None:
    """Return the first mutant that makes the test fail."""
    return next((trial.mutant for trial in of_test[1] if attempt(trial)[0] in NOTICED), None)


def see_failing(of_tests: Sequence[TrialsOfTest], workers: int, until: float) -> dict[str, str]:
    """Run the trials; return the outcome of each test."""
    seen: dict[str, str] = {}
    for (test, trials), mutant in side_by_side(first_noticed, of_tests, workers, until):
        passes = f"passes with {len(trials)} mutants" if trials else "meets no mutant"
        seen[test] = FAILED if mutant else passes
        say(f"{seen[test]:11} {test}" + (f"   with {mutant.name}" if mutant else ""))
    wrong = failing_among((test for test, what in seen.items() if what == FAILED), workers)
    return {test: DOUBTFUL if test in wrong else what for test, what in seen.items()}


def report_of_tests(seen: dict[str, str], wanted: int) -> int:
    unseen = {test: what for test, what in seen.items() if what != FAILED}
    say("")
    for test, what in unseen.items():
        say(f"{what}: {test}")
    say(f"seen failing: {len(seen) - len(unseen)} of {len(seen)} tests")
    say_what_is_left(wanted - len(seen))
    return 1 if unseen else 0


def say_what_is_left(number: int) -> None:
    if number:
        say(f"not tried for lack of time: {number}")


def known() -> set[str]:
    """Return the names of the survivors for which the list has a reason."""
    return (
        set(re.findall(r"^\| `(.+?)` \|", LIST.read_text("utf-8"), re.MULTILINE)) if LIST.exists() else set()
    )


def report(outcomes: dict[Mutant, str], wanted: int) -> int:
    counts = Counter(outcomes.values())
    valid = sum(number for outcome, number in counts.items() if outcome != UNFIT)
    noticed = sum(counts[outcome] for outcome in NOTICED)
    explained = known()
    alive = [m for m, outcome in outcomes.items() if outcome in (SURVIVED, UNREACHED, DOUBTFUL)]
    news = [m for m in alive if m.name not in explained]
    say("")
    for mutant in news:
        say(f"{outcomes[mutant]}, and not in the list: {mutant.file}:{mutant.lines[0]} {mutant.name}")
    say(", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))
    if valid:
        say(f"noticed: {noticed} of {valid} ({100 * noticed / valid:.1f} %)")
    say_what_is_left(wanted - len(outcomes))
    return 1 if news else 0


class _output:
    """Redirects standard output while the block runs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        self._before = os.dup(1)
        os.dup2(self._descriptor, 1)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self._before, 1)
        os.close(self._before)


if __name__ == "__main__":
    sys.exit(main())
