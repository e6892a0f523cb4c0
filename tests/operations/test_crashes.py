"""A process may die after any transaction: another one completes the operation, or undoes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.catalog.connection import Catalog
from strandline.catalog.operations import CANCELLED, DONE
from strandline.operations.streams import StreamSpec
from tests.catalogs import (
    BY_N,
    BY_V,
    LEASE_SECONDS,
    Death,
    Template,
    create,
    die_after,
    dump,
    open_catalog,
    write,
)
from tests.effort import EVERY
from tests.engines import STREAM, copy_request, drop_of, engine_of, execute, listed, resume, stream_on
from tests.operations import killed
from tests.processes import environment, run_python

COPY = copy_request(("/orders", "/copies/orders"), ("/users", "/copies/users"), stream=STREAM)
OLD = StreamSpec(name="old")
REPLACE = copy_request(
    ("/orders", "/copies/orders"),
    stream=STREAM,
    drop_streams=("/orders/old", "/orders/by_v/indexImplTable/old"),
)


def make_tables(catalog: Catalog) -> None:
    create(catalog, "/orders", [BY_V])
    create(catalog, "/users", [BY_N])
    write(catalog, "/orders", 1)
    write(catalog, "/users", 2)
    engine = engine_of(catalog)
    for table in ("/orders", "/orders/by_v/indexImplTable"):
        execute(engine, "create stream", stream_on(table, OLD))


def nobody(catalog: Catalog) -> None:
    """Let the leases of all previous processes expire."""
    catalog.after_commit = lambda: None
    catalog.clock.sleep(2 * LEASE_SECONDS)


def state(catalog: Catalog) -> dict[str, Any]:
    with catalog.read() as conn:
        return dump(conn)


REQUESTS = {
    "copy of two tables with streams": ("copy", COPY),
    "copy that replaces streams": ("copy", REPLACE),
    "stream on a table": ("create stream", stream_on("/users")),
    "stream on an implementation table": (
        "create stream",
        stream_on("/users/by_n/indexImplTable"),
    ),
    "drop of streams": ("drop streams", drop_of("/orders/old", "/orders/by_v/indexImplTable/old")),
}


def count_transactions(catalog: Catalog, act: Callable[[], object]) -> int:
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    catalog.after_commit = count
    act()
    return counted


TOGETHER = pytest.mark.parametrize("together", [1, 2, 100] if EVERY else [1, 2])
"""Maximum numbers of parts in one transaction; the result must be the same for each."""


@pytest.mark.slow
@TOGETHER
@pytest.mark.parametrize("name", REQUESTS)
def test_a_death_after_every_transaction_changes_nothing_in_the_end(
    tmp_path: Path, name: str, together: int
) -> None:
    kind, request = REQUESTS[name]
    template = Template(tmp_path, make_tables)
    alone, plain = template.fresh(), template.fresh()
    execute(engine_of(alone), kind, request)
    transactions = count_transactions(
        plain, lambda: execute(engine_of(plain, together=together), kind, request)
    )
    expected = state(plain)
    assert expected == state(alone)
    assert expected["leaks"] == expected["disagreements"] == []
    for number in range(1, transactions + 1):
        catalog = template.fresh()
        die_after(catalog, number)
        with pytest.raises(Death):
            execute(engine_of(catalog, together=together), kind, request)
        nobody(catalog)
        other = engine_of(catalog, together=together)
        resumed = resume(other)
        if number == 1:
            assert resumed == [], "only its session was there, so nothing was promised to anybody"
            execute(other, kind, request)
        elif number < transactions:
            assert [o.state for o in resumed] == [DONE]
        assert state(catalog) == expected, f"death after transaction {number} of {transactions}"
        catalog.close()


def test_the_one_who_takes_over_may_die_as_well(tmp_path: Path) -> None:
    """Each process in turn makes two transactions: one to take over, one of work."""
    template = Template(tmp_path, make_tables)
    plain = template.fresh()
    execute(engine_of(plain), "copy", REPLACE)
    catalog = template.fresh()
    die_after(catalog, 2)
    with pytest.raises(Death):
        execute(engine_of(catalog), "copy", REPLACE)
    deaths = 1
    while True:
        nobody(catalog)
        die_after(catalog, 3)  # its session, taking over the operation, one transition
        try:
            resume(engine_of(catalog))
            break
        except Death:
            deaths += 1
    assert deaths > 10
    assert state(catalog) == state(plain)


@pytest.mark.slow
@TOGETHER
@pytest.mark.parametrize("name", REQUESTS)
def test_a_cancelled_operation_is_undone_wherever_its_process_died(
    tmp_path: Path, name: str, together: int
) -> None:
    kind, request = REQUESTS[name]
    template = Template(tmp_path, make_tables)
    plain = template.fresh()
    transactions = count_transactions(
        plain, lambda: execute(engine_of(plain, together=together), kind, request)
    )
    before = state(template.fresh())
    for number in range(2, transactions):
        catalog = template.fresh()
        die_after(catalog, number)
        with pytest.raises(Death):
            execute(engine_of(catalog, together=together), kind, request)
        nobody(catalog)
        other = engine_of(catalog)
        (operation,) = [o for o in listed(other) if not o.is_over]
        assert other.cancel(operation.id).state == CANCELLED
        assert state(catalog) == before, f"death after transaction {number} of {transactions}"
        catalog.close()


def test_a_death_while_undoing(tmp_path: Path) -> None:
    template = Template(tmp_path, make_tables)
    before = state(template.fresh())
    for number in (1, 2):  # after the cancel request, and after the rollback
        catalog = template.fresh()
        engine = engine_of(catalog)
        operation_id = engine.start("copy", COPY)
        for _ in range(7):
            engine.step(operation_id)
        die_after(catalog, number)
        with pytest.raises(Death):
            engine.cancel(operation_id)
        nobody(catalog)
        other = engine_of(catalog)
        resume(other)
        assert other.get(operation_id).state == CANCELLED
        assert state(catalog) == before


@pytest.mark.parametrize("number", [2, 9, 16])
def test_kill_9_and_another_process_finishes(tmp_path: Path, catalog_url: str | None, number: int) -> None:
    url = catalog_url or f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = open_catalog(tmp_path, url)
    make_tables(catalog)
    run = run_python("-m", "tests.operations.killed", url, str(number), env=environment(killed.ROOT))
    assert run.returncode == -9, run.stderr
    engine = engine_of(catalog)
    resumed = resume(engine)  # at once: the process was on this machine, and its process id is gone
    (operation,) = [o for o in listed(engine) if o.kind == "copy"]
    assert operation.state == DONE
    assert [o.id for o in resumed] == [operation.id]

    plain = Template(tmp_path, make_tables).fresh()
    execute(engine_of(plain), "copy", killed.REQUEST)
    assert state(catalog) == state(plain)
    catalog.close()
