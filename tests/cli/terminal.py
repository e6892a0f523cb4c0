"""Run a program on a pseudo-terminal, read its output and send keys."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl

CTRL_C, CTRL_D, TAB, ENTER = "\x03", "\x04", "\t", "\r"

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")


class Terminal:
    """A context manager that starts the program and kills it at the end, by its process id."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self._command = list(command)
        # Unlike a terminal emulator, the tests do not answer cursor position requests.
        self._env = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "NO_COLOR": "1", **env}
        self.text = ""

    def __enter__(self) -> Terminal:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # A background job inherits an ignored SIGINT; a program on a terminal does not.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvpe(self._command[0], self._command, self._env)
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        os.waitpid(self._pid, 0)

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def expect(self, text: str, seconds: float = 300.0) -> str:
        """Wait until the program has written ``text``; return the output since the last ``expect``."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{text!r} did not come; the screen has:\n{self.text}")
        before, _, self.text = self.text.partition(text)
        return before

    def exit_code(self, seconds: float = 300.0) -> int:
        """Wait for the end of the program; return its exit code."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read(0.1)
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it did not end; the screen has:\n{self.text}")

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.text += _ESCAPES.sub("", data.decode("utf-8", "replace"))
        return bool(data)


STRANDLINE = [sys.executable, "-m", "strandline.cli"]
