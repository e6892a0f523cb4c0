"""Opening, creating and migrating a catalog; transactions; waiting for other writers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, Inspector, create_engine, inspect, select, text, update

from strandline.catalog import engines, migrate, sqltables
from strandline.catalog.connection import HEAD, Catalog
from strandline.catalog.engines import LONGEST_PATH, sqlite_url
from strandline.catalog.transactions import current_step
from strandline.catalog.warehouse import Warehouse
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, StrandlineError, Unavailable
from tests.processes import READY, run_at_once


@pytest.fixture
def url(new_catalog_url: str | None, tmp_path: Path) -> str:
    """The URL of a database without a catalog: these tests create and migrate catalogs."""
    return new_catalog_url or f"sqlite:///{tmp_path / 'catalog.sqlite'}"


def test_opening_twice_finds_the_same_warehouse(open_catalog: Callable[..., Catalog], url: str) -> None:
    first = open_catalog()
    assert open_catalog().open() == first.open()
    with first.read() as conn:
        assert current_step(conn) == 0
        assert conn.execute(select(sqltables.paths.c.type)).scalars().all() == ["directory"]


def test_a_missing_catalog_is_not_created_if_it_is_not_admitted(url: str, tmp_path: Path) -> None:
    def refuse(found: Warehouse | None) -> None:
        assert found is None
        raise PreconditionFailed("not here")

    catalog = Catalog(url)
    try:
        with pytest.raises(PreconditionFailed, match="not here"):
            catalog.open(admit=refuse)
        assert list(tmp_path.iterdir()) == []
        assert catalog.database.is_sqlite or inspect(catalog.database.engine).get_table_names() == []
    finally:
        catalog.close()


def test_who_comes_second_to_a_new_catalog_is_asked_whether_it_is_the_right_one(
    url: str, open_catalog: Callable[..., Catalog]
) -> None:
    asked: list[Warehouse | None] = []

    def admit(found: Warehouse | None) -> None:
        asked.append(found)
        if len(asked) == 1:
            open_catalog()

    second = Catalog(url)
    assert asked == []
    found = second.open("/here", admit)
    second.close()
    assert found.location is None
    assert asked == [None, found]


def test_migrations_make_what_the_schema_says(catalog: Catalog) -> None:
    """Compare the tables that migrations create with those of ``catalog.sqltables``."""
    with catalog.database.engine.connect() as conn:
        conn.exec_driver_sql(
            "ATTACH ':memory:' AS other" if catalog.database.is_sqlite else "CREATE SCHEMA other"
        )
        other = conn.execution_options(schema_translate_map={None: "other"})
        sqltables.metadata.create_all(other, checkfirst=False)
        found = inspect(conn)
        assert set(found.get_table_names()) - {"alembic_version"} == set(sqltables.metadata.tables)
        for name in sqltables.metadata.tables:
            assert _shape(found, name, None) == _shape(found, name, "other"), name
        conn.rollback()


def _shape(found: Inspector, table: str, namespace: str | None) -> dict[str, object]:
    return {
        "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table, namespace)],
        "key": found.get_pk_constraint(table, namespace)["constrained_columns"],
        "indexes": sorted(
            (i["name"], i["column_names"], i["unique"]) for i in found.get_indexes(table, namespace)
        ),
        "unique": sorted(u["column_names"] for u in found.get_unique_constraints(table, namespace)),
        "foreign": sorted(
            (f["constrained_columns"], f["referred_table"]) for f in found.get_foreign_keys(table, namespace)
        ),
    }


def test_the_last_migration_is_the_one_this_version_works_with(catalog: Catalog) -> None:
    with catalog.read() as conn:
        assert conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == HEAD
    assert migrate.knows(HEAD)


def test_an_older_catalog_is_migrated_and_keeps_its_rows(url: str) -> None:
    old = Catalog(url)
    _upgrade(old.database.engine, "0001")
    with old.database.engine.begin() as conn:
        conn.execute(text("INSERT INTO warehouse (id, created) VALUES ('old', 1.0)"))
        conn.execute(text("INSERT INTO clock (id, step, generation) VALUES (1, 41, 7)"))
    assert "operations" not in inspect(old.database.engine).get_table_names()
    old.close()
    new = Catalog(url)
    assert new.open("/here") == Warehouse("old", None)
    with new.read() as conn:
        assert current_step(conn) == 41
        assert conn.execute(select(sqltables.operations)).all() == []
        assert conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == HEAD
    new.close()


def _upgrade(engine: Engine, revision: str) -> None:
    from alembic import command

    with engine.connect().execution_options(strandline_write=True) as conn, conn.begin():
        config = migrate._config()
        config.attributes["connection"] = conn
        command.upgrade(config, revision)


def test_a_newer_catalog_is_refused_and_left_alone(catalog: Catalog, url: str) -> None:
    with catalog.write() as tx:
        tx.conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    newer = Catalog(url)
    with pytest.raises(PreconditionFailed, match="newer version") as refused:
        newer.open()
    assert refused.value.code == "PRECONDITION_FAILED"
    assert "pip install" in refused.value.hint
    newer.close()
    with catalog.read() as conn:
        assert conn.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"


CREATE = f"""
import sys
from strandline.catalog.connection import Catalog
catalog = Catalog(sys.argv[1])
{READY}
print(catalog.open().id)
catalog.close()
"""


@pytest.mark.slow
def test_processes_that_create_a_catalog_at_once_agree_on_it(url: str) -> None:
    answers = {answer.strip() for answer in run_at_once(CREATE, [[url]] * 4)}
    assert len(answers) == 1
    catalog = Catalog(url)
    assert {catalog.open().id} == answers
    with catalog.read() as conn:
        for table in (sqltables.warehouse, sqltables.clock, sqltables.paths):
            assert len(conn.execute(select(table)).all()) == 1
    catalog.close()


COUNT = f"""
import sys, threading
from strandline.catalog.transactions import current_step
from strandline.catalog.connection import Catalog
catalog = Catalog(sys.argv[1])
catalog.open()
{READY}
steps = []
def work():
    for _ in range(int(sys.argv[2])):
        with catalog.write() as tx:
            step = tx.step
        with catalog.read() as conn:
            assert current_step(conn) >= step
        steps.append(step)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(*steps)
"""


@pytest.mark.slow
def test_many_writers_are_never_told_that_the_database_is_locked(catalog: Catalog, url: str) -> None:
    """Four threads in each of three processes take steps as fast as they can; each step is used once."""
    each = 20
    answers = run_at_once(COUNT, [[url, str(each)]] * 3)
    steps = sorted(int(step) for answer in answers for step in answer.split())
    assert steps == list(range(1, 3 * 4 * each + 1))
    with catalog.read() as conn:
        assert current_step(conn) == len(steps)


def test_a_writer_waits_for_the_one_before_it(catalog: Catalog, open_catalog: Callable[..., Catalog]) -> None:
    other = open_catalog()
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        inside.wait()
        with other.write() as tx:
            order.append("second")
            assert tx.step == 2

    thread = threading.Thread(target=second)
    thread.start()
    with catalog.write() as tx:
        inside.set()
        assert tx.step == 1
        thread.join(timeout=0.3)
        order.append("first")
    thread.join(timeout=300)
    assert order == ["first", "second"]


def test_a_write_that_fails_leaves_nothing(catalog: Catalog) -> None:
    with contextlib.suppress(ZeroDivisionError), catalog.write() as tx:
        assert tx.step
        raise ZeroDivisionError
    with catalog.read() as conn:
        assert current_step(conn) == 0


def test_a_read_is_a_snapshot_and_keeps_nothing(
    catalog: Catalog, open_catalog: Callable[..., Catalog]
) -> None:
    other = open_catalog()
    with catalog.read() as conn:
        before = current_step(conn)
        with other.write() as writer:
            assert writer.step == before + 1
        assert current_step(conn) == before
    with catalog.read() as conn:
        assert current_step(conn) == before + 1
        conn.execute(update(sqltables.clock).values(step=99))
    with catalog.read() as conn:
        assert current_step(conn) == before + 1


def test_a_catalog_that_stays_busy_is_unavailable_in_the_end(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "catalog.sqlite")
    holder = Catalog(url)
    holder.open()
    waiting = Catalog(url, wait_seconds=0.0)
    waiting.open()
    with waiting.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=10")  # of the one connection in the pool
    with holder.write(), pytest.raises(Unavailable, match="busy"), waiting.write():
        pass
    holder.close()
    waiting.close()


@pytest.mark.parametrize(
    "bad",
    [
        "mysql://h/d",
        "nonsense",
        "",
        "://",
        "postgresql+nosuch://h/d",
        "postgresql://\ud800/d",
        "sqlite:///a\0b",
    ],
)
def test_a_url_that_is_no_catalog_is_refused(bad: str) -> None:
    with pytest.raises(InvalidArgument):
        Catalog(bad).open()


def test_a_server_that_is_not_there_is_unavailable() -> None:
    catalog = Catalog("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(Unavailable, match="cannot be used"):
        catalog.open()
    catalog.close()


def test_a_file_that_is_no_database_is_corrupted(tmp_path: Path) -> None:
    file = tmp_path / "catalog.sqlite"
    file.write_bytes(b"this is not a database" * 100)
    catalog = Catalog(sqlite_url(file))
    with pytest.raises(Corrupted, match="not a SQLite database"):
        catalog.open()
    catalog.close()


@pytest.mark.parametrize("length", [LONGEST_PATH, LONGEST_PATH + 1])
def test_a_path_that_is_too_long_for_sqlite_is_refused(tmp_path: Path, length: int) -> None:
    folder = tmp_path
    while length - len(str(folder)) > 250:
        folder = folder / ("d" * 99)
    folder.mkdir(parents=True)
    file = folder / ("c" * (length - len(str(folder)) - 1))
    if length > LONGEST_PATH:
        with pytest.raises(InvalidArgument, match="SQLite can take"):
            Catalog(sqlite_url(file))
        return
    catalog = Catalog(sqlite_url(file))
    catalog.open()
    catalog.close()


@pytest.mark.parametrize("name", ["a b", "it's", "100%", "[x]", "ünï", "a?b#c", "a`b"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    catalog = Catalog(sqlite_url(folder / "catalog.sqlite"))
    catalog.open()
    catalog.close()
    assert (folder / "catalog.sqlite").exists()


def test_a_commit_is_announced_after_it_is_durable(catalog: Catalog, url: str) -> None:
    seen: list[int] = []
    outside = create_engine(url)

    def look() -> None:
        with outside.connect() as conn:
            seen.append(conn.execute(text("SELECT step FROM clock")).scalar_one())

    catalog.after_commit = look
    for expected in itertools.islice(itertools.count(1), 3):
        with catalog.write() as tx:
            assert tx.step == expected
    outside.dispose()
    assert seen == [1, 2, 3]


def test_what_the_database_refuses_is_an_error_of_ours(catalog: Catalog) -> None:
    with pytest.raises(StrandlineError, match="catalog refused"), catalog.write() as tx:
        tx.conn.execute(text("INSERT INTO clock (id, step, generation) VALUES (1, 1, 1)"))


def test_a_writer_that_stops_in_a_transaction_does_not_stop_the_others(emptied_database: str) -> None:
    """PostgreSQL cuts it off; its transaction is rolled back, and it gets an error."""
    stopped, other = Catalog(emptied_database, wait_seconds=2.0), Catalog(emptied_database)
    stopped.open()
    try:
        with pytest.raises(Unavailable, match="cannot be used any more"), stopped.write() as tx:
            assert tx.step == 1
            with other.write() as waiting:  # it waits for the first one, which is idle
                assert waiting.step == 1
            tx.announce([])
        with other.read() as conn:
            assert current_step(conn) == 1
    finally:
        stopped.close()
        other.close()


@pytest.mark.slow
def test_only_a_connection_that_may_be_dead_is_tried_first(
    emptied_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, other = Catalog(emptied_database), Catalog(emptied_database)
    catalog.open()
    pings: list[object] = []
    dialect = catalog.database.engine.dialect
    ping = dialect.do_ping
    monkeypatch.setattr(dialect, "do_ping", lambda connection: pings.append(connection) or ping(connection))

    def use() -> int:
        """Return the process of the server, and how often it was tried."""
        with catalog.write() as tx:
            assert tx.step
        with catalog.read() as conn:
            return int(conn.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

    assert use() == use()
    assert pings == []
    served = use()
    with other.read() as conn:
        conn.exec_driver_sql(f"SELECT pg_terminate_backend({served}, 60000)")
    assert use() != served
    assert len(pings) == 1
    monkeypatch.setattr(engines, "PING_SECONDS", 0.0)
    use()
    assert len(pings) == 3, "one for each transaction"
    catalog.close()
    other.close()
