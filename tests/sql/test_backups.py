"""Statements on backup collections, backups and restores."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal

import pytest

from strandline.errors import InvalidArgument, SyntaxFault
from strandline.sql.parser import parse
from strandline.sql.statements import (
    AddTable,
    AlterBackupCollection,
    Backup,
    CompactBackups,
    CreateBackupCollection,
    DropBackupCollection,
    ExplainStatement,
    RemoveTable,
    ResetSettings,
    Restore,
    RestoreTable,
    SetSettings,
    ShowBackupCollections,
    ShowBackups,
    Verify,
)


def test_create_collection() -> None:
    assert parse(
        "CREATE BACKUP COLLECTION c (TABLE t, TABLE `dir/u`) "
        "WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true', OMIT_INDEXES = 'false')"
    ) == [
        CreateBackupCollection(
            "c",
            ("/t", "/dir/u"),
            (("STORAGE", "cluster"), ("INCREMENTAL_BACKUP_ENABLED", "true"), ("OMIT_INDEXES", "false")),
        )
    ]
    assert parse("CREATE BACKUP COLLECTION `my c` DATABASE WITH (storage='x')") == [
        CreateBackupCollection("my c", None, (("STORAGE", "x"),))
    ]
    assert parse("CREATE BACKUP COLLECTION c (DATABASE) WITH (A=1)") == [
        CreateBackupCollection("c", None, (("A", 1),))
    ]
    assert parse("CREATE BACKUP COLLECTION c (TABLE Table) WITH (A=1)") == [
        CreateBackupCollection("c", ("/Table",), (("A", 1),))
    ]


def test_settings_keep_their_order_and_their_duplicates() -> None:
    [statement] = parse(
        "CREATE BACKUP COLLECTION c DATABASE WITH (a = 1, A = -2.5, b = TRUE, c = word, d = `w x`, e = Interval('PT1H'), f = 1e3)"
    )
    assert isinstance(statement, CreateBackupCollection)
    assert statement.settings == (
        ("A", 1),
        ("A", Decimal("-2.5")),
        ("B", True),
        ("C", "word"),
        ("D", "w x"),
        ("E", "PT1H"),
        ("F", Decimal(1000)),
    )


def test_alter_collection() -> None:
    assert parse("ALTER BACKUP COLLECTION c ADD TABLE t, DROP TABLE `a/u`, SET (X = 'y'), RESET (z, w)") == [
        AlterBackupCollection(
            "c", (AddTable("/t"), RemoveTable("/a/u"), SetSettings((("X", "y"),)), ResetSettings(("Z", "W")))
        )
    ]


def test_drop_backup_and_show() -> None:
    assert parse("DROP BACKUP COLLECTION c; DROP BACKUP COLLECTION IF EXISTS d") == [
        DropBackupCollection("c"),
        DropBackupCollection("d", True),
    ]
    assert parse("BACKUP c; BACKUP c INCREMENTAL; backup c nowait; BACKUP c INCREMENTAL NOWAIT") == [
        Backup("c"),
        Backup("c", True),
        Backup("c", False, True),
        Backup("c", True, True),
    ]
    assert parse("BACKUP INCREMENTAL") == [Backup("INCREMENTAL")]
    assert parse("BACKUP c INCREMENTAL OR FULL; BACKUP c incremental or full NOWAIT") == [
        Backup("c", True, or_full=True),
        Backup("c", True, True, or_full=True),
    ]
    assert parse("SHOW BACKUP COLLECTIONS; SHOW BACKUPS IN c; SHOW BACKUPS c") == [
        ShowBackupCollections(),
        ShowBackups("c"),
        ShowBackups("c"),
    ]


def test_compact() -> None:
    assert parse("COMPACT c; compact c nowait; COMPACT `my c` TO 'x'; COMPACT c TO 'x' NOWAIT") == [
        CompactBackups("c"),
        CompactBackups("c", nowait=True),
        CompactBackups("my c", "x"),
        CompactBackups("c", "x", nowait=True),
    ]
    (limited,) = parse("COMPACT c TO 'x' WITH (COPIES = 2) NOWAIT")
    assert limited == CompactBackups("c", "x", nowait=True, settings=(("COPIES", 2),))
    assert parse("COMPACT c INCREMENTS; compact c increments FROM 'a' TO 'b' nowait; COMPACT increments") == [
        CompactBackups("c", increments=True),
        CompactBackups("c", "b", nowait=True, increments=True, first="a"),
        CompactBackups("increments"),
    ]


def test_verify() -> None:
    assert parse("VERIFY c") == [Verify("c")]
    assert parse("VERIFY c AT '20260101120000Z_full'") == [Verify("c", "20260101120000Z_full")]
    settings = (("LEVEL", "files"), ("SAMPLE", 10), ("AGAIN", "true"))
    assert parse("VERIFY `my c` AT `x` WITH (level = 'files', SAMPLE = 10, AGAIN = 'true')") == [
        Verify("my c", "x", settings)
    ]


def test_restore() -> None:
    assert parse("RESTORE c") == [Restore("c")]
    assert parse("RESTORE c AT '20260101120000Z_full'") == [Restore("c", "20260101120000Z_full")]
    assert parse("RESTORE c AT `20260101120000Z_full` NOWAIT") == [
        Restore("c", "20260101120000Z_full", nowait=True)
    ]
    assert parse("RESTORE c AT 17") == [Restore("c", at_step=17)]
    assert parse("RESTORE c AT TIMESTAMP '2026-01-01T14:00:00+02:00'") == [
        Restore("c", at_timestamp=datetime(2026, 1, 1, 12, tzinfo=timezone.utc))
    ]
    assert parse(
        "RESTORE c AT 'x' TABLE a, TABLE `d/b` AS `e/b` INTO `new` WITH (VERIFY = 'full', N = 2) NOWAIT"
    ) == [
        Restore(
            "c",
            "x",
            tables=(RestoreTable("/a"), RestoreTable("/d/b", "/e/b")),
            into="/new",
            settings=(("VERIFY", "full"), ("N", 2)),
            nowait=True,
        )
    ]
    assert parse("RESTORE c (TABLE a, TABLE b)") == [
        Restore("c", tables=(RestoreTable("/a"), RestoreTable("/b")))
    ]


def test_explain_restore() -> None:
    [statement] = parse("EXPLAIN RESTORE c AT 'x'")
    assert statement == ExplainStatement(Restore("c", "x"))
    assert isinstance(statement, ExplainStatement)
    assert statement.statement.text == "RESTORE c AT 'x'"


def test_a_backup_may_have_settings() -> None:
    settings = (("MAX_BYTES_PER_SECOND", 50_000_000), ("COPIES", 2))
    given = "WITH (max_bytes_per_second = 50000000, COPIES = 2)"
    assert parse(
        f"BACKUP c {given}; BACKUP c INCREMENTAL {given}; BACKUP c INCREMENTAL OR FULL {given} NOWAIT"
    ) == [
        Backup("c", settings=settings),
        Backup("c", True, settings=settings),
        Backup("c", True, True, or_full=True, settings=settings),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE BACKUP c", "expected COLLECTION"),
        ("CREATE BACKUP COLLECTION d (TABLE Missing)", "expected WITH, found the end of the statement"),
        ("CREATE BACKUP COLLECTION d WITH (A = 1)", "expected \\( or DATABASE"),
        ("CREATE BACKUP COLLECTION d () WITH (A = 1)", "expected TABLE"),
        ("CREATE BACKUP COLLECTION d (t) WITH (A = 1)", "expected TABLE"),
        ("CREATE BACKUP COLLECTION d (TABLE t,) WITH (A = 1)", "expected TABLE"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH ()", "name of a setting"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH (A)", "expected ="),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH (A = )", "expected a string, a number"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH (A = 1e999)", "too large"),
        ("CREATE BACKUP COLLECTION d (TABLE t) WITH A = 1", "expected \\("),
        ("ALTER BACKUP COLLECTION c", "expected ADD, DROP, SET or RESET"),
        ("DROP BACKUP COLLECTION", "name of a backup collection"),
        ("BACKUP", "name of a backup collection"),
        ("BACKUP 'c'", "name of a backup collection"),
        ("BACKUP c NOWAIT INCREMENTAL", "expected the end"),
        ("BACKUP c WITH (COPIES = 1) INCREMENTAL", "expected NOWAIT or the end"),
        ("BACKUP c WITH (COPIES = 1) NOWAIT INCREMENTAL", "expected the end"),
        ("BACKUP c OR FULL", "expected INCREMENTAL, WITH, NOWAIT or the end"),
        ("BACKUP c INCREMENTAL OR", "expected OR FULL, WITH, NOWAIT or the end"),
        ("BACKUP c INCREMENTAL OR FULL FULL", "expected WITH, NOWAIT or the end"),
        ("COMPACT", "expected the name of a backup collection"),
        ("COMPACT c AT 'x'", "expected INCREMENTS, TO, WITH, NOWAIT or the end"),
        ("COMPACT c TO", "expected the name of a backup in quotes"),
        ("COMPACT c TO 'x' 'y'", "expected WITH, NOWAIT or the end"),
        ("COMPACT c WITH (COPIES = 1) TO 'x'", "expected NOWAIT or the end"),
        ("COMPACT c NOWAIT TO 'x'", "expected the end"),
        ("COMPACT c FROM 'x'", "expected INCREMENTS, TO, WITH, NOWAIT or the end"),
        ("COMPACT c INCREMENTS 'x'", "expected FROM, TO, WITH, NOWAIT or the end"),
        ("COMPACT c INCREMENTS FROM 'x' 'y'", "expected TO, WITH, NOWAIT or the end"),
        ("BACKUP c.d", "no dot"),
        ("VERIFY c AT", "name of a backup"),
        ("VERIFY c WITH (LEVEL = 'files') AT 'x'", "in this order"),
        ("VERIFY c NOWAIT", "in this order"),
        ("RESTORE c AT", "name of a backup"),
        ("RESTORE c AT TIMESTAMP 'x'", "is not a time"),
        ("RESTORE c AT 1.5", "expected a step number"),
        ("RESTORE c NOWAIT AT 'x'", "in this order"),
        ("RESTORE c (TABLE a", "expected , or \\)"),
        ("SHOW BACKUPS", "expected IN collection"),
    ],
)
def test_faults_say_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SyntaxFault, match=f"line 1, column .*{message}") as caught:
        parse(text)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["a/b", "..", "a\0"])
def test_a_collection_needs_a_name_of_one_component(name: str) -> None:
    with pytest.raises(InvalidArgument, match="line 1, column 8"):
        parse(f"BACKUP `{name}`")
