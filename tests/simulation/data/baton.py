"""Who runs: of several threads only the one that holds the baton does, and the seed says where it goes. Time
moves with it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tests.simulation.data.model import Violation
from tests.world import Death, ManualClock

TICK_SECONDS, FAST_TICK_SECONDS = 0.5, 3.0
"""How much time passes from one point to the next, usually and while somebody sleeps for long: so that he
wakes up before all is over."""
STAYS, ASIDE = 0.8, 0.04
"""How often a process goes on at a point, and how often it is put aside for a while although others would let
it go on."""
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
    """Passed on at every point; the order depends on the random numbers alone. ``clock`` is the time that all
    runners share."""

    def __init__(self, random_: random.Random, trace: Callable[[str], None]) -> None:
        self.random = random_
        self.clock = ManualClock(0.0)
        self.trace = lambda line: trace(f"{self.clock.now():9.3f} {line}")
        self.turns = 0
        self.runners: list[Runner] = []
        self.holder: Runner | None = None
        self.victim: Runner | None = None
        """The one who is held at a point of what he does, until others have done something about it."""
        self.violation: Violation | None = None
        self._over = threading.Event()

    def start(self, runner: Runner, run: Callable[[], None]) -> None:
        """Let a thread wait for its first turn."""

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
        """Until all runners are done; raises what one of them found to be wrong."""
        self._over.clear()
        self._next().turn.release()
        self._over.wait()
        self.holder = None
        if self.violation is not None:
            raise self.violation

    def point(self, runner: Runner, what: str) -> None:
        """A place where others may come in between, and the runner's life may have ended."""
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
        """Let a runner wait until it is released, or for very long."""
        self.victim = runner
        runner.aside_until = self.turns + HELD_TURNS

    def release(self, runner: Runner) -> None:
        if self.victim is runner:
            self.victim = None
            runner.aside_until = 0

    def _somebody_sleeps(self) -> bool:
        return any(r.asleep_until > self.clock.now() + FAST_TICK_SECONDS for r in self.runners)

    def stop(self, violation: Violation) -> None:
        """Something is wrong: everybody dies at the point where they are."""
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
        """The seed's choice among those who are neither asleep nor put aside. If there is none, turns and
        time move on until there is."""
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
