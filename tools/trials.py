"""Run mutants, each in a process forked from one that has imported everything.

The code of one function is replaced, and tests run until one fails. The source files are not changed.

The load of the machine must not matter: a mutant times out after a limit of processor time, or after a limit
of time in which its processes are idle.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import TypeVar

import pytest

from tools.mutations import Mutant, mutated
from tools.spending import Spending

KILLED, SURVIVED, UNREACHED, TIMED_OUT, UNFIT = "killed", "survived", "not reached", "timed out", "unfit"
NOTICED = (KILLED, TIMED_OUT)
Outcome = tuple[str, str]
"""An outcome, and the test that failed."""
Given = TypeVar("Given")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Trial:
    """A mutant of a file below ``root``, and the tests that may detect it.

    ``seconds``: the usual processor time of these tests.
    """

    root: Path
    mutant: Mutant
    tests: tuple[str, ...]
    seconds: float


def attempt(trial: Trial) -> Outcome:
    """Run the tests with the mutant; return the outcome."""
    if not trial.tests:
        return UNREACHED, ""
    code, failed = _in_child(lambda pipe: _asked(trial, pipe), trial.seconds)
    if code is None:
        return TIMED_OUT, ""
    return (SURVIVED if code == 0 else UNFIT if code in (4, 5, 99) else KILLED), "".join(failed[:1])


def failing(tests: Sequence[str]) -> list[str]:
    """Return the tests that fail without any change."""
    return _in_child(lambda pipe: _run(tests, pipe), float("inf"))[1]


def side_by_side(
    task: Callable[[Given], Found], given: Sequence[Given], workers: int, until: float = float("inf")
) -> Iterator[tuple[Given, Found]]:
    """Yield each item with the result of ``task`` for it, in order, until the time is over."""
    # Workers may have children of their own; all of them are forked before any thread starts.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        started = [pool.submit(_in_time, task, each, until) for each in given]
        for each, future in zip(given, started, strict=True):
            for found in future.result():
                yield each, found


def _in_time(task: Callable[[Given], Found], given: Given, until: float) -> list[Found]:
    return [task(given)] if time.monotonic() < until else []


class _Failures:
    """Writes the names of failed tests to a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._pipe, f"{report.nodeid}\n".encode())


def _run(tests: Sequence[str], pipe: int, *more: str) -> int:
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "timeout=0", *more]
    # This plugin repeatedly scans all objects at the end, most of which are not the test's.
    options += ["-p", "no:unraisableexception"]
    return int(pytest.main([*options, *tests], plugins=[_Failures(pipe)]))


def _asked(trial: Trial, pipe: int) -> int:
    """Replace the code and run the tests; return 0 if all of them pass."""
    try:
        before, after = mutated(trial.root / trial.mutant.file, trial.mutant)
        for function in _functions_with(before):
            function.__code__ = after
    except (SyntaxError, ValueError):
        return 99  # The change does not give a valid function.
    return _run(trial.tests, pipe, "-x")


def _functions_with(code: CodeType) -> list[FunctionType]:
    key = (code.co_filename, code.co_name, code.co_firstlineno)
    # Objects that existed before the first fork are frozen and would not be found otherwise.
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
    """Return the result of ``run`` in a new process (None: timeout), and the lines that it wrote to its pipe.

    ``seconds``: its usual processor time.
    """
    ours, its = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(run(its))
    os.close(its)
    os.set_blocking(ours, False)  # Processes that its tests have started may still have the other end open.
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
