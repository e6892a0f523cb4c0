"""Parts on several threads: at most as many as there are workers, and no thread is left at the end."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from strandline.catalog.connection import Catalog
from strandline.catalog.operations import DONE
from strandline.operations.kind import AnyRun, Part, PartPlan
from strandline.records import Nothing
from tests.catalogs import Death
from tests.engines import Work, Worked, engine_of, on_sqlite

pytestmark = on_sqlite


class Counting(Work):
    """Records the number of parts that run at the same time, and their threads."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.at_once: list[int] = []
        self.threads: list[list[threading.Thread]] = []
        self._all, self._one_too_many = threading.Barrier(most), threading.Barrier(most + 1)
        self._lock, self._now = threading.Lock(), 0

    def time_limit(self, run: AnyRun, part: Part[Nothing]) -> float | None:
        return None

    def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
        with self._lock:
            self._now += 1
            self.at_once.append(self._now)
            name = f"strandline-{run.operation.id}-worker"
            self.threads.append([t for t in threading.enumerate() if t.name == name])
        self._all.wait(300)
        with contextlib.suppress(threading.BrokenBarrierError):
            self._one_too_many.wait(0.1)  # times out, unless too many parts run
        with self._lock:
            self._now -= 1


def test_no_more_parts_at_a_time_than_there_are_workers(catalog: Catalog) -> None:
    handler = Counting(2)
    parts = [PartPlan("work", Nothing()) for _ in range(4)]
    engine = engine_of(catalog, kinds=[Worked(handler, parts)])
    assert engine.run(engine.start("worked", Nothing()), workers=2).state == DONE
    assert max(handler.at_once) == 2
    last = handler.threads[-1]
    assert (len(last), all(thread.daemon for thread in last)) == (2, True)
    for thread in last:
        thread.join(300)
        assert not thread.is_alive(), "they end with the operation"


def test_one_worker_is_the_thread_that_asks(catalog: Catalog) -> None:
    seen: list[threading.Thread] = []

    class Alone(Counting):
        def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
            seen.append(threading.current_thread())

    engine = engine_of(catalog, kinds=[Worked(Alone(1))])
    assert engine.run(engine.start("worked", Nothing())).state == DONE
    assert set(seen) == {threading.current_thread()}
    seen.clear()
    assert engine.run(engine.start("worked", Nothing()), workers=2).state == DONE
    assert threading.current_thread() not in seen


def test_what_kills_a_thread_reaches_who_waits_for_it(catalog: Catalog) -> None:
    class Dying(Counting):
        def work(self, run: AnyRun, part: Part[Nothing]) -> Any:
            raise Death

    engine = engine_of(catalog, kinds=[Worked(Dying(2))])
    with pytest.raises(Death):
        engine.run(engine.start("worked", Nothing()), workers=2)
