"""Invalid input is refused with a code, a sentence and a hint, and changes nothing."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError

HUGE = "9" * 400
LONG = "n" * 300

SYNTAX = [
    "SELEC 1",
    "SELECT FROM",
    "SELECT * FROM",
    "CREATE",
    "CREATE TABLE",
    "CREATE TABLE x",
    "CREATE TABLE x ()",
    "CREATE TABLE x (k)",
    "CREATE TABLE x (k Int32 PRIMARY)",
    "CREATE TABLE x (k Int32, PRIMARY KEY k)",
    "CREATE TABLE x (k Int32, PRIMARY KEY ())",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)",
    "CREATE TABLE x (k Int32 NOT, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k), INDEX i ON (k))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k), INDEX i GLOBAL ON ())",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k), INDEX i GLOBAL SYNC)",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)) WITH",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)) WITH ()",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS)",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = )",
    "CREATE TABLE 'x' (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE a.b (k Int32, PRIMARY KEY (k))",
    "CREATE VIEW v AS SELECT 1",
    "DROP",
    "DROP TABLE",
    "DROP TABLE t t",
    "ALTER TABLE t",
    "ALTER TABLE t ADD",
    "ALTER TABLE t ADD COLUMN",
    "ALTER TABLE t ADD COLUMN x",
    "ALTER TABLE t DROP COLUMN",
    "ALTER TABLE t RENAME u",
    "ALTER TABLE t ADD INDEX",
    "ALTER TABLE t ADD INDEX i GLOBAL",
    "ALTER TABLE t ADD CHANGEFEED f",
    "UPSERT",
    "UPSERT INTO t",
    "UPSERT INTO t ()",
    "UPSERT INTO t () VALUES ()",
    "UPSERT INTO t (k) VALUES",
    "UPSERT INTO t (k) VALUES (1",
    "UPSERT INTO t (k) VALUES (1,)",
    "UPSERT INTO t (k) VALUES (1) (2)",
    "UPSERT INTO t (k, n) VALUES (1)",
    "UPSERT INTO t (k) VALUES (1, 2)",
    "UPSERT t (k) VALUES (1)",
    "INSERT t VALUES (1)",
    "REPLACE t SET k = 1",
    "UPDATE t",
    "UPDATE t SET",
    "UPDATE t SET n",
    "UPDATE t SET n = ",
    "UPDATE t SET n = 1 WHERE",
    "UPDATE t n = 1",
    "DELETE t",
    "DELETE FROM",
    "DELETE FROM t WHERE",
    "DELETE FROM t ON",
    "DELETE FROM t ON (k)",
    "DELETE FROM t ON (k) VALUES",
    "BACKUP",
    "BACKUP c FULL",
    "BACKUP c INCREMENTAL NOW",
    "RESTORE",
    "RESTORE c AT",
    "RESTORE c INTO",
    "CREATE BACKUP COLLECTION",
    "CREATE BACKUP COLLECTION d",
    "CREATE BACKUP COLLECTION d (TABLE t)",
    "CREATE BACKUP COLLECTION d (t) WITH (STORAGE = 'cluster')",
    "CREATE BACKUP COLLECTION d () WITH (STORAGE = 'cluster')",
    "ALTER BACKUP COLLECTION c",
    "DROP BACKUP c",
    "PRUNE",
    "PRUNE c KEEP",
    "PRUNE c KEEP WITHIN soon",
    "PIN c 'x'",
    "SHOW",
    "SHOW BACKUPS",
    "EXPLAIN",
    "CHECK t",
    "SAVEPOINT",
    "COMMIT",
    "PRAGMA x",
    "DECLARE $x AS Int32",
    "UPSERT INTO t (k) VALUES ($x)",
    "SELECT 'abc",
    "SELECT `abc",
    "SELECT /* abc",
    "SELECT \0",
    "(" * 500,
    "SELECT 1 +",
    "SELECT * FROM t VERSION AS OF",
    "SELECT * FROM t VERSION AS OF 'x'",
    ";;; nonsense ;;;",
    "💥",
]

VALUES = [
    "UPSERT INTO t (k) VALUES ('one')",
    "UPSERT INTO t (k) VALUES (1.5)",
    "UPSERT INTO t (k) VALUES (1e0)",
    "UPSERT INTO t (k) VALUES (true)",
    "UPSERT INTO t (k) VALUES (-1)",
    "UPSERT INTO t (k) VALUES (18446744073709551616)",
    f"UPSERT INTO t (k) VALUES ({HUGE})",
    "UPSERT INTO t (k) VALUES (NULL)",
    "UPSERT INTO t (n) VALUES (1)",
    "UPSERT INTO t (k, n) VALUES (1, 2147483648)",
    "UPSERT INTO t (k, n) VALUES (1, -2147483649)",
    "UPSERT INTO t (k, n) VALUES (1, 'x')",
    "UPSERT INTO t (k, n) VALUES (1, 1.5)",
    "UPSERT INTO t (k, v) VALUES (1, 1)",
    "UPSERT INTO t (k, v) VALUES (1, X'00ff')",
    "UPSERT INTO t (k, b) VALUES (1, 1)",
    "UPSERT INTO t (k, b) VALUES (1, 'true')",
    "UPSERT INTO t (k, d) VALUES (1, 1.234)",
    "UPSERT INTO t (k, d) VALUES (1, 99999999999)",
    "UPSERT INTO t (k, d) VALUES (1, 1e0)",
    "UPSERT INTO t (k, d) VALUES (1, 'x')",
    "UPSERT INTO t (k, j) VALUES (1, '{')",
    "UPSERT INTO t (k, j) VALUES (1, 'NaN')",
    "UPSERT INTO t (k, j) VALUES (1, '')",
    "UPSERT INTO t (k, day) VALUES (1, 'yesterday')",
    "UPSERT INTO t (k, day) VALUES (1, '2024-02-30')",
    "UPSERT INTO t (k, day) VALUES (1, '2024-01-01T10:00:00Z')",
    "UPSERT INTO t (k, day) VALUES (1, 20240101)",
    "UPSERT INTO t (k, at) VALUES (1, 'noon')",
    "UPSERT INTO t (k, at) VALUES (1, '2024-01-01T25:00:00Z')",
    "UPSERT INTO t (k, s) VALUES (1, '2024-01-01T10:00:00.5Z')",
    "UPSERT INTO t (k, f) VALUES (1, 1e300)",
    "UPSERT INTO t (k, tiny) VALUES (1, 128)",
    "UPSERT INTO t (k, small) VALUES (1, 65536)",
    "UPSERT INTO t (k, req) VALUES (77, NULL)",
    "UPSERT INTO t (k) VALUES (77)",
    "UPSERT INTO t (k, req) VALUES (1, NULL)",
    "REPLACE INTO t (k) VALUES (1)",
    "INSERT INTO t (k, req) VALUES (1, 1)",
    "INSERT INTO t (k, req) VALUES (50, 1), (50, 2)",
    "UPSERT INTO t (k, k) VALUES (1, 1)",
    "UPSERT INTO t (k, K) VALUES (1, 1)",
    "UPSERT INTO t (k, nope) VALUES (1, 1)",
    "UPSERT INTO t VALUES (1, 2)",
    "UPSERT INTO nope (k) VALUES (1)",
    "UPSERT INTO `t/by_n/indexImplTable` (n, k) VALUES (1, 1)",
    "UPSERT INTO `t/by_n` (k) VALUES (1)",
    "UPSERT INTO dir (k) VALUES (1)",
    "UPDATE t SET k = 2 WHERE k = 1",
    "UPDATE t SET nope = 2 WHERE k = 1",
    "UPDATE t SET n = 'x' WHERE k = 1",
    "UPDATE t SET n = 2147483648 WHERE k = 1",
    "UPDATE t SET n = n + 2147483647 WHERE k = 1",
    "UPDATE t SET n = 1, n = 2 WHERE k = 1",
    "UPDATE t SET req = NULL WHERE k = 1",
    "UPDATE nope SET n = 1",
    "DELETE FROM nope WHERE k = 1",
    "DELETE FROM t ON (n) VALUES (1)",
    "DELETE FROM t ON (k, n) VALUES (1, 1)",
    "DELETE FROM t ON (k) VALUES ('x')",
    "DELETE FROM t ON (k) VALUES (-1)",
    "DELETE FROM t ON (k) VALUES (NULL)",
    "UPSERT INTO t (k, v) VALUES (1, '\ud800')",
    f"UPSERT INTO t (k, d) VALUES (1, {'9' * 2000})",
    "UPSERT INTO t (k, at) VALUES (1, '99999-01-01')",
    "UPSERT INTO t (k, at) VALUES (1, '0000-01-01')",
    "UPSERT INTO t (k, at) VALUES (1, '0001-01-01T00:00:00+10:00')",
    "UPSERT INTO `it's` (k) VALUES (1)",
    "UPSERT INTO `a``b` (k) VALUES (1)",
    "UPSERT INTO `таблица` (k) VALUES (1)",
    'UPSERT INTO "t" (k) VALUES (1)',
    "UPSERT INTO t ('k') VALUES (1)",
    "UPSERT INTO t (`k `) VALUES (1)",
    "UPDATE t SET `__ydb_x` = 1",
    "DELETE FROM `__ydb_t`",
    "UPSERT INTO t (k, req) VALUES (60, 1); UPSERT INTO t (k) VALUES (-1)",
    "UPSERT INTO t (k, req) VALUES (60, 1); UPSERT INTO nope (k) VALUES (1)",
    "DELETE FROM t WHERE k = 1; INSERT INTO t (k, req) VALUES (2, 1)",
]

NAMES = [
    "CREATE TABLE t (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE dir (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `t/x` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `t/by_n/x` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `.backups/x` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `.backups` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `__ydb_x` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `a//b` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `a/../b` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `.` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `/` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `` (k Int32, PRIMARY KEY (k))",
    f"CREATE TABLE {LONG} (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `a\nb` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, k Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, K Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (nope))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k, k))",
    "CREATE TABLE x (k Int33, PRIMARY KEY (k))",
    "CREATE TABLE x (k Decimal(39, 1), PRIMARY KEY (k))",
    "CREATE TABLE x (k Decimal(5, 6), PRIMARY KEY (k))",
    "CREATE TABLE x (k Float, PRIMARY KEY (k))",
    "CREATE TABLE x (k Double, PRIMARY KEY (k))",
    "CREATE TABLE x (k Json, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, __ydb_v Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, `__YDB_incrBackupImpl_deleted` Bool, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, __strandline_step Int32, PRIMARY KEY (k))",
    f"CREATE TABLE x (k Int32, {LONG} Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, `a\tb` Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, f Float, PRIMARY KEY (k), INDEX i GLOBAL ON (f))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (nope))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (nope))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (v))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (k))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (v, v))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (v), INDEX i GLOBAL ON (v))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX `a/b` GLOBAL ON (v))",
    "CREATE TABLE x (k Int32, v Int32, PRIMARY KEY (k), INDEX __ydb_i GLOBAL ON (v))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (5, 5))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (5, 4))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = ('a'))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (-1))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = ((1, 2)))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 0)",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 1000000)",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 'many')",
    "CREATE TABLE x (k Utf8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 4)",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 4, PARTITION_AT_KEYS = (5))",
    "CREATE TABLE x (k Uint32, PRIMARY KEY (k)) WITH (NO_SUCH = 4)",
    "CREATE TABLE indexImplTable (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE `d/indexImplTable` (k Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k), INDEX indexImplTable GLOBAL ON (k))",
    "ALTER TABLE t ADD INDEX indexImplTable GLOBAL ON (v)",
    "ALTER TABLE t ADD CHANGEFEED indexImplTable WITH (MODE = 'UPDATES')",
    "CREATE TABLE x (k Int32, `\ud800` Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, `\u0000` Int32, PRIMARY KEY (k))",
    "CREATE TABLE x (k Decimal(99999999999,1), PRIMARY KEY (k))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (NULL, NULL))",
    "CREATE TABLE x (k Int32, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 99999999999999999999)",
    "CREATE TABLE x (k Utf8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 1)",
    "ALTER TABLE `t/by_n/indexImplTable` ADD INDEX j GLOBAL ON (k)",
    "DROP TABLE nope",
    "DROP TABLE dir",
    "DROP TABLE `t/by_n`",
    "DROP TABLE `t/by_n/indexImplTable`",
    "ALTER TABLE nope ADD COLUMN x Int32",
    "ALTER TABLE t ADD COLUMN n Int32",
    "ALTER TABLE t ADD COLUMN N Int32",
    "ALTER TABLE t ADD COLUMN x Nope",
    "ALTER TABLE t ADD COLUMN x Int32 NOT NULL",
    "ALTER TABLE t ADD COLUMN __ydb_x Int32",
    "ALTER TABLE t ADD COLUMN x Int32, ADD COLUMN x Int32",
    "ALTER TABLE t DROP COLUMN nope",
    "ALTER TABLE t DROP COLUMN k",
    "ALTER TABLE t DROP COLUMN n",
    "ALTER TABLE t ADD INDEX by_n GLOBAL ON (v)",
    "ALTER TABLE t ADD INDEX i GLOBAL ON (nope)",
    "ALTER TABLE t ADD INDEX i GLOBAL ON (f)",
    "ALTER TABLE t ADD INDEX i GLOBAL ON (v), ADD COLUMN x Int32",
    "ALTER TABLE t DROP INDEX nope",
    "ALTER TABLE `t/by_n/indexImplTable` ADD COLUMN x Int32",
    "ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'ALL')",
    "ALTER TABLE t ADD CHANGEFEED f WITH (FORMAT = 'JSON')",
    "ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES', FORMAT = 'XML')",
    "ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'UPDATES', NO_SUCH = 1)",
    "ALTER TABLE t ADD CHANGEFEED by_n WITH (MODE = 'UPDATES')",
    "ALTER TABLE nope ADD CHANGEFEED f WITH (MODE = 'UPDATES')",
    "ALTER TABLE t DROP CHANGEFEED nope",
    "SELECT * FROM nope",
    "SELECT k FROM t VIEW nope",
    "SELECT k FROM t VIEW by_n VERSION AS OF 999999",
    "SELECT k FROM t VERSION AS OF 999999",
    "SELECT k FROM t VERSION AS OF -1",
    "SELECT k FROM t VERSION AS OF 0",
    "SELECT k FROM t TIMESTAMP AS OF '1000-01-01'",
    "SELECT k FROM dir",
    "SELECT k FROM `t/by_n`",
    "SELECT k FROM t IN BACKUP nope",
    "DESCRIBE nope",
    "CHECK TABLE nope",
    "SHOW TABLES IN nope",
    "SHOW BACKUPS IN nope",
    "BACKUP nope",
    "BACKUP c INCREMENTAL",
    "RESTORE c",
    "RESTORE nope",
    "DROP BACKUP COLLECTION nope",
    "DROP BACKUP c 'nope'",
    "DROP BACKUP c 'nope' CONFIRM",
    "DROP BACKUP nope 'nope'",
    "PIN BACKUP c 'nope'",
    "UNPIN BACKUP nope 'nope'",
    "PRUNE nope KEEP DAILY 1",
    "PRUNE c",
    "PRUNE c CONFIRM",
    "ALTER BACKUP COLLECTION c SET (RETENTION = 'all')",
    "ALTER BACKUP COLLECTION c SET (MINIMUM = 0)",
    "ALTER BACKUP COLLECTION c SET (MAX_CHAIN = 'long')",
    "ALTER BACKUP COLLECTION nope ADD TABLE t",
    "ALTER BACKUP COLLECTION c ADD TABLE t",
    "ALTER BACKUP COLLECTION c DROP TABLE nope",
    "ALTER BACKUP COLLECTION c SET (STORAGE = 'tape')",
    "ALTER BACKUP COLLECTION c SET (NO_SUCH = 1)",
    "ALTER BACKUP COLLECTION c RESET (STORAGE)",
    "CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster')",
    "CREATE BACKUP COLLECTION d (TABLE t, TABLE t) WITH (STORAGE = 'cluster')",
    "CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'tape')",
    "CREATE BACKUP COLLECTION d (TABLE t) WITH (INCREMENTAL_BACKUP_ENABLED = 'true')",
    "CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'cluster', STORAGE = 'cluster')",
    "CREATE BACKUP COLLECTION d (TABLE t) WITH (STORAGE = 'cluster', OMIT_INDEXES = 'perhaps')",
    "CREATE BACKUP COLLECTION `a/b` (TABLE t) WITH (STORAGE = 'cluster')",
    "CREATE BACKUP COLLECTION d (TABLE `.backups/x`) WITH (STORAGE = 'cluster')",
]


class Unshown:
    """An object whose ``repr`` fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _in_transaction(db: Database, text: str) -> None:
    with db.transaction():
        db.sql(text)


CALLS: list[tuple[str, Callable[[Database], Any]]] = [
    ("sql of None", lambda db: db.sql(None)),  # type: ignore[arg-type]
    ("sql of bytes", lambda db: db.sql(b"SELECT 1")),  # type: ignore[arg-type]
    ("ls of nothing", lambda db: db.ls("/nope")),
    ("ls of a number", lambda db: db.ls(1)),  # type: ignore[arg-type]
    ("describe of nothing", lambda db: db.describe("nope")),
    ("describe of an empty component", lambda db: db.describe("/a//b")),
    ("upsert of a number", lambda db: db.table("t").upsert(1)),
    ("upsert of text", lambda db: db.table("t").upsert("rows")),
    ("upsert of lists", lambda db: db.table("t").upsert([[1, 2]])),
    ("upsert of dicts with odd keys", lambda db: db.table("t").upsert([{1: 2}])),
    ("upsert without a key", lambda db: db.table("t").upsert([{"n": 1}])),
    ("upsert of an unknown column", lambda db: db.table("t").upsert([{"k": 1, "nope": 1}])),
    ("upsert of a float key", lambda db: db.table("t").upsert([{"k": 1.0, "req": 1}])),
    ("upsert of an object", lambda db: db.table("t").upsert([{"k": 1, "v": object()}])),
    ("upsert of a lone surrogate", lambda db: db.table("t").upsert([{"k": 1, "v": "\ud800"}])),
    (
        "upsert of NaN into a decimal",
        lambda db: db.table("t").upsert([{"k": 1, "d": decimal.Decimal("NaN")}]),
    ),
    ("upsert of infinity into an int", lambda db: db.table("t").upsert([{"k": 1, "n": math.inf}])),
    (
        "upsert of a date into a timestamp",
        lambda db: db.table("t").upsert([{"k": 1, "at": dt.date(2024, 1, 1)}]),
    ),
    (
        "upsert of a timestamp into a date",
        lambda db: db.table("t").upsert([{"k": 1, "day": dt.datetime(2024, 1, 1)}]),
    ),
    (
        "upsert of microseconds into a datetime",
        lambda db: db.table("t").upsert([{"k": 1, "s": dt.datetime(2024, 1, 1, 0, 0, 0, 1)}]),
    ),
    (
        "the second of two rows is bad",
        lambda db: db.table("t").upsert([{"k": 90, "req": 1}, {"k": -1, "req": 1}]),
    ),
    ("Arrow with an unknown column", lambda db: db.table("t").upsert(pa.table({"k": [1], "nope": [1]}))),
    ("Arrow without a key", lambda db: db.table("t").upsert(pa.table({"n": [1]}))),
    ("Arrow with a negative key", lambda db: db.table("t").upsert(pa.table({"k": [1, -1], "req": [1, 1]}))),
    ("Arrow with text for a number", lambda db: db.table("t").upsert(pa.table({"k": ["1"], "req": [1]}))),
    (
        "Arrow out of range",
        lambda db: db.table("t").upsert(pa.table({"k": [1], "tiny": pa.array([300], pa.int64())})),
    ),
    ("Arrow with a nested column", lambda db: db.table("t").upsert(pa.table({"k": [1], "v": [[1, 2]]}))),
    ("insert of a key that is there", lambda db: db.table("t").insert([{"k": 1, "req": 1}])),
    ("delete with too many parts", lambda db: db.table("t").delete([(1, 2)])),
    ("delete with a bad key", lambda db: db.table("t").delete(["x"])),
    ("delete with another column", lambda db: db.table("t").delete([{"n": 1}])),
    ("get with too few parts", lambda db: db.table("t").get()),
    ("a table that is not there", lambda db: db.table("nope").upsert([{"k": 1}])),
    ("pin of the future", lambda db: db.pin("p", 10**9)),
    ("pin of text", lambda db: db.pin("p", "x")),  # type: ignore[arg-type]
    ("pin with a bad name", lambda db: db.pin("", 1)),
    ("unpin of nothing", lambda db: db.unpin("nope")),
    ("check of nothing", lambda db: db.check("nope")),
    ("compact of nothing", lambda db: db.compact("nope")),
    ("maintain of nothing", lambda db: db.maintain("nope")),
    ("operation of nothing", lambda db: db.operation("nope")),
    ("wait for nothing", lambda db: db.wait("nope")),
    ("cancel of nothing", lambda db: db.cancel("nope")),
    ("forget of nothing", lambda db: db.forget("nope")),
    ("verify of nothing", lambda db: db.verify("nope")),
    ("table of a number", lambda db: db.table(5)),  # type: ignore[arg-type]
    ("table with a control character", lambda db: db.table("a\0b")),
    ("rows of the root", lambda db: db.table("/").upsert([{"k": 1}])),
    ("state of a step that is text", lambda db: db.table("t").df(at="x")),  # type: ignore[arg-type]
    ("state of a step that is no number", lambda db: db.table("t").df(at=True)),
    ("state of a half step", lambda db: db.table("t").df(at=1.5)),  # type: ignore[arg-type]
    ("state of a negative step", lambda db: db.table("t").df(at=-1)),
    ("state of the far future", lambda db: db.table("t").df(at=10**30)),
    ("maintain of a number", lambda db: db.maintain(5)),  # type: ignore[arg-type]
    ("check of None", lambda db: db.check(None)),  # type: ignore[arg-type]
    ("ls of bytes", lambda db: db.ls(b"/")),  # type: ignore[arg-type]
    ("unpin of a number", lambda db: db.unpin(5)),  # type: ignore[arg-type]
    ("pin without a name", lambda db: db.pin(None)),  # type: ignore[arg-type]
    ("operation of a number", lambda db: db.operation(5)),  # type: ignore[arg-type]
    ("verify of a number", lambda db: db.verify(5)),  # type: ignore[arg-type]
    ("stream of a number", lambda db: db.stream(5)),  # type: ignore[arg-type]
    ("upsert of None", lambda db: db.table("t").upsert(None)),
    ("upsert of nothing but None", lambda db: db.table("t").upsert([None])),
    ("upsert of an empty dict", lambda db: db.table("t").upsert([{}])),
    ("upsert of a set", lambda db: db.table("t").upsert({"k"})),
    ("upsert of one column twice", lambda db: db.table("t").upsert([{"k": 1, "K": 2}])),
    ("upsert of an object that cannot be shown", lambda db: db.table("t").upsert([{"k": Unshown()}])),
    ("get of an object that cannot be shown", lambda db: db.table("t").get(Unshown())),
    ("get with too many parts", lambda db: db.table("t").get(1, 2)),
    ("get out of range", lambda db: db.table("t").get(-1)),
    ("get from an index", lambda db: db.table("t/by_n").get(1)),
    ("delete of None", lambda db: db.table("t").delete(None)),
    ("delete of an empty key", lambda db: db.table("t").delete([[]])),
    ("sql of a list", lambda db: db.sql(["SELECT 1"])),  # type: ignore[arg-type]
    ("settings that are none", lambda db: strandline.connect("nowhere", settings={"bulk_rows": 1})),  # type: ignore[arg-type]
    ("a setting that is text", lambda db: Settings(bulk_rows="many")),  # type: ignore[arg-type]
    ("a setting that is a boolean", lambda db: Settings(workers=True)),
    ("a setting that is no number", lambda db: Settings(history_seconds=math.nan)),
    ("a setting that is too small", lambda db: Settings(commit_tries=0)),
    ("Spark settings that are no texts", lambda db: Settings(spark={"spark.x": 1})),  # type: ignore[dict-item]
    (
        "a catalog that is a number",
        lambda db: strandline.connect(Path(db.runtime.files.path("x")).parent, catalog=5),  # type: ignore[arg-type]
    ),
    (
        "a catalog of another kind",
        lambda db: strandline.connect(Path(db.runtime.files.path("x")).parent, catalog="mysql://h/d"),
    ),
    ("a warehouse that is a number", lambda db: strandline.connect(5)),  # type: ignore[arg-type]
    ("a warehouse in a bucket", lambda db: strandline.connect("s3://bucket/x")),
    ("a collection's name in a transaction", lambda db: _in_transaction(db, "BACKUP c")),
    ("a definition in a transaction", lambda db: _in_transaction(db, "DROP TABLE t")),
    ("stream of nothing", lambda db: db.stream("/t/nope").records()),
    ("position of a table", lambda db: db.stream("/t").position),
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    settings = Settings(bulk_rows=10**9, scan_rows=10**9)
    with strandline.connect(tmp_path_factory.mktemp("bad") / "warehouse", settings=settings) as opened:
        opened.sql(
            """CREATE TABLE t (k Uint64 NOT NULL, n Int32, v Utf8, b Bool, d Decimal(10, 2), j Json, day Date, at Timestamp, s Datetime,
                   f Float, tiny Int8, small Uint16, req Int32 NOT NULL, PRIMARY KEY (k), INDEX by_n GLOBAL SYNC ON (n));
               CREATE TABLE `dir/inner` (k Int32, PRIMARY KEY (k));
               CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true');
               UPSERT INTO t (k, n, v, req) VALUES (1, 1, 'a', 1), (2, NULL, NULL, 2)"""
        )
        yield opened


def everything(db: Database) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": db.step,
        "operations": len(db.operations()),
        "pins": db.pins(),
        "files": sorted(db.runtime.files.names("data")),
        "rows": sorted(map(repr, db.sql("SELECT * FROM t").rows())),
    }

    def walk(path: str) -> None:
        found[path] = db.describe(path)
        for entry in db.ls(path):
            walk(entry.path)

    walk("/")
    return found


_at_first: weakref.WeakKeyDictionary[Database, dict[str, Any]] = weakref.WeakKeyDictionary()
"""Computed once: no test here changes the database."""


def refused(db: Database, act: Callable[[], Any]) -> None:
    if db not in _at_first:
        _at_first[db] = everything(db)
    with pytest.raises(StrandlineError) as error:
        act()
    assert error.value.code != "INTERNAL", str(error.value)
    assert error.value.code != StrandlineError.code
    assert error.value.message
    assert error.value.hint
    assert error.value.hint != error.value.message
    assert everything(db) == _at_first[db]


@pytest.mark.parametrize("text", [*SYNTAX, *VALUES, *NAMES], ids=lambda text: ascii(text)[:60])
def test_a_bad_statement_is_refused_and_changes_nothing(db: Database, text: str) -> None:
    refused(db, lambda: db.sql(text).rows())


def test_a_number_that_only_spark_can_judge_is_refused_there(db: Database, spark: Any) -> None:
    refused(db, lambda: db.sql("UPSERT INTO t (k, d) VALUES (1, 1e5000)").rows())


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_a_bad_call_is_refused_and_changes_nothing(db: Database, call: Callable[[Database], Any]) -> None:
    refused(db, lambda: call(db))


def test_there_are_at_least_two_hundred_of_them() -> None:
    assert len({*SYNTAX, *VALUES, *NAMES}) + len(CALLS) >= 200


@pytest.mark.parametrize("settings", [Settings(bulk_rows=0, scan_rows=0)], ids=["on Spark"])
def test_the_same_values_are_refused_on_spark(tmp_path: Path, spark: Any, settings: Settings) -> None:
    with strandline.connect(tmp_path / "warehouse", spark=spark, settings=settings) as db:
        db.sql("CREATE TABLE t (k Uint32 NOT NULL, tiny Int8, d Decimal(10, 2), j Json, PRIMARY KEY (k))")
        for row in (
            {"k": -1},
            {"k": 2**32},
            {"k": 1, "tiny": 128},
            {"k": 1, "d": decimal.Decimal("1.234")},
            {"k": 1, "j": "{"},
        ):
            columns = {name: [value] for name, value in row.items()}
            frame = spark.createDataFrame(pa.table(columns))
            with pytest.raises(StrandlineError) as error:
                db.table("t").upsert(frame)
            assert error.value.code == "INVALID_ARGUMENT"
        assert db.describe("/t")["rows"] == 0
        assert list(db.runtime.files.names("data")) == []
