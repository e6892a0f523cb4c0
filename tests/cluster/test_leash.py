"""Processes that the tests start end with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.driver import ROOT
from tests.cluster.machines import Process

FAMILY = "sleep 600 & echo ready; wait"
"""A command that starts a child, as a worker starts an executor. While one of them lives, stdout is open."""
TESTS = """
import os, signal, sys
from pathlib import Path
from tests.cluster.machines import Process
signal.signal(signal.SIGINT, signal.default_int_handler)  # Also where a run in the background ignores it.
process = Process(["sh", "-c", sys.argv[2]], Path(sys.argv[1]), os.environ, stdout=1)
os.close(1)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_command_ends_with_all_that_it_started(tmp_path: Path, how: str) -> None:
    process = Process(["sh", "-c", FAMILY], tmp_path, os.environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    getattr(process, how)()
    assert process.stdout.read() == b""
    process.stdout.close()
    process.stop()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_when_the_tests_are_interrupted(tmp_path: Path, number: int) -> None:
    tests = subprocess.Popen(
        [sys.executable, "-c", TESTS, str(tmp_path), FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    with tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"ready\n"
        tests.send_signal(number)
        assert tests.stdout.read() == b""
