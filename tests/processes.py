"""Tests that need more than one process: scripts that run beside this one, with the same code."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
LIGHT = Path(__file__).resolve().parent / "light"


def environment(*folders: Path) -> dict[str, str]:
    """The environment of a process with the same code; ``folders`` have modules that it needs beside it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, LIGHT, *folders)))}


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs a script; ``sys.argv[1:]`` are the arguments."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def finish(process: subprocess.Popen[str], timeout: float = 600.0) -> str:
    """What the process printed; it must have succeeded and not complained."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    assert err == "", err
    return out


def run(script: str, *arguments: str) -> str:
    return finish(start(script, *arguments))


def run_at_once(script: str, arguments: Sequence[Sequence[str]]) -> list[str]:
    """Processes that wait for a line of input when they are ready, and then all go on at the same time."""
    started = [start(script, *given) for given in arguments]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [finish(process) for process in started]


READY = """
import sys
print("ready", flush=True)
sys.stdin.readline()
"""
"""What such a script says where it is ready."""


def without_power() -> None:
    """Root may read and write everything; a process without these two capabilities may not."""
    if os.geteuid() == 0:
        prctl = ctypes.CDLL(None).prctl
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
