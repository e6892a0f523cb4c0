"""CREATE, ALTER, DROP and CHECK TABLE."""

from __future__ import annotations

from datetime import date

import pytest

from strandline.errors import InvalidArgument, SyntaxFault, Unsupported
from strandline.model import IndexDef
from strandline.sql.parser import parse
from strandline.sql.statements import (
    AddChangefeed,
    AddColumn,
    AddIndex,
    AlterChangefeed,
    AlterTable,
    CheckTable,
    ColumnDef,
    CreateTable,
    DropChangefeed,
    DropColumn,
    DropIndex,
    DropTable,
)

K = ColumnDef("k", "Int32")


def test_create_table_with_indexes_and_partitions() -> None:
    text = (
        "CREATE TABLE t (k Uint64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n), "
        "INDEX by_n GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = (100, 200))"
    )
    [statement] = parse(text)
    assert statement == CreateTable(
        "/t",
        (ColumnDef("k", "Uint64", True), ColumnDef("v", "Utf8"), ColumnDef("n", "Int32")),
        ("k",),
        indexes=(
            IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",), cover=("n",)),
            IndexDef(name="by_n", kind="GLOBAL ASYNC", columns=("n",)),
        ),
        partition_at_keys=((100,), (200,)),
    )
    assert statement.text == text


def test_create_table_variants() -> None:
    assert parse("create table if not exists `a/b` (k Int32, primary key (k))") == [
        CreateTable("/a/b", (K,), ("k",), if_not_exists=True)
    ]
    assert parse("CREATE TABLE Table (k Int32, PRIMARY KEY (k))") == [CreateTable("/Table", (K,), ("k",))]
    assert parse("CREATE TABLE IF (k Int32 NULL, PRIMARY KEY (k))") == [CreateTable("/IF", (K,), ("k",))]
    assert parse("CREATE TABLE t (PRIMARY KEY (k), k Int32)") == [CreateTable("/t", (K,), ("k",))]


def test_words_of_the_grammar_can_be_columns() -> None:
    [statement] = parse(
        "CREATE TABLE t (primary Int32, index Utf8, key String, PRIMARY KEY (primary, key), INDEX index GLOBAL ON (index))"
    )
    assert isinstance(statement, CreateTable)
    assert [column.name for column in statement.columns] == ["primary", "index", "key"]
    assert statement.key == ("primary", "key")
    assert statement.indexes == (IndexDef(name="index", kind="GLOBAL SYNC", columns=("index",)),)


def test_types_keep_their_case_and_sizes() -> None:
    [statement] = parse(
        "CREATE TABLE t (a String, b string, c Decimal( 22 , 9 ), d numeric(5), `e f` Json, PRIMARY KEY (a))"
    )
    assert isinstance(statement, CreateTable)
    assert [column.type for column in statement.columns] == [
        "String",
        "string",
        "Decimal(22,9)",
        "numeric(5)",
        "Json",
    ]
    assert statement.columns[4].name == "e f"


def test_partitions_and_other_settings() -> None:
    [statement] = parse(
        "CREATE TABLE t (k Int32, s Utf8, d Date, PRIMARY KEY (k, s, d)) "
        "WITH (PARTITION_AT_KEYS = ((1, 'a', DATE '2026-01-01'), (2, NULL), -3), UNIFORM_PARTITIONS = 4, auto_partitioning = ENABLED)"
    )
    assert isinstance(statement, CreateTable)
    assert statement.partition_at_keys == ((1, "a", date(2026, 1, 1)), (2, None), (-3,))
    assert statement.uniform_partitions == 4
    assert statement.settings == (("AUTO_PARTITIONING", "ENABLED"),)


def test_alter_table() -> None:
    assert parse("ALTER TABLE t ADD COLUMN c Int64, DROP COLUMN d") == [
        AlterTable("/t", (AddColumn(ColumnDef("c", "Int64")), DropColumn("d")))
    ]
    assert parse("ALTER TABLE t ADD c Int64 NOT NULL, DROP d") == [
        AlterTable("/t", (AddColumn(ColumnDef("c", "Int64", True)), DropColumn("d")))
    ]
    assert parse("ALTER TABLE t ADD INDEX i GLOBAL ON (c)") == [
        AlterTable("/t", (AddIndex(IndexDef(name="i", kind="GLOBAL SYNC", columns=("c",))),))
    ]
    for kind in ("GLOBAL UNIQUE SYNC", "GLOBAL UNIQUE", "global unique"):
        assert parse(f"ALTER TABLE t ADD INDEX i {kind} ON (c, d) COVER (e)") == [
            AlterTable(
                "/t",
                (
                    AddIndex(
                        IndexDef(name="i", kind="GLOBAL SYNC", columns=("c", "d"), cover=("e",), unique=True)
                    ),
                ),
            )
        ]
    assert parse("ALTER TABLE t DROP INDEX i, DROP CHANGEFEED f") == [
        AlterTable("/t", (DropIndex("i"), DropChangefeed("f")))
    ]
    assert parse("ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON')") == [
        AlterTable("/t", (AddChangefeed("f", (("MODE", "NEW_AND_OLD_IMAGES"), ("FORMAT", "JSON"))),))
    ]
    assert parse("ALTER TABLE t ALTER CHANGEFEED f SET (MODE = 'UPDATES', FORMAT = JSON)") == [
        AlterTable("/t", (AlterChangefeed("f", (("MODE", "UPDATES"), ("FORMAT", "JSON"))),))
    ]
    assert parse("ALTER TABLE t ADD INDEX Int32, DROP INDEX") == [
        AlterTable("/t", (AddColumn(ColumnDef("INDEX", "Int32")), DropColumn("INDEX")))
    ]


def test_drop_and_check() -> None:
    assert parse("DROP TABLE t") == [DropTable("/t")]
    assert parse("DROP TABLE IF EXISTS `a/t`") == [DropTable("/a/t", True)]
    assert parse("CHECK TABLE t") == [CheckTable("/t")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE", "13: expected a table name, found the end"),
        ("CREATE TABLE t", "expected \\("),
        ("CREATE TABLE t ()", "expected a column name, found \\)"),
        ("CREATE TABLE t (k)", "expected a type"),
        ("CREATE TABLE t (k Int32)", "expected PRIMARY KEY"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k), PRIMARY KEY (k))", "given twice"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY ())", "a column of the key"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k),)", "expected a column name"),
        ("CREATE TABLE t (k Int32 PRIMARY KEY)", "expected , or \\)"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k)) garbage", "end of the statement, found garbage"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k), INDEX i ON (k))", "expected GLOBAL"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k), INDEX i GLOBAL (k))", "expected ON"),
        ("CREATE TABLE t (k Decimal(a), PRIMARY KEY (k))", "whole number"),
        ("CREATE TABLE t (k Decimal(1,2,3), PRIMARY KEY (k))", "precision,scale"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = 5)", "expected \\("),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = ())", "expected an expression"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (k))", "expected a constant"),
        (
            "CREATE TABLE t (k Int32, PRIMARY KEY (k)) WITH (PARTITION_AT_KEYS = (1), PARTITION_AT_KEYS = (2))",
            "given twice",
        ),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k)) WITH (UNIFORM_PARTITIONS = 0)", "positive"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k)) WITH ()", "name of a setting"),
        ('CREATE TABLE "t" (k Int32, PRIMARY KEY (k))', "expected a table name"),
        ("CREATE TABLE t (`` Int32, PRIMARY KEY (k))", "empty"),
        ("CREATE TABLE a.b (k Int32, PRIMARY KEY (k))", "has no dot"),
        ("CREATE TABLE a/b (k Int32, PRIMARY KEY (k))", "has no slash"),
        ("ALTER TABLE t", "expected ADD, ALTER, DROP or RENAME"),
        ("ALTER TABLE t ALTER CHANGEFEED f WITH (MODE = 'UPDATES')", "expected SET"),
        ("CREATE TABLE t (k Int32, PRIMARY KEY (k), INDEX i GLOBAL SYNC UNIQUE ON (k))", "expected ON"),
        ("ALTER TABLE t ADD CHANGEFEED f", "expected WITH"),
        ("ALTER TABLE t DROP", "expected COLUMN, INDEX or CHANGEFEED"),
        ("DROP TABLE t u", "end of the statement"),
        ("CHECK t", "expected TABLE"),
        ("CREATE TABLE t AS SELECT 1", "expected \\( with the PRIMARY KEY"),
        ("CREATE TABLE t (PRIMARY KEY (k)) AS", "SELECT"),
    ],
)
def test_faults_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SyntaxFault, match=f"line 1, column .*{message}") as caught:
        parse(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (k Int32 DEFAULT 1, PRIMARY KEY (k))",
        "CREATE TABLE t (k Int32, PRIMARY KEY (k), INDEX i GLOBAL UNIQUE ASYNC ON (k))",
        "ALTER TABLE t ALTER COLUMN c",
        "CREATE TABLE t (k Int32, PRIMARY KEY (k), INDEX i LOCAL ON (k))",
        "CREATE TABLE t (k Int32, PRIMARY KEY (k), INDEX i GLOBAL USING vector_kmeans_tree ON (k))",
        "ALTER TABLE t RENAME INDEX a TO b",
        "ALTER TABLE t SET (TTL = 1)",
    ],
)
def test_what_there_is_elsewhere_is_unsupported(text: str) -> None:
    with pytest.raises(Unsupported, match=r"line 1, column .* is not supported"):
        parse(text)


@pytest.mark.parametrize("name", ["a//b", "/", "..", "a/../b", "a\0b", "x" * 256])
def test_a_path_that_cannot_be_is_invalid(name: str) -> None:
    with pytest.raises(InvalidArgument, match="line 2, column 13"):
        parse(f"SELECT 1;\n DROP TABLE `{name}`")


@pytest.mark.parametrize("name", ["it's", 'say "x"', "a b", "日本", "a.b", ".backups/c", "😀"])
def test_names_may_hold_almost_anything(name: str) -> None:
    assert parse(f"DROP TABLE `{name}`") == [DropTable(f"/{name}")]
