"""The lease of a repository: one writer at a time, for a limited time.

A lease is an object ``leases/NUMBER.json``. It is created only if no object has that name, and never changed.
The object with the highest number is the current lease: to take, renew or release the lease, a process writes
the next number. So if several processes try to take it, at most one succeeds, and a process that was
suspended finds a higher number than its own. A lease expires by itself and never has to be removed. An
unreadable lease is ignored.

The writer of a lease sets its end by its own clock, and stops writing at this time. Other processes compare
the end with their own clocks. They wait ``ALLOWANCE_SECONDS`` longer, because the clocks may differ.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from itertools import count, islice
from math import inf

from strandline import records
from strandline.clock import Clock
from strandline.errors import Corrupted, InvalidArgument, StrandlineError, UnderOperation
from strandline.records import Newer, Record
from strandline.storage.files import Files

__all__ = ["ALLOWANCE_SECONDS", "LONGEST_SECONDS", "Fenced", "RepositoryLease", "take"]

ALLOWANCE_SECONDS = 30.0
"""Maximum difference between the clocks of two machines."""
LONGEST_SECONDS = 3600.0
"""Maximum duration of a lease.

If the end of a lease is farther in the future, its writer had a wrong clock. Such a lease is ignored, because
it might never expire.
"""
MOST_LEFT = 0.9
"""``keep`` does not renew a lease that has more than this fraction of its time left."""
TRIES = 20
FOLDER = "leases"
_NAME = re.compile(r"leases/([1-9][0-9]*)\.json(\..+)?", re.ASCII)
"""A suffix marks a temporary file left by a crashed writer."""


@dataclass(frozen=True, kw_only=True)
class Claim(Record):
    """The content of a lease object. Later formats may add fields, but these keep their meaning.

    Attributes:
        owner: Name of the lease's owner. It is the same in each process that resumes the owner's work.
        token: Random id of the call of ``take`` that took the lease, and so of its process.
        earlier_until: End of the lease of the same owner that this lease has replaced. Until this time, the
            process that took the replaced lease may still use it. 0: no lease was replaced.
    """

    owner: str
    token: str
    host: str
    pid: int
    purpose: str
    since: float
    until: float
    earlier_until: float
    released: bool

    @property
    def end(self) -> float:
        """Time until which other owners cannot take the lease, by the clock of its writer."""
        return max(0.0 if self.released else self.until, self.earlier_until)

    def is_held(self, now: float) -> bool:
        """Return True if other owners cannot take the lease at the time ``now``."""
        odd = now + LONGEST_SECONDS + ALLOWANCE_SECONDS
        return now < self.end + ALLOWANCE_SECONDS and self.end <= odd


class Fenced(UnderOperation):
    """The lease has expired, or another process has it. The caller must not write any more."""


def take(files: Files, clock: Clock, owner: str, purpose: str, seconds: float) -> RepositoryLease:
    """Take the lease on a repository. UNDER_OPERATION if another owner has it.

    If the same owner already has a lease, perhaps in another process, this call replaces it at once.
    """
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InvalidArgument(
            f"a lease cannot be taken for {seconds:g} seconds", f"Take it for {LONGEST_SECONDS:g} at most."
        )
    tried = 0
    for _ in range(TRIES):
        # A listing may omit an empty object. But a number that this call failed to create is in use.
        number, claim = _last(files, tried)
        now, earlier = clock.now(), 0.0
        if claim is not None and claim.is_held(now):
            if claim.owner != owner:
                raise _repository_busy(files, claim, now)
            # The earlier process may have passed ``check`` and be suspended before its write. So even after a
            # release, other owners wait for the end of the earlier lease.
            earlier = claim.end
        claim = replace(_new_claim(owner, purpose, now, seconds), earlier_until=earlier)
        if _write_lease(files, number + 1, claim):
            return RepositoryLease(files, clock, claim, seconds)
        tried = number + 1
    raise UnderOperation(
        f"other processes keep taking the lease on the repository at {files.location}", "Try again later."
    )


class RepositoryLease:
    """The right to write to a repository while ``check`` passes. Thread-safe."""

    def __init__(self, files: Files, clock: Clock, claim: Claim, seconds: float) -> None:
        self._files, self._clock, self._claim, self._seconds = files, clock, claim, seconds
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise Fenced unless this process holds the lease now. Call it before each exclusive action."""
        with self._lock:
            _, claim = self._look()
            # Read the clock last: until the end of the lease, no other process can have taken it.
            if self._clock.now() >= claim.until:
                raise self._fence(f"expired at {_time(claim.until)}")

    def renew(self) -> None:
        """Extend the lease to its full duration from now on.

        Raise Fenced if another process has taken it. An expired lease can be renewed if no process has taken
        it.
        """
        self._renew(inf)

    def keep(self) -> None:
        """Renew the lease if enough of its time has passed (``MOST_LEFT``). A renewal costs a few writes."""
        self._renew(self._seconds * MOST_LEFT)

    def _renew(self, least: float) -> None:
        """Extend the lease to its full duration if at most ``least`` seconds are left."""
        with self._lock:
            number, claim = self._look()
            now = self._clock.now()
            if claim.until - now <= least:
                self._write(number, replace(claim, until=now + self._seconds))

    def release(self) -> None:
        """Release the lease, so that other owners can take it at once.

        An error is ignored: the lease expires by itself.
        """
        with self._lock, suppress(StrandlineError):
            number, claim = self._look()
            self._write(number, replace(claim, until=self._clock.now(), released=True))

    @contextmanager
    def renew_in_background(self) -> Iterator[RepositoryLease]:
        """Renew the lease in a thread after each half of its duration, while the block runs.

        The lease's clock must advance by itself. If the lease is lost, ``check`` reports it.
        """
        stop = threading.Event()

        def run() -> None:
            pause = half = self._seconds / 2
            while not stop.wait(pause):
                try:
                    self.renew()
                    pause = half
                except Fenced:
                    return
                except StrandlineError:
                    pause = self._seconds / 20  # There is time for further attempts.

        thread = threading.Thread(target=run, name="strandline-lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def _look(self) -> tuple[int, Claim]:
        """Return the number and content of the current lease. Raise Fenced unless this object wrote it.

        The token identifies the lease even if the response to its write was lost.
        """
        number, claim = _last(self._files)
        if claim is None:
            raise self._fence("cannot be read")
        if claim.token != self._claim.token:
            raise self._fence(f"was taken by another: {_who(claim)}")
        if claim.released:
            raise self._fence(f"was released at {_time(claim.until)}")
        return number, claim

    def _write(self, number: int, claim: Claim) -> None:
        for following in islice(count(number + 1), TRIES):
            if _write_lease(self._files, following, claim):
                return
            # The number is in use. Check that this process still has the lease. If so, the number belongs to
            # an empty object that the listing has omitted, and the next number is tried.
            self._look()
        raise self._fence(f"cannot be written: there are objects after {_name(number)}")

    def _fence(self, what: str) -> Fenced:
        return Fenced(
            f"the lease on the repository at {self._files.location} {what}",
            "Take it again when it is free, and check what other processes have written since.",
        )


def _name(number: int) -> str:
    return f"{FOLDER}/{number}.json"


def _new_claim(owner: str, purpose: str, now: float, seconds: float) -> Claim:
    return Claim(
        owner=owner,
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=os.getpid(),
        purpose=purpose,
        since=now,
        until=now + seconds,
        earlier_until=0.0,
        released=False,
    )


def _last(files: Files, at_least: int = 0) -> tuple[int, Claim | None]:
    """Return the highest number of a lease object, and the lease in it. None: it is missing or unreadable.

    Args:
        at_least: A number that is known to be in use, even if the listing omits its object.
    """
    found = (_NAME.fullmatch(name) for name in files.names(FOLDER))
    number = max((int(match[1]) for match in found if match and not match[2]), default=0)
    number = max(number, at_least)
    data = files.find(_name(number)) if number else None
    return number, None if data is None else _read(data)


def _write_lease(files: Files, number: int, claim: Claim) -> bool:
    """Write a lease object, and return True if it is the current one now.

    The lease is read back, because the response to the write can be wrong: if the response to a first attempt
    was lost, the repeated write reports that the object already exists.
    """
    files.write_if_absent(_name(number), records.to_text(claim).encode())
    if _last(files) != (number, claim):
        return False
    with suppress(StrandlineError):  # A bucket may not allow deletes.
        for name in list(files.names(FOLDER)):
            if (found := _NAME.fullmatch(name)) and int(found[1]) < number:
                files.remove(name)
    return True


def _read(data: bytes) -> Claim | None:
    try:
        text = data.decode()
        try:
            return _printable(records.from_text(Claim, text, "a lease"))
        except Newer:
            known = {field.name for field in fields(Claim)}
            shown = {
                name: value for name, value in records.to_plain(text, "a lease").items() if name in known
            }
            return _printable(records.from_text(Claim, json.dumps(shown), "a lease"))
    except (Corrupted, UnicodeDecodeError):
        return None


def _printable(claim: Claim) -> Claim | None:
    """Return the claim if all its text fields are printable, else None.

    Strandline writes only printable text, so any other claim was not written by Strandline.
    """
    texts = (claim.owner, claim.token, claim.host, claim.purpose)
    return claim if all(map(str.isprintable, texts)) else None


def _repository_busy(files: Files, claim: Claim, now: float) -> UnderOperation:
    left = claim.end + ALLOWANCE_SECONDS - now
    return UnderOperation(
        f"the repository at {files.location} is being written to: {_who(claim)}",
        f"Wait until that is done. If its process is gone, the lease ends by itself in {left:.0f} seconds at "
        "the latest; nothing has to be removed.",
    )


def _who(claim: Claim) -> str:
    return (
        f"process {claim.pid} on {claim.host} has the lease for {claim.purpose} ({claim.owner}), since "
        f"{_time(claim.since)} and until {_time(claim.end)}"
    )


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "an invalid time"
