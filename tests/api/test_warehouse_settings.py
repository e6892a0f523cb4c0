"""Settings stored in the warehouse: all processes collect garbage with the same values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError
from tests.catalogs import ManualClock

HOUR, DAY = 3600.0, 24 * 3600.0
Open = Callable[..., Database]


class Process:
    """Connections to one warehouse as processes, with a common clock, on both catalogs."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.clock = ManualClock(1_800_000_000.0)
        self._place: dict[str, Any] = {"warehouse": folder, "catalog": url, "clock": self.clock}

    @contextmanager
    def open(self, **settings: Any) -> Iterator[Database]:
        with strandline.connect(**self._place, settings=Settings(**settings)) as db:
            yield db


@pytest.fixture
def process(tmp_path: Path, catalog_url: str | None) -> Process:
    return Process(tmp_path / "wh", catalog_url)


def stored(db: Database) -> dict[str, tuple[float, str]]:
    return {name: (value, source) for name, value, source in db.sql("SHOW WAREHOUSE").rows()}


TABLE = "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'a')"


def test_history_that_an_application_asks_for_survives_a_cron_job_with_the_default(process: Process) -> None:
    process.open().__enter__().close()  # A process with the defaults has created it.
    with process.open(history_seconds=30 * DAY, inline_rows=0) as application:
        application.sql(TABLE)
        step = application.step
        application.sql("UPSERT INTO t (k, v) VALUES (1, 'b')")
        application.compact("/t")
    process.clock.sleep(3 * DAY)
    with process.open() as cron:
        cron.maintain()
    with process.open(history_seconds=30 * DAY) as application:
        assert application.sql(f"SELECT v FROM t VERSION AS OF {step}").rows() == [("a",)]
    process.clock.sleep(40 * DAY)
    with process.open() as cron:
        cron.maintain()
        with pytest.raises(StrandlineError, match="no longer kept"):
            cron.sql(f"SELECT v FROM t VERSION AS OF {step}")


def test_a_process_may_only_ask_for_more(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    with process.open(history_seconds=2 * DAY) as creator:
        assert stored(creator)["HISTORY_SECONDS"] == (2 * DAY, "warehouse")
        assert stored(creator)["BIN_SECONDS"] == (DAY, "default")
        with process.open(history_seconds=HOUR) as less:
            assert less._runtime.settings.history_seconds == 2 * DAY
            assert stored(less) == stored(creator)
        with caplog.at_level(logging.INFO), process.open(history_seconds=3 * DAY, bin_seconds=HOUR) as more:
            assert stored(creator) == stored(more)
            assert stored(creator)["HISTORY_SECONDS"] == (3 * DAY, "warehouse")
            assert stored(creator)["BIN_SECONDS"] == (DAY, "default")
    assert "history_seconds of the warehouse is now 259200" in caplog.text


def test_only_a_statement_lowers_a_value(process: Process) -> None:
    with process.open(history_seconds=2 * DAY) as db:
        db.sql(
            "ALTER WAREHOUSE SET (HISTORY_SECONDS = 60, bin_seconds = '0'), RESET (VERSION_HISTORY_SECONDS)"
        )
        assert stored(db)["HISTORY_SECONDS"] == (60.0, "warehouse")
        assert stored(db)["BIN_SECONDS"] == (0.0, "warehouse")
        with process.open() as other:
            assert other._runtime.settings.history_seconds == 60.0
        db.sql("ALTER WAREHOUSE RESET (HISTORY_SECONDS, BIN_SECONDS)")
        assert {source for _, source in stored(db).values()} == {"default"}
        # An explicit default counts as a request.
        db.sql("ALTER WAREHOUSE SET (HISTORY_SECONDS = 60)")
        with process.open(history_seconds=DAY):
            assert stored(db)["HISTORY_SECONDS"] == (DAY, "warehouse")


def test_a_lower_grace_period_holds_when_the_former_one_has_passed(process: Process) -> None:
    with process.open(grace_seconds=600.0, history_seconds=0, inline_rows=0) as reader:
        reader.sql(TABLE)
        reader.sql("UPSERT INTO t (k, v) VALUES (1, 'b')")
        reader.compact("/t")
        with process.open() as admin:
            admin.sql("ALTER WAREHOUSE SET (GRACE_SECONDS = 1)")
            process.clock.sleep(10)
            assert admin.maintain().removed_files == 0, "a reader may still have these files in its plan"
            assert stored(admin)["GRACE_SECONDS"] == (600.0, "warehouse")
            process.clock.sleep(600)
            assert stored(admin)["GRACE_SECONDS"] == (1.0, "warehouse")
            reader._runtime.session.refresh()
            assert reader._runtime.session.grace == 1.0
            assert admin.maintain().removed_files == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALTER WAREHOUSE SET (HISTRY_SECONDS = 1)", "no setting HISTRY_SECONDS.*HISTORY_SECONDS"),
        ("ALTER WAREHOUSE SET (WORKERS = 1)", "of each process"),
        ("ALTER WAREHOUSE RESET (SPARK)", "of each process"),
        ("ALTER WAREHOUSE SET (BIN_SECONDS = -1)", "cannot be -1"),
        ("ALTER WAREHOUSE SET (BIN_SECONDS = 'long')", "cannot be 'long'"),
        ("ALTER WAREHOUSE SET (BIN_SECONDS = TRUE)", "cannot be True"),
        ("ALTER WAREHOUSE SET (BIN_SECONDS = 'nan')", "cannot be nan"),
        ("ALTER WAREHOUSE SET (BIN_SECONDS = 1), RESET (bin_seconds)", "named twice"),
        ("ALTER WAREHOUSE ADD (BIN_SECONDS = 1)", "expected SET or RESET"),
        ("BEGIN; ALTER WAREHOUSE SET (BIN_SECONDS = 1)", "part of a transaction"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path: Path, text: str, message: str) -> None:
    with strandline.connect(tmp_path / "wh") as db:
        before = stored(db)
        with pytest.raises(StrandlineError, match=f"(?s){message}"):
            db.sql(text)
        if db._transactions.current is not None:
            db._transactions.rollback()
        assert stored(db) == before
