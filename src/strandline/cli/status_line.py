"""A status line on the terminal for commands and statements that take long. It is erased at the end."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

from strandline.cancellation import Phase, Work, watch_main_thread
from strandline.cli.values import duration, size

PATIENCE_SECONDS = 0.9
"""Time to wait before the status line is shown."""
AGAIN_SECONDS = 0.2


@contextlib.contextmanager
def on_terminal(*, silent: bool) -> Iterator[None]:
    """Show a status line during the block, if stderr is a terminal and not ``silent``."""
    if silent or not sys.stderr.isatty():
        yield
        return
    with watch_main_thread(Line()):
        yield


class Left:
    """The displayed remaining time, which never rises.

    While new estimates are far above the displayed time, no time is displayed.
    """

    def __init__(self) -> None:
        self._least: float | None = None

    def smooth(self, guess: float | None) -> float | None:
        """Return the remaining time to display for a new estimate; None: display no time."""
        if guess is None:
            return None
        if self._least is not None and guess > 2 * self._least + 5:
            return None
        self._least = guess if self._least is None else min(self._least, guess)
        return self._least


class Line:
    """One line on stderr about the work of the main thread.

    It is erased before the work ends, so that no other output mixes with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._work: Work | None = None
        self._is_shown = False
        self._left: tuple[Phase | None, Left] = (None, Left())
        self._thread: threading.Thread | None = None

    def begin(self, work: Work) -> None:
        self._work = work
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="strandline-line", daemon=True)
            self._thread.start()
        self._begun.set()

    def end(self, work: Work) -> None:
        self._begun.clear()
        with self._lock:
            self._work = None
            if self._is_shown:
                self._write("")
                self._is_shown = False

    def _run(self) -> None:
        while True:
            self._begun.wait()
            work = self._work
            if work is not None and time.monotonic() - work.began >= PATIENCE_SECONDS:
                with contextlib.suppress(Exception):  # A display problem must not fail the command.
                    self._show(work)
            time.sleep(AGAIN_SECONDS)

    def _show(self, work: Work) -> None:
        # Counting may ask another process, so do it outside the lock: the main thread must not wait.
        tasks = (0, 0) if work.counts is None else work.counts()
        text = self._text(work, tasks)
        with self._lock:
            if self._work is work:
                self._write(text[: shutil.get_terminal_size().columns - 1])
                self._is_shown = True

    def _text(self, work: Work, tasks: tuple[int, int]) -> str:
        phase = next(iter(work.phases[-1:]), None)
        if work.is_ending:
            return "interrupted, waiting for it to end ..."
        if phase is not self._left[0]:
            self._left = (phase, Left())
        now = time.monotonic()
        said = [f"{'working' if phase is None else phase.name} ..."]
        if phase is not None and phase.total:
            said += format_progress(phase.done, phase.total, phase.unit)
            said += pace(phase.done, phase.total, now - phase.began, phase.unit, self._left[1])
        elif phase is not None and phase.done:
            said.append(f"{phase.done:,.0f} {phase.unit}")
            said += pace(phase.done, phase.done, now - phase.began, phase.unit, Left())[:1]
        elif tasks[1]:
            said += format_progress(*tasks, "tasks")
            said += pace(*tasks, now - (work.began if phase is None else phase.began), "", self._left[1])
        return ", ".join([*said, f"{duration(now - work.began)} so far"])

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


def format_progress(done: float, total: float, unit: str) -> list[str]:
    """Return the percentage and the amount that is done, as texts."""
    amounts = (size(done), size(total)) if unit == "bytes" else (f"{done:,.0f}", f"{total:,.0f} {unit}")
    return [f"{min(100, 100 * done / total):.0f} %", " of ".join(amounts)]


def pace(done: float, total: float, seconds: float, unit: str, left: Left) -> list[str]:
    """Return the speed and the remaining time as texts, as far as they are known."""
    if not done or seconds <= 0:
        return []
    rate = f"{size(done / seconds)}/s" if unit == "bytes" else f"{done / seconds:,.0f} {unit}/s"
    remaining = left.smooth(seconds * max(0.0, total - done) / done)
    return [*([rate] if unit else []), *([] if remaining is None else [f"{duration(remaining)} left"])]
