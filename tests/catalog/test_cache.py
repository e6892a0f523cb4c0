"""The cache follows the board, even if publications arrive late or in another order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.catalog import definitions, paths, publication_log
from strandline.catalog.cache import SchemeCache, Unit
from strandline.catalog.connection import Catalog
from strandline.catalog.publication_log import Publication
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import Announcement
from strandline.clock import SystemClock
from strandline.errors import PathNotFound, UnderOperation
from strandline.metrics import Metrics
from tests.catalogs import BY_V, counted, create, drop, poll
from tests.engines import engine_of, execute, stream_on


class Held:
    """A delivery that keeps publications until a test releases them."""

    def __init__(self) -> None:
        self.waiting: list[Publication] = []
        self.released: list[Publication] = []

    def __call__(self, new: list[Publication]) -> list[Publication]:
        self.waiting += new
        now, self.released = self.released, []
        return now

    def release(self, *paths_: str) -> None:
        self.released += [p for p in self.waiting if not paths_ or p.path in paths_]
        self.waiting = [p for p in self.waiting if p not in self.released]


def unit(cache: SchemeCache, path: str) -> Unit:
    """Return a table from the cache; the cache loads it if needed."""
    with cache.looking() as look:
        return cache.unit(look, path)


def alter(catalog: Catalog, path: str) -> None:
    with catalog.write() as tx:
        definitions.alter(tx, TableInfo.of(paths.require(tx.conn, path)))


def touch_index(catalog: Catalog, name: str = "s") -> None:
    """Change the versions of the implementation table, its index and its table."""
    execute(
        engine_of(catalog),
        "create stream",
        stream_on("/orders/by_v/indexImplTable", name),
    )


def test_a_description_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    create(catalog, "/orders", [BY_V])
    cache = SchemeCache(catalog)
    first = unit(cache, "/orders")
    monkeypatch.setattr(paths, "require", lambda *_: pytest.fail("it is known already"))
    assert unit(cache, "/orders") == first
    assert [i.path for i in first.impls if i is not None] == ["/orders/by_v/indexImplTable"]


def test_a_publication_is_seen_by_the_next_look(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    cache = SchemeCache(catalog)
    assert unit(cache, "/orders").table.version == 1
    alter(catalog, "/orders")
    assert unit(cache, "/orders").table.version == 2


def test_a_look_that_is_older_than_the_news_sees_what_it_may(catalog: Catalog) -> None:
    """One thread still has an older snapshot when another thread has seen newer publications."""
    create(catalog, "/orders", [BY_V])
    cache = SchemeCache(catalog)
    with cache.looking() as old:
        writer = threading.Thread(target=lambda: (alter(catalog, "/orders"), poll(cache)))
        writer.start()
        writer.join()
        assert cache.unit(old, "/orders").table.version == 1
    assert unit(cache, "/orders").table.version == 2, "what an old snapshot says is not remembered"


def test_one_generation_is_seen_whole(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    cache = SchemeCache(catalog)
    unit(cache, "/orders")
    touch_index(catalog)
    poll(cache)
    found = unit(cache, "/orders")
    assert [
        found.table.version,
        found.table.indexes[0].version,
        found.impls[0] and found.impls[0].version,
    ] == [
        2,
        2,
        2,
    ]


def test_a_path_that_was_dropped_and_made_again_is_another_one(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    held = Held()
    cache = SchemeCache(catalog, delivery=held)
    first = unit(cache, "/orders").table
    drop(catalog, "/orders")
    assert unit(cache, "/orders").table == first, "the news is on its way"
    create(catalog, "/orders")
    poll(cache)
    held.waiting.reverse()
    held.release()
    poll(cache)
    assert unit(cache, "/orders").table.id > first.id
    drop(catalog, "/orders")
    poll(cache)
    held.release()
    poll(cache)
    with pytest.raises(PathNotFound):
        unit(cache, "/orders")


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_delivery_ends_with_the_last_version(catalog: Catalog, seed: int) -> None:
    random_ = random.Random(seed)
    create(catalog, "/orders", [BY_V])
    held = Held()
    cache = SchemeCache(catalog, delivery=held)
    for number in range(3):
        unit(cache, "/orders")
        touch_index(catalog, f"s{number}")
        poll(cache)
        for news in random_.sample(held.waiting, random_.randint(0, len(held.waiting))):
            held.released += [news] * random_.randint(1, 2)
            held.waiting.remove(news)
    random_.shuffle(held.waiting)
    held.release()
    poll(cache)
    assert unit(cache, "/orders") == unit(SchemeCache(catalog), "/orders")
    assert unit(cache, "/orders").table.version == 4


def test_news_of_what_is_known_already_change_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    cache = SchemeCache(catalog, delivery=held)
    poll(cache)
    create(catalog, "/orders", [BY_V])
    known = unit(cache, "/orders")
    held.release()
    poll(cache)
    monkeypatch.setattr(paths, "require", lambda *_: pytest.fail("it is known already"))
    assert unit(cache, "/orders") == known


def test_who_takes_a_name_is_known_by_it_before_the_news_that_another_has_gone(catalog: Catalog) -> None:
    create(catalog, "/orders", ())
    held = Held()
    cache = SchemeCache(catalog, delivery=held)
    first = unit(cache, "/orders").table
    drop(catalog, "/orders")
    create(catalog, "/orders", ())
    poll(cache)
    held.waiting = [news for news in held.waiting if not news.dropped]
    held.release()
    poll(cache)
    assert unit(cache, "/orders").table.id > first.id


@pytest.mark.parametrize("is_late", [False, True])
def test_a_table_is_not_found_by_the_name_that_it_had(catalog: Catalog, is_late: bool) -> None:
    create(catalog, "/orders", ())
    cache = SchemeCache(catalog, delivery=Held()) if is_late else SchemeCache(catalog)
    table = unit(cache, "/orders").table
    with catalog.write() as tx:
        definitions.rename(tx, paths.require(tx.conn, "/orders"), "/sales")
    assert unit(cache, "/sales").table.id == table.id
    with pytest.raises(PathNotFound):
        unit(cache, "/orders")


def test_states_are_not_remembered(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    engine = engine_of(catalog)
    operation_id = engine.start("create stream", stream_on("/orders"))
    cache = SchemeCache(catalog)
    known = unit(cache, "/orders").table
    assert (known.state, known.operation_id) == ("ready", None)
    engine.cancel(operation_id)
    with catalog.write() as tx:
        paths.set_state(tx, [known.id], "incoming restore", "op")
    with pytest.raises(UnderOperation, match="restore op is writing to it"):
        unit(SchemeCache(catalog), "/orders")


def test_a_full_cache_starts_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.catalog.cache._MAX_TABLES", 2)
    cache = SchemeCache(catalog)
    sizes = []
    for number in range(8):
        create(catalog, f"/t{number}", ())
        unit(cache, f"/t{number}")
        sizes.append((len(cache._tables), len(cache._ids)))
    assert sizes == [(1, 1), (2, 2), (3, 3), (1, 1), (2, 2), (3, 3), (1, 1), (2, 2)]


def test_delays_of_delivery_are_measured(catalog: Catalog, clock: SystemClock) -> None:
    metrics = Metrics()
    cache = SchemeCache(catalog, metrics=metrics)
    poll(cache)
    create(catalog, "/orders", ())
    clock.sleep(2.0)
    poll(cache)
    assert counted(metrics, "delivery_delay_seconds_sum") == pytest.approx(2.0)


@pytest.mark.slow
def test_threads_share_a_cache(open_catalog: Callable[..., Catalog]) -> None:
    catalog = open_catalog(SystemClock())
    create(catalog, "/orders", [BY_V])
    cache = SchemeCache(catalog)
    wrong: list[str] = []
    stop = threading.Event()

    def read() -> None:
        last = 0
        while not stop.is_set():
            found = unit(cache, "/orders")
            if found.impls[0] is None or found.table.indexes[0].version != found.impls[0].version:
                wrong.append(f"{found}")
            if found.table.version < last:
                wrong.append(f"version {found.table.version} after {last}")
            last = found.table.version

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(8):
        touch_index(catalog, f"s{number}")
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    poll(cache)
    assert unit(cache, "/orders").table.version == 9


def test_each_durable_publication_is_told_once(catalog: Catalog) -> None:
    told: list[Announcement] = []
    catalog.on_publication = lambda *announcement: told.append(Announcement(*announcement))
    create(catalog, "/orders", ())
    failing = TableInfo.of(paths_of(catalog, "/orders"))

    def fail() -> None:
        with catalog.write() as tx:
            definitions.alter(tx, failing)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    alter(catalog, "/orders")
    operation_id = execute(engine_of(catalog), "create stream", stream_on("/orders")).id
    assert [(a.operation_id, a.versions.get("/orders")) for a in told] == [
        (None, 1),
        (None, 2),
        (operation_id, 3),
    ]


def paths_of(catalog: Catalog, path: str) -> paths.Path:
    with catalog.read() as conn:
        return paths.require(conn, path)


def test_publications_are_read_in_order(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    touch_index(catalog)
    with catalog.read() as conn:
        seen = publication_log.since(conn, 0)
        assert [p.generation for p in seen] == sorted(p.generation for p in seen)
        assert publication_log.since(conn, 1) == [p for p in seen if p.generation > 1]
        assert replace(seen[0], time=0.0) == Publication(
            generation=1, path_id=seen[0].path_id, path="/orders", version=1, dropped=False, time=0.0
        )
