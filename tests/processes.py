"""Tests that need more than one process: scripts that run beside this one, with the same code."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
LIGHT = Path(__file__).resolve().parent / "light"
COMPILED = Path(__file__).resolve().parent / "compiled"


def environment(*folders: Path) -> dict[str, str]:
    """The environment of a process with the same code; ``folders`` have modules that it needs beside it."""
    return {**os.environ, "PYTHONPATH": joined(SOURCE, LIGHT, COMPILED, *folders)}


def joined(*folders: Path | str) -> str:
    return os.pathsep.join(map(str, folders))


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs a script; ``sys.argv[1:]`` are the arguments."""
    return start_python("-c", script, *arguments, env=environment())


def start_python(
    *arguments: str, env: dict[str, str], afresh: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """A process that runs ``python`` with these arguments, of which the first is ``-c`` or ``-m``. What takes
    long to load is there when it begins; ``afresh``: is not, for what depends on it."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    kind = subprocess.Popen if afresh or sys.platform != "linux" else _Forked
    return kind([sys.executable, *arguments], env=env, text=True, **{**pipes, **options})


def run_python(*arguments: str, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """The same until it has ended, however it does."""
    with start_python(*arguments, env=env, **options) as process:
        out, err = process.communicate(timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class _Forked(subprocess.Popen[str]):
    """A child of this process that was forked of another one."""

    def _execute_child(self, args: list[str], *given: Any) -> None:
        cwd, env = given[4:6]
        pipes = given[9:15]
        theirs = [pipe if pipe >= 0 else number for number, pipe in enumerate((pipes[0], *pipes[3::2]))]
        asked = {"arguments": args[1:], "env": dict(env), "cwd": str(cwd or Path.cwd())}
        with _asking:
            server, _ = _fork_server()
            # Who has lost its parent is given to the next one above that takes such children.
            _take_orphans(True)
            try:
                socket.send_fds(server, [json.dumps(asked).encode()], theirs)
                self.pid = int(server.recv(100))
            finally:
                _take_orphans(False)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


_asking = threading.Lock()


@functools.cache
def _fork_server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, str(SOURCE.parent / "tests" / "fork_server.py"), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment(),
            cwd=SOURCE.parent,
            pass_fds=[theirs.fileno()],
        )
    return ours, server


def _take_orphans(yes: bool) -> None:
    ctypes.CDLL(None).prctl(36, int(yes), 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


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
