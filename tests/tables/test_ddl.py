"""CREATE, ALTER and DROP TABLE: results and refusals. A refused statement changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from strandline import Database
from tests.effort import EVERY
from tests.tables.examples import SPARK, assert_sound, refused, rows, tree

FULL = """
CREATE TABLE `shop/orders` (
    id Uint64 NOT NULL, line Int32, customer Utf8, amount Decimal(12,2), note Json,
    PRIMARY KEY (id, line),
    INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount, note),
    INDEX by_amount GLOBAL ASYNC ON (amount, customer)
)
"""


def test_the_statement_that_is_shown_makes_the_same_table(connect: Callable[..., Database]) -> None:
    one, two = connect(), connect()
    one.sql(FULL + " WITH (PARTITION_AT_KEYS = (100, (200, 5)))")
    ((text,),) = rows(one, "SHOW CREATE TABLE `shop/orders`")
    two.sql(text)
    assert one.describe("/shop/orders") == two.describe("/shop/orders")


@pytest.mark.parametrize(
    "name",
    [
        "two words",
        "it's",
        'a "b"',
        "back`tick",
        "ünïcødé",
        "日本",
        "a.b",
        "100%",
        "{x}",
        "\\",
        "select",
        "x=y",
    ],
)
def test_any_name_will_do(db: Database, name: str) -> None:
    quoted = "`" + name.replace("\\", "\\\\").replace("`", "``") + "`"
    path = quoted[:-1] + "/" + quoted[1:]
    db.sql(
        f"CREATE TABLE {path} ({quoted} Int32, v Utf8, PRIMARY KEY ({quoted}), INDEX {quoted} GLOBAL ON (v))"
    )
    db.sql(f"ALTER TABLE {path} ADD COLUMN `é{quoted[1:]} Int8")
    db.sql(f"UPSERT INTO {path} ({quoted}, v) VALUES (1, 'x'), (2, 'y')")
    assert rows(db, f"SELECT {quoted} FROM {path} WHERE {quoted} = 2") == [(2,)]
    assert rows(db, f"SELECT {quoted} FROM {path} VIEW {quoted} WHERE v = 'x'") == [(1,)]
    db.sql(f"UPDATE {path} SET v = 'z' WHERE {quoted} = 1; DELETE FROM {path} WHERE {quoted} = 2")
    assert rows(db, f"SELECT {quoted}, v FROM {path}") == [(1, "z")]
    assert db.table(f"{name}/{name}").get(1) == {name: 1, "v": "z", f"é{name}": None}
    assert [e.name for e in db.ls(f"/{name}/{name}")] == [name]
    assert db.check(f"/{name}/{name}").ok
    db.sql(f"ALTER TABLE {path} DROP INDEX {quoted}")
    db.sql(f"DROP TABLE {path}")
    assert tree(db) == [(f"/{name}", "directory")]


ODD = ["two words", "it's", "back`tick", "日本", "a.b", "{x}", "\\", "select"]


@pytest.mark.parametrize("names", [ODD, *([[name] for name in ODD] if EVERY else [])], ids="-".join)
def test_any_names_will_do_on_spark(
    connect: Callable[..., Database], spark: object, names: list[str]
) -> None:
    """Names of directories, key columns and indexes."""
    db = connect(spark=spark, settings=SPARK)
    quoted = ["`" + name.replace("\\", "\\\\").replace("`", "``") + "`" for name in names]
    first, rest = quoted[0], "".join(f", {name}" for name in quoted[1:])
    path = "`" + "/".join(name[1:-1] for name in [*quoted, first]) + "`"
    index = "`" + "".join(name[1:-1] for name in quoted) + "`"
    db.sql(
        f"CREATE TABLE {path} ({', '.join(f'{name} Int32' for name in quoted)}, v Utf8,"
        f" PRIMARY KEY ({', '.join(quoted)}), INDEX {index} GLOBAL ON (v))"
    )
    zeros = ", 0" * (len(names) - 1)
    db.sql(f"UPSERT INTO {path} ({first}{rest}, v) VALUES (1{zeros}, 'x'), (2{zeros}, 'y')")
    db.sql(f"UPSERT INTO {path} SELECT {first} + 10{rest}, v FROM {path} WHERE {path}.{first} = 2")
    found = rows(db, f"SELECT {first}{rest} FROM {path} VIEW {index} ORDER BY {first}")
    assert found == [(k, *[0] * (len(names) - 1)) for k in (1, 2, 12)]
    assert db.check("/" + "/".join([*names, names[0]])).ok


def test_adding_a_column_changes_no_digest(db: Database) -> None:
    db.sql("CREATE TABLE t (k Int32, a Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, a) VALUES (1, 'x')")
    before = db.describe("/t")["digest"]
    db.sql("ALTER TABLE t ADD COLUMN b Int64")
    assert db.describe("/t")["digest"] == before
    db.sql("ALTER TABLE t DROP COLUMN b")
    assert db.describe("/t")["digest"] == before
    db.sql("ALTER TABLE t DROP COLUMN a")
    assert db.describe("/t")["digest"] != before
    assert_sound(db, "/t")


def test_an_index_built_beside_writers_misses_nothing(connect: Callable[..., Database]) -> None:
    db = connect()
    db.sql("CREATE TABLE t (k Int32, v Int32, PRIMARY KEY (k))")
    db.table("t").upsert([{"k": n, "v": n} for n in range(500)])
    stop = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                db.sql(
                    f"UPSERT INTO t (k, v) VALUES ({number % 600}, {-number}); DELETE FROM t WHERE k = {(number * 7) % 600}"
                )
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for name in ("a", "b", "c"):
            db.sql(f"ALTER TABLE t ADD INDEX {name} GLOBAL ON (v)")
        db.sql("ALTER TABLE t ADD COLUMN extra Int8")
        db.sql("ALTER TABLE t DROP INDEX b")
    finally:
        stop.set()
        writer.join()
    assert failed == []
    assert_sound(db, "/t")


CREATE_REFUSED = {
    "k Int32": "SYNTAX_ERROR",
    "PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Int32, PRIMARY KEY (x)": "INVALID_ARGUMENT",
    "k Int32, PRIMARY KEY (k, K)": "INVALID_ARGUMENT",
    "k Int32, K Int64, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Int3, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Decimal(39,0), PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Double, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Json, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Int32, v Float, PRIMARY KEY (k), INDEX i GLOBAL ON (v)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (w)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v, V)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (k)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (V)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, n Int8, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (n, n)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v), INDEX i GLOBAL ON (k)": "ALREADY_EXISTS",
    "k Int32, `__ydb_x` Utf8, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Int32, `__strandline_op` Utf8, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX __ydb_i GLOBAL ON (v)": "INVALID_ARGUMENT",
    "k Int32, `a/b` Utf8, PRIMARY KEY (k)": "INVALID_ARGUMENT",
    "k Int32, v Utf8, PRIMARY KEY (k), INDEX `a/b` GLOBAL ON (v)": "INVALID_ARGUMENT",
    "k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (2, 1)": "INVALID_ARGUMENT",
    "k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (1, 1)": "INVALID_ARGUMENT",
    "k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = ('a')": "INVALID_ARGUMENT",
    "k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = ((1, 2))": "INVALID_ARGUMENT",
    "k Uint8, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (256)": "INVALID_ARGUMENT",
    "k Uint8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 257": "INVALID_ARGUMENT",
    "k Utf8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 2": "INVALID_ARGUMENT",
    "k Utf8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 1": "INVALID_ARGUMENT",
    "k Uint8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 2, PARTITION_AT_KEYS = (1)": "INVALID_ARGUMENT",
    "k Uint8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITION = 2": "INVALID_ARGUMENT",
}


def test_a_refused_create_leaves_nothing(db: Database) -> None:
    for body, code in CREATE_REFUSED.items():
        with refused(db, code):
            db.sql(f"CREATE TABLE `new/dir/t` ({body})")
    assert tree(db) == []


@pytest.mark.parametrize(
    "path",
    [
        "__ydb_t",
        "d/__ydb_t",
        "__ydb_d/t",
        "__strandline_t",
        ".backups/t",
        ".backups",
        "indexImplTable",
        "d/indexImplTable",
        "t/u",
        "t/i/u",
    ],
)
def test_a_refused_path_leaves_nothing(db: Database, path: str) -> None:
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v))")
    with refused(db, "INVALID_ARGUMENT"):
        db.sql(f"CREATE TABLE `{path}` (k Int32, PRIMARY KEY (k))")


ALTER_REFUSED = {
    "t ADD COLUMN v Utf8": "INVALID_ARGUMENT",
    "t ADD COLUMN K Utf8": "INVALID_ARGUMENT",
    "t ADD COLUMN x Utf8 NOT NULL": "INVALID_ARGUMENT",
    "t ADD COLUMN x Nothing": "INVALID_ARGUMENT",
    "t ADD COLUMN `__ydb_x` Utf8": "INVALID_ARGUMENT",
    "t ADD COLUMN x Utf8, ADD COLUMN X Utf8": "INVALID_ARGUMENT",
    "t ADD COLUMN x Utf8, DROP COLUMN y": "INVALID_ARGUMENT",
    "t DROP COLUMN k": "INVALID_ARGUMENT",
    "t DROP COLUMN x": "INVALID_ARGUMENT",
    "t DROP COLUMN n, DROP COLUMN n": "INVALID_ARGUMENT",
    "t DROP COLUMN v": "PRECONDITION_FAILED",
    "t DROP COLUMN c": "PRECONDITION_FAILED",
    "t ADD INDEX i GLOBAL ON (n)": "ALREADY_EXISTS",
    "t ADD INDEX j GLOBAL ON (x)": "INVALID_ARGUMENT",
    "t ADD INDEX j GLOBAL ON (f)": "INVALID_ARGUMENT",
    "t ADD INDEX j GLOBAL ON (n) COVER (n)": "INVALID_ARGUMENT",
    "t ADD INDEX j GLOBAL ON (n) COVER (k)": "INVALID_ARGUMENT",
    "t ADD INDEX __ydb_j GLOBAL ON (n)": "INVALID_ARGUMENT",
    "t ADD INDEX j GLOBAL ON (n), ADD COLUMN x Utf8": "UNSUPPORTED",
    "t ADD INDEX j LOCAL ON (n)": "UNSUPPORTED",
    "t DROP INDEX j": "PATH_NOT_FOUND",
    "t DROP INDEX I": "PATH_NOT_FOUND",
    "u ADD COLUMN x Utf8": "PATH_NOT_FOUND",
    "u ADD INDEX j GLOBAL ON (n)": "PATH_NOT_FOUND",
    "u DROP INDEX j": "PATH_NOT_FOUND",
    "`t/i` ADD COLUMN x Utf8": "INVALID_ARGUMENT",
    "`t/i/indexImplTable` ADD COLUMN x Utf8": "INVALID_ARGUMENT",
    "`t/i/indexImplTable` DROP COLUMN c": "INVALID_ARGUMENT",
    "`t/i/indexImplTable` ADD INDEX j GLOBAL ON (c)": "INVALID_ARGUMENT",
    "d ADD COLUMN x Utf8": "INVALID_ARGUMENT",
}


def test_a_refused_alter_leaves_nothing(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (k Int32, v Utf8, c Int8, n Int8, f Double, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (c))"
    )
    db.sql("CREATE TABLE `d/t` (k Int32, PRIMARY KEY (k))")
    db.sql("UPSERT INTO t (k, v, c, n) VALUES (1, 'x', 2, 3)")
    for action, code in ALTER_REFUSED.items():
        with refused(db, code):
            db.sql(f"ALTER TABLE {action}")
    assert_sound(db, "/t")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("u", "PATH_NOT_FOUND"),
        ("d", "INVALID_ARGUMENT"),
        ("t/i", "INVALID_ARGUMENT"),
        ("t/i/indexImplTable", "INVALID_ARGUMENT"),
    ],
)
def test_a_refused_drop_leaves_nothing(db: Database, path: str, code: str) -> None:
    db.sql(
        "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v)); CREATE TABLE `d/t` (k Int32, PRIMARY KEY (k))"
    )
    with refused(db, code):
        db.sql(f"DROP TABLE `{path}`")


def test_statements_run_in_order_until_one_is_refused(db: Database) -> None:
    with pytest.raises(Exception, match="already exists"):
        db.sql(
            "CREATE TABLE a (k Int32, PRIMARY KEY (k)); CREATE TABLE a (k Int32, PRIMARY KEY (k)); CREATE TABLE b (k Int32, PRIMARY KEY (k))"
        )
    assert tree(db) == [("/a", "table")]
