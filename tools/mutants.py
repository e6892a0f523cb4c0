"""Changes functions, one place at a time, and tells which changes no test notices.

    python -m tools.mutants --sample 200           # a sample that a seed decides on
    python -m tools.mutants --only backups/lease   # all of a module
    python -m tools.mutants --again                # find out anew which tests come to which lines

A mutant is tried in a process that was forked from one that has imported everything: the code of the one
function is exchanged, and the tests that come to the changed lines run, fastest first, until one fails.
Nothing is written to the sources. What survives is compared with the list in tests/mutants.md, which says why
it may.

How busy the machine is must not decide: a mutant is given up after so much processor time, or after so long a
time in which it asks for none; and a test that has noticed some must pass without them, in the end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tools.mutations import Mutant, mutants, mutated
from tools.reached import Reached, watched
from tools.spending import Spending

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
"""Those that may be asked: without Spark and without any other server, whose start takes too long."""
SECONDS = 20.0
"""So much processor time of tests is spent on one that survives, unless the fastest takes longer."""
KILLED, SURVIVED, UNREACHED, TIMED_OUT, UNFIT = "killed", "survived", "not reached", "timed out", "unfit"
DOUBTFUL = "doubtful"
"""Noticed by a test that fails without a change as well."""
Outcome = tuple[str, str]
"""One of these, and the test that failed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--sample", type=int, help="how many of them, chosen by the seed; all without it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="those in whose names this regular expression is found")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests for one that survives")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--again", action="store_true", help="run all tests to see which lines they come to")
    parser.add_argument("--more", action="store_true", help="run other tests, too, and add what they come to")
    parser.add_argument("tests", nargs="*", default=TESTS, help="what pytest is given to choose tests")
    chosen = parser.parse_args()
    files = [file for pattern in TARGETS for file in sorted(SOURCE.glob(pattern))]
    is_known = MAP.exists() and Reached.read(MAP).is_of(SOURCE, files)
    if chosen.again or chosen.more or not is_known:
        sys.stderr.write("running the tests to see which lines they come to\n")
        watched_in_child(files, chosen.tests, add=chosen.more and is_known)
    reached = Reached.read(MAP)
    every = [m for file in files for m in mutants(SOURCE, file) if re.search(chosen.only, m.name)]
    if chosen.sample is not None and chosen.sample < len(every):
        every = random.Random(chosen.seed).sample(every, chosen.sample)
    # What is imported before the first fork is imported once, and only what is there can be exchanged: much
    # is imported where it is first used. Importing is all that is done before it.
    for file in files:
        importlib.import_module(".".join(file.relative_to(SOURCE.parent).with_suffix("").parts))
    with open(os.devnull, "w") as nowhere, _output(nowhere.fileno()):
        pytest.main(["-q", "--collect-only", "-n", "0", "-p", "no:cacheprovider", *chosen.tests])
    gc.freeze()
    until = time.monotonic() + 60 * chosen.minutes
    outcomes: dict[Mutant, Outcome] = {}
    for mutant in every:
        if time.monotonic() > until:
            break
        outcomes[mutant] = attempt(mutant, reached, chosen.seconds)
        outcome, by = outcomes[mutant]
        say(f"{outcome:11} {mutant.name}" + (f"   by {by}" if by else ""))
    return report(without_doubtful(outcomes), len(every))


def say(line: str) -> None:
    print(line, flush=True)


def watched_in_child(files: Sequence[Path], tests: Sequence[str], *, add: bool) -> None:
    """In a process of its own: what tests leave behind must not be there when others are forked."""
    if (child := os.fork()) == 0:
        found = watched(SOURCE, files, tests)
        (Reached.read(MAP).with_more(found) if add else found).write(MAP)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)  # It has said why.


def attempt(mutant: Mutant, reached: Reached, seconds: float) -> Outcome:
    """What the tests say to it."""
    found = reached.by(mutant.file, mutant.lines)
    if not found:
        return UNREACHED, ""
    asked: list[str] = []
    total = 0.0
    for test in found:
        if asked and total + reached.seconds[test] > seconds:
            break
        asked.append(reached.tests[test])
        total += reached.seconds[test]
    code, failed = _in_child(lambda pipe: _asked(mutant, asked, pipe), total)
    if code is None:
        return TIMED_OUT, ""
    return (SURVIVED if code == 0 else UNFIT if code in (4, 5, 99) else KILLED), "".join(failed[:1])


def without_doubtful(outcomes: dict[Mutant, Outcome]) -> dict[Mutant, Outcome]:
    """The same, after all tests that have failed were run without any change."""
    if not (tests := sorted({by for _, by in outcomes.values() if by})):
        return outcomes
    _, failed = _in_child(lambda pipe: _run(tests, pipe), float("inf"))
    return {m: (DOUBTFUL, by) if by in failed else (outcome, by) for m, (outcome, by) in outcomes.items()}


class _Failures:
    """Writes the names of tests that fail into a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._pipe, f"{report.nodeid}\n".encode())


def _run(tests: Sequence[str], pipe: int, *more: str) -> int:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "timeout=0", *more]
    return int(pytest.main([*options, *tests], plugins=[_Failures(pipe)]))


def _asked(mutant: Mutant, tests: Sequence[str], pipe: int) -> int:
    """Exchange the code, and run the tests: 0 if all of them pass."""
    try:
        before, after = mutated(SOURCE / mutant.file, mutant)
        for function in _functions_with(before):
            function.__code__ = after
    except (SyntaxError, ValueError):
        return 99  # It would not be a function any more.
    return _run(tests, pipe, "-x")


def _functions_with(code: CodeType) -> list[FunctionType]:
    key = (code.co_filename, code.co_name, code.co_firstlineno)
    # Those that were there before the first fork are not among the objects that are looked through otherwise.
    gc.unfreeze()
    found = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and (each.__code__.co_filename, each.__code__.co_name, each.__code__.co_firstlineno) == key
    ]
    if not found:
        raise ValueError(f"nothing has the code of {key}")
    return found


def _in_child(run: Callable[[int], int], seconds: float) -> tuple[int | None, list[str]]:
    """What ``run`` returns in a process of its own, None if it does not end; and the lines that it wrote into
    the pipe that it got. ``seconds`` of processor time are what it usually takes."""
    ours, its = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(run(its))
    os.close(its)
    os.set_blocking(ours, False)  # What its tests have started may still have the other end.
    said = b""
    try:
        code = _ended(child, seconds)
        with contextlib.suppress(BlockingIOError):
            said = os.read(ours, 1 << 16)
        return code, said.decode().splitlines()
    finally:
        os.close(ours)


def _ended(child: int, seconds: float) -> int | None:
    spent, look_at = Spending(child), 0.0
    while spent.worked < 20 + 3 * seconds and spent.idle < 60 + 3 * seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= look_at:
            spent.look()
            look_at = time.monotonic() + 0.5
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class _output:
    """Standard output goes elsewhere while the block lasts."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        self._before = os.dup(1)
        os.dup2(self._descriptor, 1)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self._before, 1)
        os.close(self._before)


def known() -> set[str]:
    """The names of survivors that the list gives a reason for."""
    return (
        set(re.findall(r"^\| `(.+?)` \|", LIST.read_text("utf-8"), re.MULTILINE)) if LIST.exists() else set()
    )


def report(found: dict[Mutant, Outcome], wanted: int) -> int:
    outcomes = {mutant: outcome for mutant, (outcome, _) in found.items()}
    counts = Counter(outcomes.values())
    tried = sum(number for outcome, number in counts.items() if outcome != UNFIT)
    noticed = counts[KILLED] + counts[TIMED_OUT]
    explained = known()
    alive = [m for m, outcome in outcomes.items() if outcome in (SURVIVED, UNREACHED, DOUBTFUL)]
    news = [m for m in alive if m.name not in explained]
    say("")
    for mutant in news:
        say(f"{outcomes[mutant]}, and not in the list: {mutant.file}:{mutant.lines[0]} {mutant.name}")
    say(", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))
    if tried:
        say(f"noticed: {noticed} of {tried} ({100 * noticed / tried:.1f} %)")
    if wanted > len(outcomes):
        say(f"not tried for lack of time: {wanted - len(outcomes)}")
    return 1 if news else 0


if __name__ == "__main__":
    sys.exit(main())
