"""Who may write to a repository: one at a time, for a limited time.

A lease is an object ``leases/<number>.json`` that is created only if there is none of that name. The one with
the highest number counts, and none is ever changed: whoever takes, renews or releases the lease writes the
next number. So at most one of several that want it gets it, and whoever lost it while it slept finds a higher
number than its own. A lease ends by itself, and nobody ever has to remove one: what cannot be read does not
count.

Times are those of the clocks of whoever writes and whoever reads. A holder takes its own lease for over when
the time in it has come; others wait for ``ALLOWANCE_SECONDS`` more, by which clocks may differ.
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
"""By how much the clocks of two machines may differ."""
LONGEST_SECONDS = 3600.0
"""No lease is given for longer at once. One that seems to last longer was written by a clock that is wrong,
and does not count: it might not end in anybody's lifetime."""
MOST_LEFT = 0.9
"""A lease that has so much of its time left need not be renewed."""
TRIES = 20
FOLDER = "leases"
_NAME = re.compile(r"leases/([1-9][0-9]*)\.json(\..+)?", re.ASCII)
"""With something behind it, what a process left that died while it made one."""


@dataclass(frozen=True, kw_only=True)
class Claim(Record):
    """What a lease says. ``owner``: the operation for which it was taken, whichever process carries that out;
    ``token``: by whom exactly. ``earlier_until``: until when a process that carried out the operation before
    may take it for its own, 0 if there was none. Later formats may add fields, but these keep their
    meaning."""

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
        """Until when others may not take it, by the clock of who wrote it."""
        return max(0.0 if self.released else self.until, self.earlier_until)

    def is_held(self, now: float) -> bool:
        """Return whether it may not be taken from who has it, by a clock that says ``now``."""
        odd = now + LONGEST_SECONDS + ALLOWANCE_SECONDS
        return now < self.end + ALLOWANCE_SECONDS and self.end <= odd


class Fenced(UnderOperation):
    """The lease is another's by now, or over: whoever thought to have it must not write any more."""


def take(files: Files, clock: Clock, owner: str, purpose: str, seconds: float) -> RepositoryLease:
    """Return the lease on a repository; UnderOperation if another owner has it. What the same owner had
    before, maybe in another process, becomes this one at once."""
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InvalidArgument(
            f"a lease cannot be taken for {seconds:g} seconds", f"Take it for {LONGEST_SECONDS:g} at most."
        )
    tried = 0
    for _ in range(TRIES):
        # A list may leave out what is empty, but what was there when we tried is there.
        number, claim = _last(files, tried)
        now, earlier = clock.now(), 0.0
        if claim is not None and claim.is_held(now):
            if claim.owner != owner:
                raise _taken(files, claim, now)
            # Its process may be about to hear from ``check`` that it has the lease, and be held up there
            # while we release it: so others wait as if we had not.
            earlier = claim.end
        claim = replace(_new_claim(owner, purpose, now, seconds), earlier_until=earlier)
        if _written(files, number + 1, claim):
            return RepositoryLease(files, clock, claim, seconds)
        tried = number + 1
    raise UnderOperation(
        f"others take the lease on the repository at {files.location} all the time", "Try again later."
    )


class RepositoryLease:
    """The right to write to a repository, as long as ``check`` does not say otherwise. May be used from any
    thread."""

    def __init__(self, files: Files, clock: Clock, claim: Claim, seconds: float) -> None:
        self._files, self._clock, self._claim, self._seconds = files, clock, claim, seconds
        self._lock = threading.Lock()

    def check(self) -> None:
        """Fenced unless the lease is ours now. Call this before anything that only one may do."""
        with self._lock:
            _, claim = self._look()
            # The time is asked for last: up to it nobody else may have taken what we saw to be ours.
            if self._clock.now() >= claim.until:
                raise self._fenced(f"is over since {_time(claim.until)}")

    def renew(self) -> None:
        """Let the lease last for as long from now on as when it was taken; Fenced if another has taken it
        meanwhile. One that is over can be renewed if nobody has."""
        self._renew(inf)

    def keep(self) -> None:
        """Renew it only if some of its time has gone: that takes a few writes, and who asks may have asked a
        moment ago."""
        self._renew(self._seconds * MOST_LEFT)

    def _renew(self, least: float) -> None:
        """Let it last for as long as when it was taken, if less than so many seconds are left."""
        with self._lock:
            number, claim = self._look()
            now = self._clock.now()
            if claim.until - now <= least:
                self._write(number, replace(claim, until=now + self._seconds))

    def release(self) -> None:
        """Let others take it at once. It does not matter if that fails: it ends by itself."""
        with self._lock, suppress(StrandlineError):
            number, claim = self._look()
            self._write(number, replace(claim, until=self._clock.now(), released=True))

    @contextmanager
    def kept(self) -> Iterator[RepositoryLease]:
        """Renew the lease half-way, again and again, in a thread of its own. For clocks that go by
        themselves. That it was lost is for ``check`` to say."""
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
                    pause = self._seconds / 20  # There is time to try again.

        thread = threading.Thread(target=run, name="strandline-lease", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def _look(self) -> tuple[int, Claim]:
        """Return what counts now if it is what we wrote last, whether we heard of it or not."""
        number, claim = _last(self._files)
        if claim is None:
            raise self._fenced("cannot be read any more")
        if claim.token != self._claim.token:
            raise self._fenced(f"was taken by another: {_who(claim)}")
        if claim.released:
            raise self._fenced(f"was released at {_time(claim.until)}")
        return number, claim

    def _write(self, number: int, claim: Claim) -> None:
        for following in islice(count(number + 1), TRIES):
            if _written(self._files, following, claim):
                return
            self._look()  # If it is still ours, something empty is in the way, which a list may leave out.
        raise self._fenced(f"cannot go on: there is something after {_name(number)}")

    def _fenced(self, what: str) -> Fenced:
        return Fenced(
            f"the lease on the repository at {self._files.location} {what}",
            "Take it again when it is free, and look at what others may have done since.",
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
    """Return the highest number and what it says; None if it says nothing that can be read, or if there is
    none."""
    found = (_NAME.fullmatch(name) for name in files.names(FOLDER))
    number = max((int(match[1]) for match in found if match and not match[2]), default=0)
    number = max(number, at_least)
    data = files.find(_name(number)) if number else None
    return number, None if data is None else _read(data)


def _written(files: Files, number: int, claim: Claim) -> bool:
    """Write a lease, and return whether it is the one that counts. The answer to the write does not say it,
    as an earlier one may have got lost: what lies there does."""
    files.write_if_absent(_name(number), records.to_text(claim).encode())
    if _last(files) != (number, claim):
        return False
    with suppress(StrandlineError):  # A bucket may keep what it has.
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
            shown = {name: value for name, value in records.shown(text, "a lease").items() if name in known}
            return _printable(records.from_text(Claim, json.dumps(shown), "a lease"))
    except (Corrupted, UnicodeDecodeError):
        return None


def _printable(claim: Claim) -> Claim | None:
    """Return a claim whose texts can be shown; None for another one, which nobody of ours has written."""
    texts = (claim.owner, claim.token, claim.host, claim.purpose)
    return claim if all(map(str.isprintable, texts)) else None


def _taken(files: Files, claim: Claim, now: float) -> UnderOperation:
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
        return "a time that is none"
