"""Operations in the catalog: locks against other operations, and ends that leave nothing behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import event, select

from strandline import records
from strandline.catalog import (
    bulk_paths,
    cache,
    chains,
    operations,
    paths,
    publication_log,
    sessions,
    sqltables,
    tables,
)
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.connection import Catalog
from strandline.catalog.operations import (
    DONE,
    FAILED,
    RUNNING,
    Failure,
    NewPart,
    OperationFilter,
    OperationRow,
)
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableBody
from strandline.catalog.versions import VersionRegistry
from strandline.errors import OperationNotFound, PreconditionFailed, StrandlineError, UnderOperation
from strandline.model import Digest
from strandline.records import Nothing, Record
from tests.catalogs import BY_V, SCHEMA, create, disagreements, dump, kept, leaks, write
from tests.engines import move

STATES = ["creating", "altering", "copying", "dropping", "incoming restore", "outgoing restore"]
BUSY = {
    "incoming restore": "/orders is busy: restore op is writing to it",
    "outgoing restore": "/orders is busy: restore op is reading from it",
}
STREAM = StreamBody(mode="UPDATES", format="JSON", owner=None, table_id=1, created_step=1, cursor=None)
registry = VersionRegistry()


def operation(operation_id: str = "op") -> OperationRow:
    return OperationRow(
        id=operation_id,
        kind="kind",
        state=RUNNING,
        request="what was asked for",
        body="what was planned",
        progress="no more",
        session_id="session",
        created=1.0,
    )


def test_the_catalog_finds_those_that_are_wanted(catalog: Catalog) -> None:
    kinds = ["backup", "restore", "backup", "backup"]
    with catalog.write() as tx:
        for number, kind in enumerate(kinds):
            made = replace(operation(f"op{number}"), kind=kind, created=float(number))
            operations.add(tx, made)
            operations.add_parts(tx, made.id, [NewPart("part", 1, state, "") for state in ("done", "begin")])
        operations.save(tx, "op2", state=FAILED)
    statements: list[str] = []

    def note(conn: object, cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    def found(**wanted: Any) -> list[str]:
        with catalog.read() as conn:
            listed = operations.list_operations(conn, OperationFilter(**wanted))
        assert all((each.parts_done, each.parts) == (1, 2) for each in listed)
        return [each.id for each in listed]

    assert found() == ["op0", "op1", "op2", "op3"]
    assert found(limit=2) == ["op2", "op3"]
    assert found(kind="backup", limit=2) == ["op2", "op3"]
    assert found(since=1.0, kind="backup") == ["op2", "op3"]
    assert found(state="failed") == ["op2"]
    event.listen(catalog.database.engine, "before_cursor_execute", note)
    assert found(state="running", kind="restore", since=0.5, limit=5) == ["op1"]
    event.remove(catalog.database.engine, "before_cursor_execute", note)
    (query,) = [each for each in statements if "FROM operations" in each]
    for condition in ("operations.state = ", "operations.kind = ", "operations.created >= ", "LIMIT"):
        assert condition in query
    (counted,) = [each for each in statements if "FROM parts" in each]
    assert "WHERE" in counted, "only the parts of these are counted"


def test_all_that_have_failed_are_forgotten_together(catalog: Catalog) -> None:
    with catalog.write() as tx:
        for number, state in enumerate((DONE, FAILED, RUNNING, FAILED)):
            operations.add(tx, replace(operation(f"op{number}"), state=state))
            operations.add_parts(tx, f"op{number}", [NewPart("part", 1, "begin", "")])
    with catalog.write() as tx:
        assert operations.forget_failed(tx) == 2
    with catalog.write() as tx:
        assert operations.forget_failed(tx) == 0
        left = [(each.id, each.parts) for each in operations.list_operations(tx.conn)]
        assert left == [("op0", 1), ("op2", 1)]
        assert operations.parts(tx.conn, "op1") == []


@dataclass(frozen=True, kw_only=True)
class Half(Record):
    half: bool


@pytest.fixture
def orders(catalog: Catalog) -> Catalog:
    create(catalog, "/orders", [BY_V])
    write(catalog, "/orders", 1)
    return catalog


@pytest.mark.parametrize("state", STATES)
def test_a_locked_path_lets_only_its_own_operation_through(orders: Catalog, state: str) -> None:
    with orders.write() as tx:
        operations.lock(tx, "op", [paths.require(tx.conn, "/orders")], state)
        table = paths.require(tx.conn, "/orders")
        assert (table.state, table.operation_id) == (state, "op")
        operations.lock(tx, "op", [table], "altering")
        assert paths.require(tx.conn, "/orders").state == state, "what it holds already stays as it is"
        with pytest.raises(
            UnderOperation, match=BUSY.get(state, f"/orders is busy: operation op is {state} it")
        ):
            operations.lock(tx, "other", [paths.require(tx.conn, "/orders/by_v"), table], "copying")
        assert paths.require(tx.conn, "/orders/by_v").state == "ready", "all of them or none"


def test_an_operation_comes_back_as_it_was_stored(catalog: Catalog) -> None:
    with catalog.write() as tx:
        operations.add(tx, operation())
        operations.add_parts(
            tx,
            "op",
            [NewPart("table", 0, "propose", "one thing"), NewPart("index", 1, "configure", "another")],
        )
        operations.save(tx, "op", progress=Half(half=True), state=DONE, ended=9.0, result=Nothing())
    with catalog.read() as conn:
        found = operations.get(conn, "op", counted=True)
        assert (found.request, found.body) == ("what was asked for", "what was planned")
        assert (kept(found.progress), kept(found.result)) == ({"half": True}, {})
        assert (found.state, found.ended, found.is_over, found.parts, found.parts_done) == (
            DONE,
            9.0,
            True,
            2,
            0,
        )
        assert [
            (p.id, p.kind, p.stage, p.state, p.attempt, p.body) for p in operations.parts(conn, "op")
        ] == [
            (1, "table", 0, "propose", 0, "one thing"),
            (2, "index", 1, "configure", 0, "another"),
        ]
        assert [p.id for p in operations.parts(conn, "op", "index")] == [2]
        assert operations.unfinished_operations(conn) == []
        (listed,) = operations.list_operations(conn)
        assert (listed.parts, listed.parts_done) == (2, 0)
        uncounted = operations.get(conn, "op")
        assert (uncounted.parts, uncounted.parts_done) == (0, 0)
        with pytest.raises(OperationNotFound):
            operations.get(conn, "missing")


def test_an_error_is_raised_again_as_it_was() -> None:
    told = Failure.of(PreconditionFailed("not now", "Later."))
    stored = operation()
    assert stored.failure() is None
    failure = replace(stored, error=records.to_text(told)).failure()
    assert type(failure) is PreconditionFailed
    assert (failure.message, failure.hint) == ("not now", "Later.")
    unknown = replace(told, code="FROM_THE_FUTURE")
    assert type(replace(stored, error=records.to_text(unknown)).failure()) is StrandlineError


def test_the_end_publishes_all_of_it_under_one_generation(orders: Catalog) -> None:
    with orders.write() as tx:
        table = paths.require(tx.conn, "/orders")
        gone = bulk_paths.add_one(tx, NewPath(table, "old", "stream", STREAM), step=1)
        operations.lock(tx, "op", [table], "altering")
        operations.lock(tx, "op", [gone], "dropping")
        made = bulk_paths.add_one(
            tx, NewPath(table, "new", "stream", STREAM), step=1, state="creating", operation_id="op"
        )
        move(tx, "op", 1, paths.require(tx.conn, "/orders/by_v/indexImplTable"))
        sessions.add_pin(tx, "op", 1)
        before = cache.present(tx.conn).generation
        step = tx.step
        operations.complete(tx, "op", registry)
        assert cache.present(tx.conn).generation == before + 1
        news = publication_log.since(tx.conn, before)
        assert {(p.path, p.version, p.dropped) for p in news} == {
            ("/orders", 2, False),
            ("/orders/by_v", 2, False),
            ("/orders/by_v/indexImplTable", 2, False),
            ("/orders/new", 1, False),
            ("/orders/old", 1, True),
        }
        assert paths.require(tx.conn, "/orders/new").created_step == step
        at = sqltables.descriptions.c
        described = tx.conn.execute(select(at.path_id).where(at.step == step)).scalars().all()
        assert sorted(described) == sorted(p.path_id for p in news if not p.dropped)
        assert paths.by_id(tx.conn, made.id) is not None
        assert paths.find(tx.conn, "/orders/old") is None
        tx.conn.execute(
            sqltables.holds.insert().values(owner_id=made.id, table_id=table.id, step=1, keeps_state=False)
        )
        paths.set_body(tx, made.id, replace(STREAM, cursor=1))
        assert leaks(tx.conn) == []
        assert disagreements(tx.conn) == []


def test_a_rollback_leaves_the_catalog_as_it_was(orders: Catalog) -> None:
    with orders.read() as conn:
        before = dump(conn)
    with orders.write() as tx:
        table = paths.require(tx.conn, "/orders")
        operations.lock(tx, "op", [table], "outgoing restore")
        directory = bulk_paths.make_parents(tx, ["/new/deep/t"], 1)[0]["/new/deep/t"]
        outer = paths.require(tx.conn, "/new")
        made = bulk_paths.add_one(
            tx,
            NewPath(directory, "t", "table", TableBody(schema=SCHEMA)),
            step=1,
            state="incoming restore",
            operation_id="op",
        )
        move(tx, "op", 1, paths.require(tx.conn, "/orders/by_v/indexImplTable"))
        sessions.add_pin(tx, "op", 1)
        chains.attach(tx, made.id, tx.conn.execute(select(sqltables.segments.c.id)).scalars().all(), 1)
        tables.add_states(tx, {made.id: Digest()}, 1)
        operations.roll_back(tx, "op", registry, [outer.id, directory.id])
    with orders.read() as conn:
        assert dump(conn) == before
        assert made.id not in conn.execute(select(sqltables.commits.c.table_id)).scalars().all()


def test_of_a_table_that_goes_nothing_stays(orders: Catalog) -> None:
    with orders.write() as tx:
        gone = paths.subtree(tx.conn, paths.require(tx.conn, "/orders"))
        operations.lock(tx, "op", gone, "dropping")
        operations.complete(tx, "op", registry)
        assert leaks(tx.conn) == []
        ends = tx.conn.execute(select(sqltables.chains.c.removed)).scalars().all()
        assert ends == [tx.step] * 2, "of the table and of its index"


def test_nothing_is_announced_when_nothing_changed(orders: Catalog) -> None:
    with orders.write() as tx:
        operations.lock(tx, "op", [paths.require(tx.conn, "/orders")], "copying")
        before = cache.present(tx.conn).generation
        operations.complete(tx, "op", registry)
        assert cache.present(tx.conn).generation == before
        assert leaks(tx.conn) == []


def test_forgetting_removes_the_parts_as_well(catalog: Catalog) -> None:
    with catalog.write() as tx:
        operations.add(tx, operation())
        operations.add_parts(tx, "op", [NewPart("table", 0, "propose", "")])
        operations.forget(tx, "op")
        assert tx.conn.execute(select(sqltables.parts)).all() == []
        assert operations.list_operations(tx.conn) == []
