"""CREATE, ALTER and DROP TABLE: results and refusals. A refused statement changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from strandline import Database
from tests.effort import EVERY
from tests.tables.examples import SPARK, assert_sound, content, refused, rows, tree

FULL = """
CREATE TABLE `shop/orders` (
    id Uint64 NOT NULL, line Int32, customer Utf8, amount Decimal(12,2), note Json,
    PRIMARY KEY (id, line),
    INDEX by_customer GLOBAL SYNC ON (customer) COVER (amount, note),
    INDEX by_amount GLOBAL ASYNC ON (amount, customer)
)
"""


def test_a_table_is_what_the_statement_says(db: Database) -> None:
    assert db.sql(FULL).step == 1
    assert tree(db) == [
        ("/shop", "directory"),
        ("/shop/orders", "table"),
        ("/shop/orders/by_amount", "index"),
        ("/shop/orders/by_amount/indexImplTable", "table"),
        ("/shop/orders/by_customer", "index"),
        ("/shop/orders/by_customer/indexImplTable", "table"),
    ]
    described = db.describe("/shop/orders")
    assert described["key"] == ["id", "line"]
    assert described["columns"] == [
        {"name": "id", "type": "Uint64", "not_null": True},
        {"name": "line", "type": "Int32", "not_null": False},
        {"name": "customer", "type": "Utf8", "not_null": False},
        {"name": "amount", "type": "Decimal(12,2)", "not_null": False},
        {"name": "note", "type": "Json", "not_null": False},
    ]
    assert [(i["name"], i["kind"], i["columns"], i["cover"]) for i in described["indexes"]] == [
        ("by_customer", "GLOBAL SYNC", ["customer"], ["amount", "note"]),
        ("by_amount", "GLOBAL ASYNC", ["amount", "customer"], []),
    ]
    impl = db.describe("/shop/orders/by_customer/indexImplTable")
    assert impl["key"] == ["customer", "id", "line"]
    assert [c["name"] for c in impl["columns"]] == ["customer", "id", "line", "amount", "note"]
    assert_sound(db, "/shop/orders")


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


def test_names_are_case_sensitive_and_columns_are_not(db: Database) -> None:
    db.sql("CREATE TABLE T (Key Int32, Value Utf8, PRIMARY KEY (KEY), INDEX i GLOBAL ON (VALUE))")
    db.sql("CREATE TABLE t (key Int32, PRIMARY KEY (key))")
    db.sql("UPSERT INTO T (KEY, value) VALUES (1, 'x')")
    assert rows(db, "SELECT kEy, VALUE FROM T WHERE KEY = 1") == [(1, "x")]
    assert rows(db, "SELECT Key FROM T VIEW i WHERE value = 'x'") == [(1,)]
    assert rows(db, "SELECT key FROM t") == []
    assert db.describe("/T")["key"] == ["Key"]


def test_if_exists_and_if_not_exists(db: Database) -> None:
    assert db.sql("DROP TABLE IF EXISTS t").step is None
    assert db.sql("CREATE TABLE IF NOT EXISTS t (k Int32, PRIMARY KEY (k))").step == 1
    assert db.sql("CREATE TABLE IF NOT EXISTS t (other Utf8, PRIMARY KEY (other))").step is None
    assert db.describe("/t")["key"] == ["k"]
    assert db.sql("DROP TABLE IF EXISTS t").step == 2
    db.sql("CREATE TABLE `d/t` (k Int32, PRIMARY KEY (k))")
    with refused(db, "ALREADY_EXISTS"):
        db.sql("CREATE TABLE IF NOT EXISTS d (k Int32, PRIMARY KEY (k))")


def test_a_table_that_was_dropped_begins_anew(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v)); UPSERT INTO t (k, v) VALUES (1, 'old')"
    )
    old = db.describe("/t")
    db.sql("DROP TABLE t; CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX i GLOBAL ON (v))")
    assert rows(db, "SELECT * FROM t") == []
    assert rows(db, "SELECT * FROM t VIEW i") == []
    assert db.describe("/t")["created_step"] > old["step"]
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'new')")
    assert_sound(db, "/t")
    with refused(db, "PATH_NOT_FOUND", "did not exist at step"):
        db.sql(f"SELECT * FROM t VERSION AS OF {old['step']}")


def test_columns_come_and_go(db: Database) -> None:
    db.sql("CREATE TABLE t (k Int32, a Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, a) VALUES (1, 'x')")
    first = db.step
    db.sql("ALTER TABLE t ADD COLUMN b Int64, ADD COLUMN c Double")
    assert rows(db, "SELECT k, a, b, c FROM t") == [(1, "x", None, None)]
    assert db.describe("/t")["version"] == 2
    db.sql("UPSERT INTO t (k, b) VALUES (1, 5), (2, 6)")
    second = db.step
    db.sql("ALTER TABLE t DROP COLUMN a, DROP COLUMN c")
    assert rows(db, "SELECT * FROM t") == [(1, 5), (2, 6)]
    assert_sound(db, "/t")
    assert rows(db, f"SELECT * FROM t VERSION AS OF {first}") == [(1, "x")]
    assert rows(db, f"SELECT * FROM t VERSION AS OF {second}") == [(1, "x", 5, None), (2, None, 6, None)]


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


@pytest.mark.parametrize("compacted", [False, True])
def test_a_column_added_again_under_its_name_does_not_bring_old_values_back(
    db: Database, compacted: bool
) -> None:
    db.sql(
        "CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'old'), (2, 'old')"
    )
    at_old = db.step
    if compacted:
        assert db.compact("/t")
    db.sql("ALTER TABLE t DROP COLUMN v")
    db.sql("ALTER TABLE t ADD COLUMN V Int32")
    assert rows(db, "SELECT k, v FROM t") == [(1, None), (2, None)]
    db.sql("UPSERT INTO t (k, v) VALUES (2, 7)")
    assert rows(db, "SELECT k, v FROM t") == [(1, None), (2, 7)]
    if compacted:
        assert db.compact("/t")
        assert rows(db, "SELECT k, v FROM t") == [(1, None), (2, 7)]
    assert rows(db, f"SELECT k, v FROM t VERSION AS OF {at_old}") == [(1, "old"), (2, "old")]
    assert_sound(db, "/t")


def test_drop_and_add_of_one_name_in_one_statement(db: Database) -> None:
    db.sql("CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k)); UPSERT INTO t (k, v) VALUES (1, 'old')")
    db.sql("ALTER TABLE t DROP COLUMN v, ADD COLUMN v Utf8")
    assert rows(db, "SELECT * FROM t") == [(1, None)]
    assert_sound(db, "/t")


def test_an_index_on_a_filled_table_holds_all_of_it(db: Database) -> None:
    db.sql("CREATE TABLE t (k Int32, a Utf8, b Int64, PRIMARY KEY (k))")
    db.sql("UPSERT INTO t (k, a, b) VALUES (1, 'x', 10), (2, NULL, 20), (3, '', NULL)")
    db.sql("UPSERT INTO t (k, a) VALUES (1, 'y'); DELETE FROM t WHERE k = 3")
    assert db.sql("ALTER TABLE t ADD INDEX i GLOBAL SYNC ON (a) COVER (b)").step == db.step
    assert content(db, "/t/i/indexImplTable") == [(None, 2, 20), ("y", 1, 10)]
    described = db.describe("/t")
    assert described["version"] == 2
    assert_sound(db, "/t")
    db.sql("UPSERT INTO t (k, a) VALUES (2, 'z')")
    assert rows(db, "SELECT k, b FROM t VIEW i WHERE a = 'z'") == [(2, 20)]
    db.sql("ALTER TABLE t DROP INDEX i")
    assert [p for p, _ in tree(db)] == ["/t"]
    assert db.describe("/t")["version"] == 3
    db.sql("ALTER TABLE t DROP COLUMN a")


def test_an_index_is_built_on_spark_with_the_same_result(
    connect: Callable[..., Database], spark: object
) -> None:
    digests = []
    for options in ({}, {"spark": spark, "settings": SPARK}):
        db = connect(**options)
        db.sql("CREATE TABLE t (k Int32, a Utf8, b Int64, PRIMARY KEY (k))")
        db.table("t").upsert([{"k": n, "a": str(n % 7) if n % 5 else None, "b": n} for n in range(100)])
        db.sql("DELETE FROM t WHERE k = 50; UPSERT INTO t (k, a) VALUES (7, 'seven')")
        db.sql("ALTER TABLE t ADD INDEX i GLOBAL ON (a) COVER (b)")
        digests.append([db.describe(p)["digest"] for p in ("/t", "/t/i/indexImplTable")])
        assert db.describe("/t/i")["rows"] == 99
        assert db.check("/t").ok
    assert digests[0] == digests[1]


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


def test_partitions_at_keys(db: Database) -> None:
    db.sql(
        "CREATE TABLE t (k Uint64, v Utf8, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (10, 18446744073709551615))"
    )
    assert db.describe("/t")["partition_at_keys"] == [[10], [18446744073709551615]]
    db.sql(
        "CREATE TABLE u (a Utf8, d Date, n Decimal(5,2), PRIMARY KEY (a, d, n)) WITH (PARTITION_AT_KEYS = ('a', ('b', DATE '2024-01-31'), ('b', '2024-02-01', 1.5)))"
    )
    bounds = db.describe("/u")["partition_at_keys"]
    assert [[str(v) for v in bound] for bound in bounds] == [
        ["a"],
        ["b", "2024-01-31"],
        ["b", "2024-02-01", "1.50"],
    ]


def test_uniform_partitions(db: Database) -> None:
    db.sql("CREATE TABLE t (k Uint8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 4)")
    assert db.describe("/t")["partition_at_keys"] == [[64], [128], [192]]
    db.sql("CREATE TABLE u (k Int8, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 2)")
    assert db.describe("/u")["partition_at_keys"] == [[0]]
    db.sql("CREATE TABLE w (k Uint64, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 1)")
    assert db.describe("/w")["partition_at_keys"] == []


def test_compaction_cuts_at_the_partitions(spark_db: Database) -> None:
    db = spark_db
    db.sql("CREATE TABLE t (k Uint32, v Utf8, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (10, 20))")
    db.table("t").upsert([{"k": n, "v": str(n)} for n in range(5, 25)])
    before = db.describe("/t")
    assert db.compact("/t")
    after = db.describe("/t")
    assert (after["rows"], after["digest"]) == (before["rows"], before["digest"])
    assert after["segments"] == 3
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


def test_a_text_with_a_fault_runs_not_at_all(db: Database) -> None:
    with refused(db, "SYNTAX_ERROR"):
        db.sql("CREATE TABLE a (k Int32, PRIMARY KEY (k)); CREATE TABEL b (k Int32, PRIMARY KEY (k))")


def test_tables_on_both_catalogs(connect: Callable[..., Database], catalog_url: str | None) -> None:
    db = connect(catalog=catalog_url)
    db.sql(FULL)
    db.sql(
        "UPSERT INTO `shop/orders` (id, line, customer, amount, note) VALUES (1, 1, 'ü', 9.5, '{}'), (18446744073709551615, NULL, NULL, NULL, NULL)"
    )
    db.sql("ALTER TABLE `shop/orders` ADD COLUMN z Int8")
    db.sql("ALTER TABLE `shop/orders` ADD INDEX by_z GLOBAL ON (z)")
    db.sql("UPDATE `shop/orders` SET z = 5 WHERE line = 1")
    assert_sound(db, "/shop/orders")
    db.sql("DROP TABLE `shop/orders`")
    assert tree(db) == [("/shop", "directory")]
