"""Run a command that must not outlive the tests: ``leash.py DESCRIPTOR COMMAND...``

The descriptor is the read end of a pipe from the tests. A byte from it is a signal number for the command and
its children. When the pipe is closed, or the tests have died, the signal is SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(pipe: int, command: list[str]) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ignore Ctrl-C, which all processes get: only the pipe ends the command.
    child = subprocess.Popen(command, start_new_session=True)
    threading.Thread(target=lambda: os._exit(abs(child.wait())), daemon=True).start()
    while said := os.read(pipe, 1):
        os.killpg(child.pid, said[0])
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
