"""The process that uses the library: it has a Spark session, and no other test's. ``python -m
tests.cluster.driver`` reads what to do from its input, a line of JSON each time, and says how it went.

One process can have a classic session or one of Spark Connect, but not both; so tests have neither."""

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
    """The other side of the pipe: tests ask, one question at a time."""

    def __init__(self, folder: Path, python: Path, **variables: str) -> None:
        sources = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        # Only here: what runs on executors gets no path from the environment of those who ask.
        mine = {"PYTHONPATH": sources, "SPARK_LOCAL_DIRS": str(folder / "scratch")}
        self._process = Process(
            [sys.executable, "-m", "tests.cluster.driver"],
            folder,
            environment(python) | mine | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.variables = variables
        """What its environment says beside that of all Spark's processes."""
        self.places: Mapping[str, list[str]] = {}
        """Where executors found the package: before it was shipped, and later."""

    def ask(self, name: str, **arguments: Any) -> None:
        """Let the process begin with ``name`` of ``tests.cluster.scenarios``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """Return what the last question was answered with."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver has ended: {self._process.said()}"
        succeeded, said = json.loads(line)
        assert succeeded, said
        return said

    @property
    def is_done(self) -> bool:
        """Whether there is a result, of a success or of a failure."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def run(self, name: str, **arguments: Any) -> Any:
        self.ask(name, **arguments)
        return self.result()

    def stop(self) -> None:
        self._process.stop()


def main() -> None:
    # What anything prints goes where errors go, so that nothing but answers is in the pipe.
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
