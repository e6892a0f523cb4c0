"""Simulation of processes that compete for the lease of a repository. A seed decides every step.

Each process runs in a thread and has its own clock. One thread at a time runs, until it next reads or changes
files or reads its clock. Then the seed decides which one continues, how much time passes, what fails and
which process dies.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from strandline.backups.repository import lease as leases
from strandline.backups.repository.lease import ALLOWANCE_SECONDS, RepositoryLease, take
from strandline.errors import StrandlineError, Unavailable
from strandline.storage.files import Files, LocalFiles
from strandline.storage.objects import ObjectFiles
from tests.catalogs import Death
from tests.quick_files import QuickFiles

SECONDS = 60.0
ACTIONS = 25


class Owners:
    """The simulated processes.

    Attributes:
        passed: How often ``check`` passed.
        wrong: The cases in which it should not have passed.
    """

    def __init__(
        self, files: LocalFiles | ObjectFiles, seed: int, *, spread: float = ALLOWANCE_SECONDS
    ) -> None:
        self.random = random.Random(seed)
        self.time = 1_000_000.0
        self.files = files
        self.passed = 0
        self.wrong: list[str] = []
        count = self.random.randint(2, 4)
        # Some run the same operation, one after the other or at the same time.
        skews = (self.random.choice((-spread, 0, spread)) / 2 for _ in range(count))
        self._all = [Actor(self, f"operation {i % 3}", skew) for i, skew in enumerate(skews)]

    def run(self) -> None:
        for actor in self._all:
            actor.start()
        actor = self._all[0]
        while going := [actor for actor in self._all if not actor.done]:
            long = self.random.random() < 0.04
            self.time += self.random.choice((10, 20, SECONDS) if long else (0, 0.1, 0.5, 2))
            # The other processes sleep meanwhile, most often between reading the lease and reading the clock.
            if actor.done or self.random.random() < (0.5 if actor.looks_at_clock else 0.1):
                actor = self.random.choice(going)
            actor.go_on(dies=self.random.random() < 0.002)

    def holds(self, actor: Actor, lease: RepositoryLease) -> None:
        """Record a wrong result at the moment when ``check`` has passed."""
        self.passed += 1
        _, claim = leases._last(self.files)
        if claim is None or (claim.token != lease._claim.token and claim.owner != actor.owner):
            self.wrong.append(f"{actor.owner} holds the lease at {self.time}, and so does {claim}")


class Actor:
    def __init__(self, world: Owners, owner: str, skew: float) -> None:
        self.world, self.owner, self.skew = world, owner, skew
        self.done = self.looks_at_clock = False
        self._turn, self._back, self._dies = threading.Semaphore(0), threading.Semaphore(0), False
        files = world.files
        self._files = (
            _ActorFiles(self, files) if isinstance(files, LocalFiles) else _ActorObjects(self, files)
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def go_on(self, *, dies: bool) -> None:
        self._dies = self._dies or dies
        self._turn.release()
        self._back.acquire()

    def pause(self) -> None:
        """Let another process run. A dead one does not continue."""
        if not self._dies:
            self._back.release()
            self._turn.acquire()
        if self._dies:
            raise Death

    def now(self) -> float:
        self.looks_at_clock = True
        self.pause()
        self.looks_at_clock = False
        return self.world.time + self.skew

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")

    def _run(self) -> None:
        self._turn.acquire()
        with suppress(Death):
            self._act()
        self.done = True
        self._back.release()

    def _act(self) -> None:
        lease: RepositoryLease | None = None
        for _ in range(ACTIONS):
            with suppress(StrandlineError):
                if lease is None:
                    lease = take(self._files, self, self.owner, "a test", SECONDS)
                    continue
                action = self.world.random.choice(
                    ("check", "check", "check", "renew", "renew", "release", "forget")
                )
                if action == "check":
                    lease.check()
                    self.world.holds(self, lease)
                elif action == "renew":
                    lease.renew()
                else:
                    if action == "release":
                        lease.release()
                    lease = None


class _Acting(Files if TYPE_CHECKING else object):
    """Every file access waits for its turn, and may fail before or after it is done."""

    _actor: Actor

    def names(self, folder: str = "") -> Iterator[str]:
        self._actor.pause()
        return iter(list(super().names(folder)))

    def find(self, name: str) -> bytes | None:
        self._actor.pause()
        return super().find(name)

    def write_if_absent(self, name: str, data: bytes) -> bool:
        chance = self._actor.world.random.random()
        if chance < 0.05:
            raise Unavailable("the request got lost")
        answer = super().write_if_absent(name, data)
        if chance < 0.10:
            raise Unavailable("the answer got lost")
        if chance < 0.15:
            return False  # The response was lost, and the request was repeated.
        return answer


class _ActorFiles(_Acting, QuickFiles):
    def __init__(self, actor: Actor, files: LocalFiles) -> None:
        super().__init__(files.root)
        self._actor = actor

    def _create(self, path: str) -> int:
        self._actor.pause()
        return super()._create(path)

    def _link(self, path: str, name: str) -> None:
        self._actor.pause()
        super()._link(path, name)

    def _unlink(self, path: str) -> None:
        self._actor.pause()
        super()._unlink(path)


class _ActorObjects(_Acting, ObjectFiles):
    def __init__(self, actor: Actor, files: ObjectFiles) -> None:
        super().__init__(files.location, files._settings)
        self._actor = actor

    def _put(self, name: str, data: bytes) -> None:
        self._actor.pause()
        super()._put(name, data)

    def _delete(self, names: list[str], *, retries: int | None = None) -> None:
        self._actor.pause()
        super()._delete(names, retries=retries)
