"""Errors are reported before Spark is started or a server is awaited."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline
from strandline import Database
from strandline.catalog import engines
from strandline.errors import InvalidArgument, PathNotFound, StrandlineError, SyntaxFault, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE t (k Uint64 NOT NULL, v Int64, d Timestamp, PRIMARY KEY (k));
CREATE TABLE u (k Uint64 NOT NULL, w Utf8, PRIMARY KEY (k))
"""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with strandline.connect(tmp_path_factory.mktemp("quick") / "wh") as opened:
        opened.sql(TABLES)
        yield opened


REFUSED: dict[str, type[StrandlineError]] = {
    "SELECT * FROM t JOIN nope n ON n.k = t.k": PathNotFound,
    "SELECT count(*), max(v) FROM nope GROUP BY k": PathNotFound,
    "SELECT rank() OVER (ORDER BY k) FROM t, (SELECT * FROM nope) x": PathNotFound,
    "WITH x AS (SELECT * FROM nope) SELECT * FROM x": PathNotFound,
    "SELECT t.k FROM t VIEW by_v JOIN u ON u.k = t.k": PathNotFound,
    "SELECT k + 1 FROM t IN BACKUP nope": PathNotFound,
    "EXPLAIN SELECT max(v) FROM nope": PathNotFound,
    "UPSERT INTO nope SELECT k, max(v) FROM t GROUP BY k": PathNotFound,
    "UPSERT INTO t SELECT k, max(v) AS v FROM nope GROUP BY k": PathNotFound,
    "UPDATE nope SET v = v + 1": PathNotFound,
    "DELETE FROM nope WHERE abs(v) = 1": PathNotFound,
    "ALTER TABLE nope ADD INDEX i GLOBAL SYNC ON (v)": PathNotFound,
    "BACKUP nope": PathNotFound,
    "RESTORE nope INTO r": PathNotFound,
    "VERIFY nope": PathNotFound,
    "SELECT nope + 1 FROM t": InvalidArgument,
    "SELECT max(nope) FROM t GROUP BY k": InvalidArgument,
    "SELECT k FROM t WHERE nope > 1": InvalidArgument,
    "SELECT t.w FROM t JOIN u ON t.k = u.k": InvalidArgument,
    "SELECT k, rank() OVER (PARTITION BY nope ORDER BY v) AS r FROM t": InvalidArgument,
    "UPSERT INTO u SELECT k, nope AS w FROM t WHERE v > 0": InvalidArgument,
    "ALTER TABLE t ADD INDEX i GLOBAL SYNC ON (nope)": InvalidArgument,
    "SELECT max(v FROM t": SyntaxFault,
    "SELECT k FROM t GROUP k": SyntaxFault,
    "SELECT k,, v FROM t JOIN u ON t.k = u.k": SyntaxFault,
    "SELECT max(v), FROM t": SyntaxFault,
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_told_without_spark(db: Database, text: str) -> None:
    with pytest.raises(REFUSED[text]) as told:
        db.sql(text)
    assert told.value.hint
    assert db._runtime.store._spark is None
    assert db._runtime.store._start is None


def test_the_hint_has_the_name_that_was_meant(db: Database) -> None:
    with pytest.raises(InvalidArgument) as told:
        db.sql("SELECT t.vv, count(*) FROM t JOIN u ON t.k = u.k GROUP BY 1")
    assert (told.value.message, told.value.hint) == ("there is no column t.vv in /t, /u", "Did you mean 'v'?")


def test_a_missing_postgresql_server(tmp_path: Path) -> None:
    with (
        socket.socket() as taken
    ):  # The port is reserved: no process listens on it, and no other process can bind it.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port} failed: Connection refused") as told:
            strandline.connect(tmp_path / "wh", catalog=f"postgresql://user@127.0.0.1:{port}/db")
    assert "catalog's address" in told.value.hint


def test_a_postgresql_server_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CONNECT_SECONDS", 2)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/db"
        with pytest.raises(Unavailable, match="connection timeout expired"):
            strandline.connect(tmp_path / "wh", catalog=url)


UNDERSTOOD = (
    "SELECT k AS x, count(*) AS n FROM t GROUP BY k HAVING n > 0 ORDER BY x, n DESC",
    "SELECT current_date, T.K, user, timestampadd(HOUR, 1, d), extract(YEAR FROM d) FROM t WHERE v > 1 OR true",
    "SELECT max(v) FROM t GROUP BY ALL",
    "SELECT x.k, transform(array(1), e -> e + v) FROM t x JOIN u USING (k)",
    "SELECT named_struct('a', k).a, sum(v) OVER w FROM t WINDOW w AS (PARTITION BY k)",
    "SELECT c.id, s.k FROM range(3) c JOIN (SELECT k FROM t) s ON s.k = c.id",
    "SELECT e FROM t LATERAL VIEW explode(array(1, 2)) x AS e",
    "SELECT `k`, `t`.`v`, t.* FROM t ORDER BY `K`",
    "SELECT k + 1 AS y, y + 1 AS z FROM t",
)


def test_what_spark_understands_is_not_refused(spark: SparkSession, tmp_path: Path) -> None:
    with strandline.connect(tmp_path / "wh", spark=spark) as db:
        db.sql(TABLES)
        for text in UNDERSTOOD:
            assert db.sql(text).columns
