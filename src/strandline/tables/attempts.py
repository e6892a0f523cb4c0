"""Retry statements: how often a statement is retried, why, and which error its caller gets.

| how an attempt fails | what follows |
|---|---|
| ``Stale``: another process changed what was read | a retry; CONFLICT after ``commit_tries`` attempts |
| ``Corrupted``, and the files may have been garbage-collected | the same, in a new session |
| ``UnderOperation`` of a dead process | the operation is completed, and the statement is retried |
| Ctrl-C | the call ends without a change |
| another error of Strandline | the caller gets it |
| an error of Spark or of Python | the caller gets it as an error of Strandline |

A statement inside an open transaction is tried once: the transaction cannot be planned again, so ``Stale``
becomes CONFLICT.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from strandline.cancellation import attend_work
from strandline.catalog.conflicts import Ended, Stale
from strandline.errors import Conflict, Corrupted, Internal, StrandlineError, Unavailable, UnderOperation
from strandline.retry import tries
from strandline.runtime import Runtime
from strandline.storage import frames

if TYPE_CHECKING:
    from strandline.catalog.snapshots import Mark

T = TypeVar("T")

_LONGEST_PAUSE = 0.25
"""Maximum pause between two attempts, in seconds."""


class StatementAttempts:
    """Runs statements, with retries.

    Args:
        carry_on: completes the operation with an id if the operation's process is dead. Returns True if it
            did.
    """

    def __init__(
        self, runtime: Runtime, carry_on: Callable[[str | None], bool] = lambda operation_id: False
    ) -> None:
        self._runtime = runtime
        self._carry_on = carry_on

    @contextmanager
    def call(self) -> Iterator[None]:
        """Translate all errors in the block to Strandline's errors.

        On the main thread, the status line shows the progress of the block, and Ctrl-C interrupts it.
        """
        try:
            with attend_work():
                yield
        except (StrandlineError, GeneratorExit):
            raise
        except Stale as stale:
            raise Conflict(
                f"others changed what this transaction depends on ({stale.reason}); nothing was committed",
                "Repeat the transaction.",
            ) from None
        except Exception as error:
            if frames.is_of_spark(error):
                raise frames.translate(error) from error
            if isinstance(error, MemoryError | RecursionError):
                raise Unavailable(
                    f"the statement is too large: {type(error).__name__}", "Split it into smaller ones."
                ) from error
            raise Internal(f"an unexpected {type(error).__name__}: {error}") from error

    def run(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt``. Retry if it is Stale, or if an operation of a dead process blocks it."""
        return self.unblock(lambda: self.repeat(attempt))

    def unblock(self, act: Callable[[], T]) -> T:
        """Call ``act``. If an operation of a dead process blocks it, complete the operation and retry."""
        while True:
            try:
                return act()
            except UnderOperation as busy:
                if not self._carry_on(busy.operation_id):
                    raise

    def repeat(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt`` and retry while it raises Stale; raise CONFLICT after ``commit_tries`` calls.

        Each call of ``attempt`` must plan the statement anew.
        """
        reason = ""
        count = self._runtime.settings.commit_tries
        for _ in tries(self._runtime.clock, _pause, count=count):
            try:
                with self.once(self._runtime.moments.mark()):
                    return attempt()
            except Stale as stale:
                reason = stale.reason
                if isinstance(stale, Ended):
                    self._runtime.session.confirm()
        raise Conflict(
            f"others changed what the statement depends on {count} times in a row ({reason}); nothing was "
            "committed"
        )

    @contextmanager
    def once(self, mark: Mark) -> Iterator[None]:
        """Turn Corrupted into Stale if files may have been garbage-collected after ``mark``.

        Files that are being read are collected if the process was suspended for a long time. They are then
        missing, but not damaged.
        """
        try:
            yield
        except Corrupted:
            if not self._runtime.moments.is_lost_since(mark):
                raise
            raise Ended(0, "the files that it read were garbage-collected meanwhile") from None


def _pause(number: int) -> float:
    return random.uniform(0, min(0.002 * 2**number, _LONGEST_PAUSE))
