"""Runs a command that must not outlive the tests, however these end: ``leash.py DESCRIPTOR COMMAND...``

The descriptor is the end of a pipe whose other end only the tests have. A byte that comes out of it is a
signal for the command and all that it started; when the pipe ends, because the tests closed it or are gone,
the signal is SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(pipe: int, command: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Control-C reaches everyone; the pipe says when to end.
    child = subprocess.Popen(command, start_new_session=True)
    threading.Thread(target=lambda: os._exit(abs(child.wait())), daemon=True).start()
    while said := os.read(pipe, 1):
        os.killpg(child.pid, said[0])
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
