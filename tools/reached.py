"""Record which tests reach which lines, and how long each test takes.

A pytest plugin; each worker records the tests that it runs (``-p tools.reached --watch FILE``).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Reached:
    """Which tests reach which lines.

    Args:
        lines: per file and line, the numbers of the tests that reach it.
        seconds: processor time of each test.
        sources: checksums of the files at that time.
    """

    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def is_of(self, root: Path, files: Sequence[Path]) -> bool:
        """Return True if the files have not changed since."""
        return self.sources == checksums(root, files)

    def by(self, file: str, lines: tuple[int, int]) -> list[int]:
        """Return the tests that reach a place, fastest first."""
        known = self.lines.get(file, {})
        found = {test for line in range(lines[0], lines[1] + 1) for test in known.get(str(line), ())}
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def with_more(self, other: Reached) -> Reached:
        """Return this record with other tests added."""
        known_tests = set(self.tests)
        new = [number for number, test in enumerate(other.tests) if test not in known_tests]
        numbers = {number: len(self.tests) + place for place, number in enumerate(new)}
        lines = {file: dict(found) for file, found in self.lines.items()}
        for file, found in other.lines.items():
            known = lines.setdefault(file, {})
            for line, tests in found.items():
                known[line] = known.get(line, []) + [numbers[test] for test in tests if test in numbers]
        seconds = self.seconds + [other.seconds[number] for number in new]
        return Reached(self.tests + [other.tests[number] for number in new], seconds, lines, other.sources)

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(file: Path) -> Reached:
        return Reached(**json.loads(file.read_text("utf-8")))


def checksums(root: Path, files: Sequence[Path]) -> dict[str, str]:
    return {f.relative_to(root).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def watched(root: Path, files: Sequence[Path], arguments: Sequence[str], workers: int) -> Reached:
    """Run tests and record which lines of some files each test reaches.

    Tests that fail or skip themselves are left out, because they cannot detect anything.
    """
    # Computed first: a change of the files meanwhile makes the record outdated.
    sources = checksums(root, files)
    with tempfile.TemporaryDirectory() as parts:
        options = ["-q", "-n", str(workers), "--dist", "load", "-p", "no:cacheprovider", "-p", __name__]
        options += [f"--watch={file}" for file in files] + [f"--watch-root={root}", f"--watch-into={parts}"]
        # From Python 3.14 on, coverage would choose a core that records a line only for the first test.
        env = {**os.environ, "COVERAGE_CORE": "ctrace"}
        code = subprocess.run([sys.executable, "-m", "pytest", *options, *arguments], env=env).returncode
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise SystemExit("no tests were run, so no mutant could be noticed")
        made = reduce(Reached.with_more, map(Reached.read, sorted(Path(parts).iterdir())), Reached())
    made.sources = sources
    return made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--watch", action="append", default=[], help="a file whose lines are recorded")
    parser.addoption("--watch-root", help="the folder to which these files are relative")
    parser.addoption("--watch-into", help="a folder for the records")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--watch") and (hasattr(config, "workerinput") or not config.getoption("-n")):
        config.pluginmanager.register(_Watch(config))


class _Watch:
    """Tells coverage which test runs. Fixtures of several tests count for the first test."""

    def __init__(self, config: pytest.Config) -> None:
        # Imported late: it belongs to an optional extra, and listing mutants does not need it.
        import coverage

        self._root, self._into = (
            Path(config.getoption("--watch-root")),
            Path(config.getoption("--watch-into")),
        )
        self._cover: Any = coverage.Coverage(
            data_file=None, include=config.getoption("--watch"), config_file=False
        )
        self._cover.start()
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._cover.switch_context(item.nodeid)
        began = time.process_time()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.process_time() - began
            self._cover.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._cover.stop()
        tests = [test for test in self._seconds if test not in self._failed]
        made = Reached(tests, [self._seconds[test] for test in tests])
        numbers = {test: number for number, test in enumerate(tests)}
        data = self._cover.get_data()
        for file in data.measured_files():
            made.lines[Path(file).relative_to(self._root).as_posix()] = {
                str(line): sorted(numbers[test] for test in contexts if test in numbers)
                for line, contexts in data.contexts_by_lineno(file).items()
            }
        made.write(self._into / f"{os.getpid()}.json")
