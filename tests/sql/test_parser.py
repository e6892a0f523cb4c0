"""Texts of several statements, refused texts, and that no text raises any other error."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.errors import InvalidArgument, StrandlineError, SyntaxFault, Unsupported
from strandline.sql.parser import parse
from strandline.sql.query import Query
from strandline.sql.statements import (
    Backup,
    Begin,
    Commit,
    Describe,
    DropTable,
    Explain,
    Rollback,
    Select,
    ShowCreateTable,
    ShowOperation,
    ShowOperations,
    ShowTables,
)

STATEMENTS = [
    "CREATE TABLE t (k Uint64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v) COVER (n), "
    "INDEX by_n GLOBAL ASYNC ON (n)) WITH (PARTITION_AT_KEYS = (100, 200))",
    "ALTER TABLE t ADD COLUMN c Int64, DROP COLUMN d",
    "ALTER TABLE t ADD CHANGEFEED f WITH (MODE = 'NEW_AND_OLD_IMAGES', FORMAT = 'JSON')",
    "UPSERT INTO t (k, v) VALUES (1, 'x'), (-2.5e3, CAST('7' AS Uint32))",
    "REPLACE INTO `a/t` SELECT k, 'it''s' AS v FROM u VIEW by_v WHERE v = 'x'",
    "UPDATE t SET v = v + 1, w = NULL WHERE k BETWEEN 1 AND 2 OR v IS NULL",
    "DELETE FROM t ON (k) VALUES (1), (2)",
    "DELETE FROM t WHERE k IN (SELECT k FROM u)",
    "SELECT key, value, __ydb_incrBackupImpl_deleted FROM `.backups/collections/c/20260101120000Z_full/Table` ORDER BY key",
    "WITH a AS (SELECT * FROM t VERSION AS OF 5) SELECT a.*, count(*) OVER (PARTITION BY k) FROM a JOIN b IN BACKUP c AT 'x' USING (k)",
    "SELECT k FROM t LATERAL VIEW explode(array(1, 2)) x AS y WHERE d > DATE '2026-01-01' LIMIT 5",
    "EXPLAIN EXTENDED SELECT 1",
    "CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true')",
    "ALTER BACKUP COLLECTION c ADD TABLE t, SET (X = 'y'), RESET (z)",
    "BACKUP c INCREMENTAL NOWAIT",
    "RESTORE c AT TIMESTAMP '2026-01-01' TABLE a AS b INTO `d` WITH (VERIFY = 'full')",
    "SHOW BACKUPS IN c",
    "DESCRIBE TABLE t",
    "CHECK TABLE t",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_know_their_text(text: str) -> None:
    [statement] = parse(text)
    assert statement.text == text
    assert parse(statement.text) == [statement]


def test_statements_are_separated_by_semicolons() -> None:
    statements = parse(";;\n BACKUP a ; -- ; not one\n SELECT ';' AS `;` /* ; */ FROM t;\n\n  DROP TABLE t;")
    assert statements == [Backup("a"), Select(Query("SELECT ';' AS `;` /* ; */ FROM t")), DropTable("/t")]
    assert [statement.position[:2] for statement in statements] == [(2, 2), (3, 2), (5, 3)]
    assert statements[0].text == "BACKUP a"


@pytest.mark.parametrize("text", ["", " \n", ";", ";;;", "-- nothing", "/* ; */"])
def test_no_statement_is_no_error(text: str) -> None:
    assert parse(text) == []


def test_all_statements_together() -> None:
    assert [statement.text for statement in parse(";\n".join(STATEMENTS))] == STATEMENTS


def test_case_does_not_matter() -> None:
    assert parse("bAcKuP C incremental") == [Backup("C", True)]


def test_show_and_describe() -> None:
    assert parse("SHOW TABLES; SHOW TABLES IN `a/b`; SHOW TABLES FROM `/`") == [
        ShowTables(),
        ShowTables("/a/b"),
        ShowTables("/"),
    ]
    assert parse("SHOW OPERATIONS; SHOW CREATE TABLE t") == [ShowOperations(), ShowCreateTable("/t")]
    assert parse("SHOW OPERATION 'a'; SHOW OPERATION 'b' ALL") == [
        ShowOperation("a"),
        ShowOperation("b", all=True),
    ]
    assert parse("DESCRIBE t; DESC TABLE t; DESCRIBE Table; DESCRIBE TABLE `a/Table`") == [
        Describe("/t"),
        Describe("/t"),
        Describe("/Table"),
        Describe("/a/Table"),
    ]


def test_queries() -> None:
    for text in (
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM t",
        "VALUES (1)",
        "(SELECT 1) UNION (SELECT 2)",
    ):
        assert parse(text) == [Select(Query(text))]
    assert parse("EXPLAIN FORMATTED SELECT * FROM t") == [Explain(Query("SELECT * FROM t"), "FORMATTED")]
    assert parse("explain SELECT 1") == [Explain(Query("SELECT 1"))]


def test_transactions() -> None:
    for text in ("BEGIN", "begin transaction", "BEGIN WORK", "START TRANSACTION"):
        assert parse(text) == [Begin()]
    assert parse("COMMIT; COMMIT WORK; ROLLBACK; rollback transaction") == [
        Commit(),
        Commit(),
        Rollback(),
        Rollback(),
    ]
    with pytest.raises(SyntaxFault, match="COMMIT"):
        parse("COMMIT PREPARED 'x'")
    with pytest.raises(SyntaxFault, match="expected TRANSACTION"):
        parse("START")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SAVEPOINT a", r"leaves its transaction as it was"),
        ("END", "COMMIT or ROLLBACK"),
        ("DECLARE $x AS Uint64", "in their place"),
        ("PRAGMA TablePathPrefix = '/x'", "in their place"),
        ("$x = 1", "Bind one"),
        ("SELECT * FROM t WHERE k = $k", "Bind one"),
        ("TRUNCATE TABLE t", "DELETE"),
        ("USE x", "connect"),
        ("CREATE VIEW v AS SELECT 1", "views of the Spark session"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "views of the Spark session"),
        ("CREATE OR REPLACE TEMP VIEW v AS SELECT 1", "views of the Spark session"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "DELETE FROM table; INSERT INTO table"),
        ("CREATE TABLE t USING delta AS SELECT 1", "Leave it out"),
        ("CREATE TABLE t (k INT, PRIMARY KEY (k)) USING delta", "Leave it out"),
        ("CREATE INDEX i ON t (v)", "ADD INDEX"),
        ("DROP DATABASE d", "name is a path"),
        ("CREATE ROLE r", "Only TABLE"),
        ("INSERT OVERWRITE t SELECT 1", "DELETE FROM table; INSERT INTO table"),
        ("GRANT ALL ON t TO x", "SQL reference"),
        ("TABLE t", "SELECT"),
        ("EXPLAIN DROP TABLE t", "EXPLAIN"),
        ("EXPLAIN DROP BACKUP COLLECTION c", "EXPLAIN"),
        ("EXPLAIN COST UPSERT INTO t (k) VALUES (1)", "EXPLAIN"),
    ],
)
def test_what_there_is_elsewhere_is_unsupported_and_the_hint_says_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(Unsupported, match=r"line 2, column \d+") as caught:
        parse(f"SELECT 1;\n{text}")
    assert re.search(hint, caught.value.hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELEC 1", "expected a statement, found SELEC", "SELECT"),
        ("1", "expected a statement, found 1", "Statements start with"),
        ("'x'", "expected a statement", "Statements start with"),
        ("\\d orders", r"expected a statement, found \\", "backslash"),
        (")", "expected a statement", "Statements start with"),
        ("CREATE", "expected TABLE, BACKUP COLLECTION or SCHEDULE, found the end", "Only TABLE"),
        ("CREATE TABEL t", "expected TABLE, BACKUP COLLECTION or SCHEDULE, found TABEL", "Only TABLE"),
        ("SHOW", "expected TABLES", "The form is: SHOW"),
        ("SHOW TABLES IN", "expected a directory", "The form is: SHOW"),
        ("SHOW DATABASES", "found DATABASES", "Names are paths"),
        ("SHOW COLUMNS IN t", "found COLUMNS", "DESCRIBE table"),
        ("SELECT * FROM t@v1", "a name cannot have @", "VERSION AS OF step"),
        ("EXPLAIN", "expected a query", "The form is: EXPLAIN"),
        ("EXPLAIN foo", "expected a query", "The form is: EXPLAIN"),
        ("SELECT FROM", "expected table name", "The form is: SELECT"),
        ("DESCRIBE", "expected a table name", "The form is: DESCRIBE"),
        ("DESCRIBE a b", "expected the end of the statement", "The form is: DESCRIBE"),
    ],
)
def test_faults(text: str, message: str, hint: str) -> None:
    with pytest.raises(SyntaxFault, match=f"line 1, column .*{message}") as caught:
        parse(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("INSERT INTO TABLE t (k) VALUES (1)", "INSERT INTO t (k) VALUES (1)"),
        ("INSERT INTO TABLE VALUES (1)", "INSERT INTO `TABLE` VALUES (1)"),
        ("INSERT INTO TABLE (k) VALUES (1)", "INSERT INTO `TABLE` (k) VALUES (1)"),
        (
            "ALTER TABLE t ADD COLUMNS (a INT, b STRING NOT NULL)",
            "ALTER TABLE t ADD COLUMN a INT, ADD b STRING NOT NULL",
        ),
        ("ALTER TABLE t DROP COLUMNS (a, b)", "ALTER TABLE t DROP COLUMN a, DROP COLUMN b"),
        ("ALTER TABLE t ADD COLUMNS Int32", "ALTER TABLE t ADD COLUMN `COLUMNS` Int32"),
        ("RESTORE t TO VERSION AS OF 3", "RESTORE TABLE t TO VERSION AS OF 3"),
    ],
)
def test_spark_and_delta_may_spell_it_otherwise(written: str, meant: str) -> None:
    assert parse(written) == parse(meant)


def refused_or_read(text: str) -> None:
    """Parse a text, which may only raise the documented errors."""
    with contextlib.suppress(SyntaxFault, Unsupported, InvalidArgument):
        parse(text)


@given(st.text())
@example("\0")
@example("\ufeff SELECT 1")
@example("SELECT '\ud800'")
@settings(deadline=None, max_examples=300)
def test_any_text_is_read_or_refused(text: str) -> None:
    refused_or_read(text)


PIECES = st.sampled_from(
    [
        piece
        for text in STATEMENTS
        for piece in text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    ]
    + [
        "'",
        '"',
        "`",
        ";",
        "--",
        "/*",
        "*/",
        "$",
        "\0",
        ".",
        "::",
        "NULL",
        "1e5",
        "VIEW",
        "VERSION",
        "AS",
        "OF",
        "IN",
        "BACKUP",
        "LATERAL",
    ]
)


@given(st.lists(PIECES, max_size=25))
@settings(deadline=None, max_examples=500)
def test_any_words_are_read_or_refused(pieces: list[str]) -> None:
    refused_or_read(" ".join(pieces))


@pytest.mark.slow
@given(st.sampled_from(STATEMENTS), st.data())
@settings(deadline=None, max_examples=500)
def test_any_damage_to_a_statement_is_read_or_refused(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 10)))
        text = text[:start] + data.draw(st.one_of(st.text(max_size=3), PIECES)) + text[end:]
    refused_or_read(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 100_000,
        "SELECT " + "(" * 60 + "1" + ")" * 60 + " FROM t GROUP BY 1",
        "DELETE FROM t WHERE " + "NOT " * 20_000 + "k",
        "SELECT " + "9" * 10**6,
        "SELECT * FROM t WHERE k = '" + "x" * 10**7,
        "SELECT " + "CASE WHEN a THEN " * 1000 + "1" + " END" * 1000,
        "SELECT " + "a." * 5000 + "b",
        "UPSERT INTO t VALUES (" + "(" * 100_000,
        "SELECT * FROM " + "(SELECT * FROM " * 400 + "t" + ")" * 400,
        ";" * 10**5,
        "`" * 10**6,
        "SELECT * FROM t VIEW" * 1000,
        "SELECT " + "[" * 1000 + "{" * 1000,
        "WITH " + "a AS (WITH " * 200,
    ],
    ids=lambda text: str(text)[:20],
)
def test_huge_and_deep_texts_are_refused_in_time(text: str) -> None:
    refused_or_read(text)


def test_a_string_of_ten_megabytes_is_just_a_string() -> None:
    text = "x" * 10**7
    [write, select] = parse(f"UPSERT INTO t VALUES ('{text}'); SELECT length('{text}') FROM t GROUP BY 1")
    assert len(write.text) > 10**7
    assert isinstance(select, Select)


def test_long_chains_are_fine() -> None:
    parse("SELECT 1" + " UNION ALL SELECT 1" * 1000)
    parse("SELECT k FROM t WHERE " + " OR ".join(f"k = {i}" for i in range(3000)) + " GROUP BY k")
    parse(";".join(["DELETE FROM t"] * 20_000))


def test_every_error_is_a_strandline_error_with_a_place() -> None:
    for text in ("SELECT (", "UPSERT INTO t VALUES (1", "CREATE TABLE t (k", "RESTORE c AT TIMESTAMP 'x'"):
        with pytest.raises(StrandlineError, match="line 1, column"):
            parse(text)
