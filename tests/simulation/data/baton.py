"""The scheduler: only the thread that holds the baton runs, and the seed passes the baton on.

Time moves with it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tests.catalogs import Death, ManualClock
from tests.simulation.data.model import Violation

TICK_SECONDS, FAST_TICK_SECONDS = 0.5, 3.0
"""Time from one point to the next: usually, and while a process sleeps long, so that it wakes up in time."""
STAYS, ASIDE = 0.8, 0.04
"""Probabilities that a process continues at a point, and that it is suspended for a while instead."""
ASIDE_TURNS = (2, 5, 15, 50)
HELD_TURNS = 1000
MAX_TURNS = 20_000


class Runner:
    """A thread of the simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.aside_until = 0
        self.asleep_until = 0.0
        self.turn = threading.Semaphore(0)


class Baton:
    """Decides at every point which runner continues, by random numbers only.

    ``clock`` is the time that all runners share.
    """

    def __init__(self, random_: random.Random, trace: Callable[[str], None]) -> None:
        self.random = random_
        self.clock = ManualClock(0.0)
        self.trace = lambda line: trace(f"{self.clock.now():9.3f} {line}")
        self.turns = 0
        self.runners: list[Runner] = []
        self.holder: Runner | None = None
        self.victim: Runner | None = None
        """The runner that is held at a point until others have interfered."""
        self.violation: Violation | None = None
        self._over = threading.Event()

    def start(self, runner: Runner, run: Callable[[], None]) -> None:
        """Start a thread that waits for its first turn."""

        def wait_and_run() -> None:
            runner.turn.acquire()
            self.holder = runner
            try:
                if not runner.dead:
                    run()
            except Death:
                pass
            except Violation as violation:
                self.stop(violation)
            except BaseException as error:
                self.stop(Violation(f"{runner.name}: {type(error).__name__}: {error}"))
            finally:
                self._leave(runner)

        self.runners.append(runner)
        threading.Thread(target=wait_and_run, name=runner.name, daemon=True).start()

    def run(self) -> None:
        """Run until all runners are done; raise the violation that one of them found."""
        self._over.clear()
        self._next().turn.release()
        self._over.wait()
        self.holder = None
        if self.violation is not None:
            raise self.violation

    def point(self, runner: Runner, what: str) -> None:
        """A point where other runners may run, or where this one finds that it is dead."""
        if runner.dead:
            raise Death
        assert runner is self.holder, f"{runner.name} runs without the baton"
        self.turns += 1
        if self.turns > MAX_TURNS:
            self.stop(Violation("this never comes to an end"))
            raise Death
        self.clock.sleep(FAST_TICK_SECONDS if self._somebody_sleeps() else TICK_SECONDS)
        if runner is not self.victim and self.random.random() < ASIDE:
            runner.aside_until = self.turns + self.random.choice(ASIDE_TURNS)
        following = self._next(runner)
        if following is not runner:
            self.trace(f"{runner.name} waits before {what}")
            following.turn.release()
            runner.turn.acquire()
            self.holder = runner
            if runner.dead:
                raise Death
            self.trace(f"{runner.name} goes on with {what}")
        self.release(runner)

    def hold(self, runner: Runner) -> None:
        """Hold a runner until it is released, or for very long."""
        self.victim = runner
        runner.aside_until = self.turns + HELD_TURNS

    def release(self, runner: Runner) -> None:
        if self.victim is runner:
            self.victim = None
            runner.aside_until = 0

    def _somebody_sleeps(self) -> bool:
        return any(r.asleep_until > self.clock.now() + FAST_TICK_SECONDS for r in self.runners)

    def stop(self, violation: Violation) -> None:
        """Record a violation, and let all runners die at their next point."""
        self.violation = self.violation or violation
        for runner in self.runners:
            runner.dead = True

    def _leave(self, runner: Runner) -> None:
        self.runners.remove(runner)
        self.release(runner)
        if self.runners:
            self._next().turn.release()
        else:
            self._over.set()

    def _next(self, runner: Runner | None = None) -> Runner:
        """Return the seed's choice among the runners that are neither asleep nor suspended.

        If there are none, turns and time are advanced.
        """
        ready = [
            r
            for r in self.runners
            if r.dead or (r.aside_until <= self.turns and r.asleep_until <= self.clock.now())
        ]
        if not ready:
            first = min(
                self.runners,
                key=lambda r: (
                    r is self.victim,
                    r.asleep_until > self.clock.now(),
                    r.aside_until,
                    r.asleep_until,
                ),
            )
            self.turns = max(self.turns, first.aside_until)
            self.clock.sleep(max(0.0, first.asleep_until - self.clock.now()))
            return first
        if runner in ready and self.random.random() < STAYS:
            assert runner is not None
            return runner
        return self.random.choice(ready)
