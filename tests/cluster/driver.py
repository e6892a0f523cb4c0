"""A separate process that uses the library with its own Spark session.

``python -m tests.cluster.driver`` reads commands from stdin, one line of JSON each, and writes the results.
One process can have a classic session or a Spark Connect session, but not both. So the tests themselves have
neither.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.machines import Process, environment

ROOT = Path(__file__).resolve().parent.parent.parent


class Driver:
    """The test's side of the pipe: sends one command at a time."""

    def __init__(self, folder: Path, python: Path, **variables: str) -> None:
        sources = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        # Set only here: executors must not inherit a path from this environment.
        mine = {"PYTHONPATH": sources, "SPARK_LOCAL_DIRS": str(folder / "scratch")}
        self._process = Process(
            [sys.executable, "-m", "tests.cluster.driver"],
            folder,
            environment(python) | mine | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.variables = variables
        """Additional environment variables of the process."""
        self.places: Mapping[str, list[str]] = {}
        """Where executors found the package: before and after it was shipped."""

    def ask(self, name: str, **arguments: Any) -> None:
        """Start the function ``name`` of ``tests.cluster.scenarios`` in the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """Return the result of the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver has ended: {self._process.said()}"
        succeeded, said = json.loads(line)
        assert succeeded, said
        return said

    @property
    def is_done(self) -> bool:
        """Return whether the last command has a result or has failed."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def run(self, name: str, **arguments: Any) -> Any:
        self.ask(name, **arguments)
        return self.result()

    def stop(self) -> None:
        self._process.stop()


def main() -> None:
    # Redirect stdout to stderr, so that the pipe has only results.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scenarios = importlib.import_module("tests.cluster.scenarios")
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answers.write(json.dumps(_answer(getattr(scenarios, name), arguments)) + "\n")
        answers.flush()


def _answer(scenario: Any, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
    try:
        return True, scenario(**arguments)
    except Exception:
        return False, traceback.format_exc()


if __name__ == "__main__":
    main()
