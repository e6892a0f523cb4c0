"""The history of versions: collected from all processes, and deleted when it is old."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import event, func, select

from strandline.catalog import history, paths, sqltables
from strandline.catalog.cache import Loader, SchemeCache
from strandline.catalog.connection import Catalog
from strandline.catalog.history import VersionEvent
from strandline.catalog.sessions import Session
from strandline.catalog.versions import VersionRegistry, Wish
from strandline.errors import PathNotFound, SchemaMismatch, UnderOperation
from tests.catalog.conftest import Clock
from tests.catalog.test_cache import alter, touch_index
from tests.catalogs import BY_N, BY_V, create, drop, planned, poll
from tests.engines import STREAM, claim, copy_request, engine_of, execute, stream_on

IMPL = "/orders/by_v/indexImplTable"


def story(catalog: Catalog, path: str = "/orders") -> list[VersionEvent]:
    with catalog.read() as conn:
        return history.story(conn, path)


def told(events: list[VersionEvent]) -> list[tuple[str, int | None]]:
    return [(e.event, e.version) for e in events]


def session_of(catalog: Catalog) -> Session:
    return Session(catalog, 60.0, 60.0)


def test_a_story_has_times_steps_operation_writer_and_siblings(catalog: Catalog, clock: Clock) -> None:
    create(catalog, "/orders", [BY_V, BY_N])
    clock.sleep(5)
    alter(catalog, "/orders")
    clock.sleep(5)
    request = copy_request(("/orders", "/copy"), stream=STREAM)
    operation = execute(engine_of(catalog), "copy", request)
    made, altered, claimed, published = story(catalog)
    assert told([made, altered, claimed, published]) == [
        ("published", 1),
        ("published", 2),
        ("claimed", 3),
        ("published", 3),
    ]
    assert [e.time - made.time for e in (altered, claimed, published)] == [5, 10, 10]
    assert made.step is not None
    assert altered.step is not None
    assert published.step is not None
    assert made.step < altered.step < published.step
    assert [e.operation_id for e in (made, altered)] == [None, None]
    assert {(e.operation_id, e.operation) for e in (claimed, published)} == {(operation.id, "copy")}
    assert (claimed.writer, claimed.siblings) == (1, (2, 3, 4, 5)), "of its indexes, which move it, too"
    assert claimed.details == "from version 2; published"
    (_, _, impl) = story(catalog, IMPL)[-3:]
    assert (impl.version, impl.operation_id) == (2, operation.id)


def test_paths_of_one_name_have_one_story_also_when_the_last_is_gone(catalog: Catalog) -> None:
    first = create(catalog, "/orders").id
    alter(catalog, "/orders")
    drop(catalog, "/orders")
    second = create(catalog, "/orders").id
    drop(catalog, "/orders")
    events = story(catalog)
    assert told(events) == [
        ("published", 1),
        ("published", 2),
        ("dropped", 2),
        ("published", 1),
        ("dropped", 1),
    ]
    assert [e.path_id for e in events] == [first] * 3 + [second] * 2


def test_who_never_was_has_no_story(catalog: Catalog) -> None:
    with pytest.raises(PathNotFound, match="there is no path /orders"):
        story(catalog)


def test_a_claim_is_open_and_then_published_or_given_up(catalog: Catalog) -> None:
    create(catalog, "/orders")
    engine = engine_of(catalog)
    operation_id = engine.start("create stream", stream_on("/orders"))
    while story(catalog)[-1].event != "claimed":
        assert engine.step(operation_id)
    assert story(catalog)[-1].details == "from version 1; open"
    engine.cancel(operation_id)
    assert [(e.event, e.details) for e in story(catalog)[1:]] == [("claimed", "from version 1; given up")]


def test_a_refused_claim_is_told_with_both_operations(catalog: Catalog) -> None:
    create(catalog, "/orders")
    engine = engine_of(catalog)
    with catalog.write() as tx:
        claim(tx, "somebody", 1, paths.require(tx.conn, "/orders"))
    with pytest.raises(UnderOperation):
        execute(engine, "create stream", stream_on("/orders"))
    session_of(catalog).tell()
    refused = story(catalog)[-1]
    assert (refused.event, refused.operation, refused.details) == (
        "conflict",
        "create stream",
        "operation somebody has it",
    )


def test_a_mismatch_that_one_process_saw_is_told_to_another_with_both_versions(
    catalog: Catalog, open_catalog: Callable[..., Catalog], clock: Clock
) -> None:
    create(catalog, "/orders", [BY_V])
    other = open_catalog(clock)
    with other.write() as tx:
        paths.set_version(tx, paths.require(tx.conn, IMPL).id, 2)
    with pytest.raises(SchemaMismatch):
        planned(Loader(SchemeCache(other), clock, retries=1), ["/orders"])
    assert told(story(catalog)) == [("published", 1)], "who reads writes nothing"
    session_of(other).tell()
    assert [(e.event, e.details) for e in story(catalog)[1:]] == [
        ("mismatch", f"{IMPL}: expected 1, got 2"),
        ("mismatch", f"{IMPL}: expected 1, got 2"),
        ("failed", f"{IMPL}: expected 1, got 2"),
    ]


def test_how_late_caches_hear_of_a_publication_is_told(
    catalog: Catalog, open_catalog: Callable[..., Catalog], clock: Clock
) -> None:
    create(catalog, "/orders")
    caches = [SchemeCache(catalog), SchemeCache(open_catalog(clock))]
    for cache in caches:
        poll(cache)
    alter(catalog, "/orders")
    for cache, delay in zip(caches, (1, 2), strict=True):
        clock.sleep(delay)
        poll(cache)
        session_of(cache.catalog).tell()
    assert story(catalog)[-1].details == "came to 2 caches, to the last after 3.000 s"


def test_what_was_told_is_not_told_again_and_what_was_not_stays(catalog: Catalog) -> None:
    create(catalog, "/orders")
    cache = SchemeCache(catalog)
    poll(cache)
    alter(catalog, "/orders")
    poll(cache)
    session = session_of(catalog)

    def fail() -> None:
        raise ZeroDivisionError

    with (
        catalog.database.engine.connect()
    ):  # the catalog cannot be written: nothing is reported, nothing is lost
        event.listen(catalog.database.engine, "commit", lambda _: fail(), once=True)
        with pytest.raises(ZeroDivisionError):
            session.tell()
    for _ in range(2):
        session.tell()
    assert story(catalog)[-1].details == "came to 1 cache, to the last after 0.000 s"
    assert not any(catalog.ledger.news())


def test_what_is_old_is_forgotten_and_the_rest_is_not(catalog: Catalog, clock: Clock) -> None:
    create(catalog, "/orders", [BY_V])
    touch_index(catalog)
    session_of(catalog).tell()
    clock.sleep(100)
    alter(catalog, "/orders")
    with catalog.write() as tx:
        history.forget(tx, history_seconds=60)
    assert told(story(catalog)) == [("published", 3)]
    clock.sleep(100)
    with catalog.write() as tx:
        history.forget(tx, history_seconds=60)
    assert story(catalog) == [], "it is there, and nothing is known of how it came to be"
    with catalog.read() as conn:
        for table in (sqltables.board, sqltables.claimed, sqltables.noticed):
            assert conn.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_a_cache_that_has_missed_what_was_forgotten_begins_again(catalog: Catalog, clock: Clock) -> None:
    create(catalog, "/orders", [BY_V])
    loader = Loader(SchemeCache(catalog), clock)
    planned(loader, ["/orders"])
    touch_index(catalog, "a")
    clock.sleep(100)
    with catalog.write() as tx:
        history.forget(tx, history_seconds=60)
    assert planned(loader, ["/orders"])[0].table.version == 2, "all is forgotten"
    touch_index(catalog, "b")
    clock.sleep(100)
    create(catalog, "/young")
    with catalog.write() as tx:
        history.forget(tx, history_seconds=60)
    assert planned(loader, ["/orders"])[0].table.version == 3, "all but the last is forgotten"


def test_however_many_paths_are_claimed_it_takes_as_many_statements(catalog: Catalog) -> None:
    for number in range(30):
        create(catalog, f"/t{number}", ())
    counts = []
    for operation_id, upto in (("few", 3), ("many", 30)):
        statements: list[str] = []

        def note(conn: object, cursor: object, statement: str, *_: object) -> None:
            statements.append(statement)  # noqa: B023

        with catalog.write() as tx:
            wishes = [Wish(n, paths.require(tx.conn, f"/t{n}")) for n in range(upto)]
            event.listen(catalog.database.engine, "before_cursor_execute", note)
            VersionRegistry().claim_all(tx, operation_id, wishes)
            event.remove(catalog.database.engine, "before_cursor_execute", note)
            VersionRegistry().rollback(tx, operation_id)
        counts.append(len(statements))
    assert counts == [4, 4], "who holds them, who came; the claims, and who came now"
