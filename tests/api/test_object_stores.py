"""A warehouse on an S3 server works like one in a folder, without a JVM."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text

import strandline
from strandline import Database
from strandline.errors import (
    Corrupted,
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
)
from tests.effort import EVERY, on_catalogs
from tests.processes import environment, run_python
from tests.s3 import S3, Line, cut, reset, says, unheard

pytestmark = pytest.mark.slow

FILES: dict[str, Any] = {"inline_rows": 0, "history_seconds": 0.0, "grace_seconds": 0.0}
"""Settings with which each commit writes an object, and garbage is deleted at once."""
HASTY: dict[str, Any] = {
    "storage_retries": 2,
    "storage_retry_seconds": 20.0,
    "storage_timeout_seconds": 5.0,
    "part_retry_seconds": 0.01,
}


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.new_bucket()


@pytest.fixture
def catalog(catalog_url: str | None, tmp_path: Path) -> str:
    return catalog_url or f"sqlite:///{tmp_path / 'catalog.sqlite'}"


@pytest.fixture
def db(s3: S3, bucket: str, catalog: str) -> Iterator[Database]:
    with strandline.connect(f"s3://{bucket}/w", catalog=catalog, settings=s3.settings(**FILES)) as opened:
        yield opened


def rows(db: Database, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in db.sql(query).rows())


def fill(db: Database, count: int = 50) -> None:
    db.sql(
        "CREATE TABLE t (k Int64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k),"
        " INDEX by_v GLOBAL SYNC ON (v) COVER (n)) WITH (PARTITION_AT_KEYS = (20))"
    )
    db.table("t").upsert([{"k": k, "v": f"v{k % 5}", "n": k} for k in range(count)])


def sound(db: Database) -> None:
    """Assert that all tables are intact, and that the bucket has all files of the catalog."""
    for entry in db.ls("/"):
        if entry.type == "table":
            assert db.check(entry.path).problems == []


def test_a_warehouse_lives_in_a_bucket(db: Database, s3: S3, bucket: str, catalog: str) -> None:
    fill(db)
    assert [name for name in s3.objects(bucket) if name.endswith(".parquet")]
    assert s3.objects(bucket)["w/strandline.json"]
    db.sql("UPDATE t SET v = 'new' WHERE k < 3; DELETE FROM t WHERE k = 49")
    db.sql("UPSERT INTO t (k, n) VALUES (10, -10)")
    assert rows(db, "SELECT k FROM t VIEW by_v WHERE v = 'new'") == [(0,), (1,), (2,)]
    assert rows(db, "SELECT k, v, n FROM t WHERE k = 10") == [(10, "v0", -10)]
    assert len(rows(db, "SELECT k FROM t")) == 49
    db.sql("ALTER TABLE t ADD COLUMN c Int64; ALTER TABLE t ADD INDEX by_n GLOBAL ON (n)")
    assert rows(db, "SELECT k FROM t VIEW by_n WHERE n = -10") == [(10,)]
    with db.transaction():
        db.sql("UPSERT INTO t (k, c) VALUES (1, 1)")
        db.sql("UPSERT INTO t (k, c) VALUES (2, 2)")
    sound(db)
    with strandline.connect(f"s3://{bucket}/w/", catalog=catalog, settings=s3.settings(**FILES)) as other:
        assert rows(other, "SELECT k, c FROM t WHERE k < 3") == [(0, None), (1, 1), (2, 2)]


def test_streams(db: Database) -> None:
    fill(db, 5)
    db.sql("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON')")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'one'); DELETE FROM t WHERE k = 2")
    assert [(r["k"], r["v"], r["old_v"]) for r in db.stream("/t/f").records()] == [
        (1, "one", "v1"),
        (2, None, "v2"),
    ]


@pytest.mark.parametrize("copy", [False, True], ids=["by reference", "by copy"])
def test_backups(db: Database, s3: S3, bucket: str, copy: bool) -> None:
    fill(db)
    db.sql(
        "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
    )
    db.sql("BACKUP c")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'one'), (100, 'hundred'); DELETE FROM t WHERE k = 5")
    db.sql("BACKUP c INCREMENTAL")
    before = rows(db, "SELECT * FROM t"), db.describe("/t")["digest"]
    entries = rows(db, "SELECT k FROM t VIEW by_v WHERE v = 'one'")
    assert db.verify("c") == []
    db.sql("DROP TABLE t")
    db.maintain()
    db.sql("RESTORE c WITH (MODE = 'copy', VERIFY = 'data')" if copy else "RESTORE c")
    assert (rows(db, "SELECT * FROM t"), db.describe("/t")["digest"]) == before
    assert rows(db, "SELECT k FROM t VIEW by_v WHERE v = 'one'") == entries == [(1,)]
    sound(db)


def test_the_collector_leaves_what_is_needed_and_nothing_else(db: Database, s3: S3, bucket: str) -> None:
    fill(db)
    for k in range(5):
        db.sql(f"UPSERT INTO t (k, v) VALUES ({k}, 'x')")
    s3.client.put_object(Bucket=bucket, Key="w/data/1/nobody-1.parquet", Body=b"an orphan")
    db.compact("/t")
    db.maintain()
    engine = create_engine(db._runtime.catalog.database.engine.url)
    with engine.connect() as conn:
        known = {
            f"w/{row[0]}" for row in conn.execute(text("SELECT file FROM segments WHERE file IS NOT NULL"))
        }
    engine.dispose()
    assert set(s3.objects(bucket)) == known | {"w/strandline.json"}
    sound(db)


def test_damage_is_found(db: Database, s3: S3, bucket: str) -> None:
    fill(db)
    (name, *_) = [name for name in s3.objects(bucket) if name.endswith(".parquet")]
    content = s3.client.get_object(Bucket=bucket, Key=name)["Body"].read()
    s3.client.put_object(Bucket=bucket, Key=name, Body=content[:-20] + bytes(20))
    assert {finding.kind for finding in db.check("/t").problems} == {"corrupt_file"}
    s3.client.delete_object(Bucket=bucket, Key=name)
    assert {finding.kind for finding in db.check("/t").problems} == {"missing_file"}
    with pytest.raises(Corrupted):
        rows(db, "SELECT * FROM t")


# --- the catalog ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "catalog", [None, "s3://bucket/w/catalog.sqlite", "sqlite:///s3://bucket/catalog.sqlite"]
)
def test_a_catalog_in_a_bucket_is_refused(catalog: str | None) -> None:
    with pytest.raises(PreconditionFailed, match="cannot be in an object store") as caught:
        strandline.connect("s3://bucket/w", catalog=catalog)
    assert "postgresql" in caught.value.hint


def test_the_catalog_knows_its_url(db: Database, s3: S3, bucket: str, catalog: str, tmp_path: Path) -> None:
    fill(db)
    settings = s3.settings(**FILES)
    elsewhere = (f"s3://{bucket}/w2", f"s3://{s3.new_bucket()}/w", str(tmp_path / "folder"))
    for other in elsewhere:
        with pytest.raises(PreconditionFailed, match=f"at s3://{bucket}/w"):
            strandline.connect(other, catalog=catalog, settings=settings)
    assert not (tmp_path / "folder").exists()
    assert not [name for name in s3.objects(bucket) if name.startswith("w2")]
    with pytest.raises(PreconditionFailed, match="lacks files"):
        strandline.connect(elsewhere[0], catalog=catalog, settings=settings, adopt=True)
    with pytest.raises(PreconditionFailed, match="belongs to another catalog"):
        strandline.connect(f"s3://{bucket}/w", catalog=f"sqlite:///{tmp_path}/new.sqlite", settings=settings)


def test_a_warehouse_moves_to_another_bucket(db: Database, s3: S3, bucket: str, catalog: str) -> None:
    fill(db)
    before = rows(db, "SELECT * FROM t")
    target = s3.new_bucket()
    for name in s3.objects(bucket):
        s3.client.copy_object(Bucket=target, Key=name, CopySource={"Bucket": bucket, "Key": name})
    with strandline.connect(f"s3://{target}/w", catalog=catalog, settings=s3.settings(**FILES)) as moved:
        assert rows(moved, "SELECT * FROM t") == before
        sound(moved)


def test_what_is_not_there_is_not_made(s3: S3, bucket: str, catalog: str, tmp_path: Path) -> None:
    with pytest.raises(PathNotFound, match=f"s3://{bucket}/w is not a warehouse"):
        strandline.connect(f"s3://{bucket}/w", catalog=catalog, settings=s3.settings(), create=False)
    with pytest.raises(Unavailable, match="there is no bucket no-such-bucket"):
        strandline.connect("s3://no-such-bucket/w", catalog=catalog, settings=s3.settings())
    with pytest.raises(InvalidArgument):
        strandline.connect("s3a://bucket/w", catalog=catalog, settings=s3.settings())
    assert s3.objects(bucket) == {}


# --- failures of requests --------------------------------------------------------------------------------

FAULTS = {
    "cut": cut,
    "reset": reset,
    "500": says("500 Internal Server Error"),
    "503": says("503 Slow Down"),
    "403": says("403 Forbidden"),
    "unheard": unheard(0),
}
FEW = FAULTS if EVERY else {name: FAULTS[name] for name in ("cut", "503", "403", "unheard")}
"""Return requests that differ in kind."""


@pytest.mark.parametrize(("answer", "catalog_url"), on_catalogs(FEW, ["cut"]), indirect=["catalog_url"])
def test_a_failing_line_leaves_nothing_half_done(
    s3: S3, bucket: str, catalog: str, answer: Any, catalog_url: str | None
) -> None:
    """A failed request is part of no commit, and the warehouse works afterwards.

    Each kind of request fails in one way; exhaustive runs try all ways.
    """
    is_closest = EVERY or (answer is cut and catalog_url is None)
    line = Line(s3)
    settings = line.s3.settings(**FILES, **HASTY)
    with strandline.connect(f"s3://{bucket}/w", catalog=catalog, settings=settings) as db:
        fill(db)
        db.sql(
            "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )
        db.sql("BACKUP c")
        before = rows(db, "SELECT * FROM t")
        for of in ("PUT", "GET", "HEAD", "") if is_closest else ("PUT", ""):
            line.fail(answer, of=of)
            for statement in ("UPSERT INTO t (k, v) VALUES (1, 'lost')", "BACKUP c INCREMENTAL"):
                try:
                    db.sql(statement)
                except StrandlineError as error:
                    assert error.code in ("UNAVAILABLE", "PRECONDITION_FAILED")
            line.heal()
            assert db.check("/t").problems == []
            assert db.verify("c") == []
        db.sql("UPSERT INTO t (k, v) VALUES (1, 'v1')")
        assert rows(db, "SELECT * FROM t") == before
        db.maintain()
        sound(db)
    line.close()


@pytest.mark.parametrize(("answer", "catalog_url"), on_catalogs(FEW, ["503"]), indirect=["catalog_url"])
def test_every_single_request_may_fail(s3: S3, bucket: str, catalog: str, answer: Any) -> None:
    """Each request fails in turn. If it cannot be retried, the whole statement fails without effect."""
    line = Line(s3)
    settings = line.s3.settings(**FILES, **HASTY)
    with strandline.connect(f"s3://{bucket}/w", catalog=catalog, settings=settings) as db:
        fill(db, 5)
        for number in range(12):
            state = rows(db, "SELECT k, v FROM t")
            passed = iter(range(10**9))
            line._fails = lambda head, n=number, p=passed: answer if next(p) == n else None
            done = True
            try:
                db.sql(f"UPSERT INTO t (k, v) VALUES (0, 'try {number}')")
            except StrandlineError as error:
                assert error.code == "UNAVAILABLE"
                done = False
            line.heal()
            expected = sorted([(0, f"try {number}"), *state[1:]]) if done else state
            assert rows(db, "SELECT k, v FROM t") == expected
        sound(db)
    line.close()


# --- secrets ----------------------------------------------------------------------------------------------


def test_a_secret_is_in_no_catalog_no_log_and_no_answer(
    db: Database, s3: S3, bucket: str, catalog: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        fill(db)
        db.sql(
            "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')"
        )
        db.sql("BACKUP c")
        seen = [json.dumps(db.describe(path), default=str) for path in ("/", "/t", "/t/by_v")]
        seen += [
            repr(db),
            repr(db._runtime.settings),
            repr(db.operations()),
            repr(vars(db._runtime.files.own)["_bucket"]),
        ]
    engine = create_engine(catalog)
    with engine.connect() as conn:
        for table in inspect(conn).get_table_names():
            seen.append(repr(conn.execute(text(f"SELECT * FROM {table}")).all()))
    engine.dispose()
    seen += [
        s3.client.get_object(Bucket=bucket, Key="w/strandline.json")["Body"].read().decode(),
        caplog.text,
    ]
    assert not [text for text in seen if s3.secret in text or s3.secret[:12] in text]


# --- the command line -------------------------------------------------------------------------------------


def test_the_command_line_takes_a_url(s3: S3, bucket: str, tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path / 'c.sqlite'}"
    env = {**environment(), **s3.variables}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return run_python("-m", "strandline.cli", *args, env=env, cwd=tmp_path)

    where = ["--warehouse", f"s3://{bucket}/w", "--catalog", catalog]
    assert run("ls", *where).returncode != 0
    assert f"created the warehouse s3://{bucket}/w" in run("init", *where).stdout
    assert "is a warehouse already" in run("init", *where).stdout
    made = run(
        "sql", "CREATE TABLE t (k Int64 NOT NULL, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1), (2)", *where
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(run("sql", "SELECT k FROM t ORDER BY k", "--json", *where).stdout)
    refused = run("ls", "--warehouse", f"s3://user:word@{bucket}/w", "--catalog", catalog, "--debug")
    assert refused.returncode == 7
    assert "word" not in (refused.stdout + refused.stderr).replace("password", "")
    assert "catalog" in run("ls", "--warehouse", f"s3://{bucket}/w").stderr
    assert s3.secret not in "".join(run("ls", *where, "--debug").stdout)
