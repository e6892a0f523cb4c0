"""The queue for the write lock of a catalog in SQLite: first in, first out.

SQLite's lock has no queue. Waiting writers poll for it, and a process that writes in a loop nearly always
gets the lock again before they poll. So Strandline's writers form a queue, in a file beside the catalog:

1. A writer takes a ticket: it locks the byte of the first number above all tickets so far.
2. It waits until the last served ticket and all later tickets before its own are unlocked.
3. It begins its transaction, and records its ticket as served.
4. After the transaction it unlocks its byte. When a process dies, the system unlocks its bytes.

The queue only decides which writer is next; SQLite's lock excludes the other writers. So writing is safe
without the queue as well. Where the queue cannot be used, writers poll. A writer also stops waiting for
tickets that make no progress:

- A lower ticket is locked, but has not been served for ``STALLED_SECONDS``: its process was stopped. The next
  writer goes first, and the stopped process takes a new ticket when it continues.
- The served ticket stays locked for ``STUCK_SECONDS``: the waiting writers poll for SQLite's lock, in case it
  is free.

The locks belong to an open file description (Linux), not to a process, so threads of one process wait for
each other in the same way. Each turn opens the file again, so a forked process shares no lock with its
parent.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Callable, Iterator

from strandline.cancellation import check
from strandline.clock import Clock

if sys.platform == "linux":
    import fcntl

STALLED_SECONDS = 0.2
"""Later writers overtake a ticket that has not been served for this time."""
STUCK_SECONDS = 2.0
"""When a transaction has taken this long, the waiting writers poll for SQLite's lock."""
POLL_SECONDS = 0.0003
"""Shortest pause between two checks of the first waiting writer. The n-th writer pauses n times as long."""
_RARELY = 20
"""Upper limit of n in ``POLL_SECONDS``."""
_GROWTH = 0.1
"""Share of the time without progress that is added to the pause between two checks."""

_NUMBERS = struct.Struct("<QQ")
"""The content of the file: the ticket served last, and the last ticket taken."""
_LOCK = struct.Struct("hhqqixxxx")
"""``struct flock`` of Linux: type, whence, start, length, pid."""
_BEHIND = 1 << 20
"""Offset of the byte of ticket 0."""
_HIGHEST = 1 << 60
"""Upper limit of ticket numbers. A file with a higher number was not written by this code."""


def queue_of(file: str) -> str:
    """Return the name of the queue file of a catalog file."""
    return f"{file}-queue"


class WriteQueue:
    """The queue of one catalog file. Safe to use from any thread."""

    def __init__(self, file: str, clock: Clock, wait_seconds: float) -> None:
        self._file = os.path.realpath(file)
        self._clock = clock
        self._wait_seconds = wait_seconds

    @contextlib.contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Wait for this writer's turn, which ends with the ``with`` block.

        Yields a function that the caller calls when its transaction has begun.
        """
        ticket = self._take_ticket()
        if ticket is None:
            yield lambda: None
            return
        try:
            with contextlib.suppress(OSError):
                ticket.wait(self._clock, self._wait_seconds)
            yield ticket.serve
        finally:
            ticket.release()

    def _take_ticket(self) -> Ticket | None:
        """Return a new ticket. None: the platform is not Linux, or the file of the queue cannot be used."""
        if sys.platform != "linux":
            return None
        with contextlib.suppress(OSError):
            descriptor = self._open()
            try:
                return Ticket(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        return None

    def _open(self) -> int:
        name, flags = queue_of(self._file), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags)
        except FileNotFoundError:
            # Copy the rights of the catalog's file, so that all users who may write it can use the queue.
            return os.open(name, flags | os.O_CREAT, os.stat(self._file).st_mode & 0o666)


class Ticket:
    """A place in the queue.

    Args:
        descriptor: the queue file, opened for this ticket only.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.number = self._take()

    def _take(self) -> int:
        while True:
            number = 1 + max(self._read())
            while not self._try_lock(number):
                number += 1
            served, last = self._read()
            if number > last:
                os.pwrite(self._descriptor, number.to_bytes(8, "little"), 8)
            if number > served:
                return number
            self._unlock(number)  # Later tickets were served between reading the file and locking the byte.

    def wait(self, clock: Clock, seconds: float) -> None:
        """Wait until no lower ticket is locked, or until the queue has made no progress for some time.

        Args:
            seconds: upper limit of the time without progress.
        """
        state, since = (-1, False), 0.0
        while True:
            served, _ = self._read()
            if served >= self.number:  # This process was stopped, and other writers overtook it.
                self._unlock(self.number)
                self.number = self._take()
                continue
            if not self._is_locked(served, self.number - served):
                return
            ahead = self.number - served
            is_busy = self._is_locked(served, 1)
            now = clock.now()
            if state != (served, is_busy):
                state, since = (served, is_busy), now
            # Writers further ahead stop waiting earlier, so that the order is kept.
            patience = STUCK_SECONDS if is_busy else STALLED_SECONDS * (1 + min(ahead, _RARELY) / _RARELY)
            if now - since >= min(patience, seconds):
                return
            check()
            clock.sleep(POLL_SECONDS * min(ahead, _RARELY) + (now - since) * _GROWTH)

    def serve(self) -> None:
        """Record that the transaction of this ticket has begun."""
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, self.number.to_bytes(8, "little"), 0)

    def release(self) -> None:
        # Closing is not enough to unlock: a forked process may have inherited the descriptor.
        with contextlib.suppress(OSError):
            self._unlock(self.number)
        os.close(self._descriptor)

    def _read(self) -> tuple[int, int]:
        found = os.pread(self._descriptor, _NUMBERS.size, 0).ljust(_NUMBERS.size, b"\0")
        served, last = _NUMBERS.unpack(found)
        return (served, last) if max(served, last) < _HIGHEST else (0, 0)

    def _try_lock(self, number: int) -> bool:
        try:
            self._lock(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, number)
        except BlockingIOError:
            return False
        return True

    def _unlock(self, number: int) -> None:
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, number)

    def _is_locked(self, first: int, count: int) -> bool:
        """Return whether other writers hold one of these tickets."""
        found = self._lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, first, count)
        return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)

    def _lock(self, command: int, kind: int, first: int, count: int = 1) -> bytes:
        wanted = _LOCK.pack(kind, os.SEEK_SET, _BEHIND + first, count, 0)
        return fcntl.fcntl(self._descriptor, command, wanted)
