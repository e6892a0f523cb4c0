"""CREATE, ALTER and DROP TABLE: results and refusals. A refused statement changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from strandline import Database
from tests.effort import EVERY
from tests.tables.examples import SPARK, assert_sound, rows, tree

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


def test_statements_run_in_order_until_one_is_refused(db: Database) -> None:
    with pytest.raises(Exception, match="already exists"):
        db.sql(
            "CREATE TABLE a (k Int32, PRIMARY KEY (k)); CREATE TABLE a (k Int32, PRIMARY KEY (k)); CREATE TABLE b (k Int32, PRIMARY KEY (k))"
        )
    assert tree(db) == [("/a", "table")]
