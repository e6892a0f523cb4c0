"""``db.collection(name)``: every call end to end, and what is said of a mistyped argument."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline import Collection, Database, Keep
from strandline.errors import Cancelled, InvalidArgument, StrandlineError


@pytest.fixture
def shop(db: Database) -> Database:
    """Two tables, one of them with an index."""
    db.sql(
        "CREATE TABLE orders (id Uint32, total Int64, PRIMARY KEY (id), INDEX by_total GLOBAL SYNC ON (total))"
    )
    db.sql("CREATE TABLE customers (id Uint32, name Utf8, PRIMARY KEY (id))")
    db.sql("UPSERT INTO orders (id, total) VALUES (1, 10), (2, 20); UPSERT INTO customers VALUES (1, 'Ada')")
    return db


@pytest.fixture
def nightly(shop: Database) -> Collection:
    return shop.create_collection("nightly", ["orders", "customers"], incremental=True)


def change(db: Database) -> None:
    db.sql("UPSERT INTO orders (id, total) VALUES (3, 30)")


def orders(db: Database, path: str = "/orders") -> list[tuple[Any, ...]]:
    return sorted(db.table(path).scan().rows())


# --- collections -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_a_collection_is_created_with_its_settings(shop: Database, tmp_path: Path) -> None:
    place = tmp_path / "repository"
    c = shop.create_collection(
        "c",
        ["orders"],
        storage=place,
        incremental=True,
        omit_indexes=True,
        retention=Keep(daily=7, weekly=4),
        minimum=2,
        max_chain=5,
        compact_chain=True,
    )
    info = c.info()
    assert (info.name, info.tables, info.storage) == ("c", ("/orders",), str(place))
    assert (info.incremental, info.omit_indexes, info.encryption) == (True, True, False)
    assert (info.retention, info.minimum) == (Keep(daily=7, weekly=4), 2)
    assert (info.max_chain, info.compact_chain) == (5, True)
    assert (info.attached, info.state, info.backups) == (False, "ready", 0)


def test_a_collection_of_all_tables_is_in_the_warehouse_by_default(shop: Database) -> None:
    info = shop.create_collection("all").info()
    assert (info.tables, info.storage, info.incremental, info.retention) == (None, "cluster", False, None)


def test_a_table_that_does_not_exist_yet_is_a_warning(shop: Database) -> None:
    with pytest.warns(UserWarning, match="there is no table oders yet; did you mean orders?") as caught:
        shop.create_collection("c", ["oders"])
    assert [warning.filename for warning in caught] == [__file__]


def test_collections_are_listed_by_name(nightly: Collection, shop: Database) -> None:
    shop.create_collection("archive")
    assert [c.name for c in shop.collections()] == ["archive", "nightly"]
    assert repr(shop.collection("nightly")) == "<Collection nightly>"
    assert shop.collection("nightly").info().tables == ("/orders", "/customers")


def test_a_collection_is_dropped(nightly: Collection, shop: Database) -> None:
    nightly.backup()
    dropped = nightly.drop()
    assert (dropped.collection, dropped.backups, dropped.repository) == ("nightly", 1, None)
    assert dropped.until is not None
    assert shop.collections() == []


# --- backups ---------------------------------------------------------------------------------------------


def test_a_full_backup_and_an_increment(nightly: Collection, shop: Database) -> None:
    full = nightly.backup()
    change(shop)
    increment = nightly.backup(incremental=True)
    assert (full.kind, full.parent, full.rows) == ("full", None, 3)
    assert (increment.kind, increment.parent, increment.rows) == ("incremental", full.name, 1)
    assert full.step < increment.step
    assert set(full.tables) == {"/orders", "/customers"}
    assert full.bytes > 0
    assert datetime.now(timezone.utc) - full.time < timedelta(hours=1)
    assert (full.pinned, full.repository, full.full_because, full.warning) == (False, None, None, None)
    assert nightly.backups() == [full, increment]
    assert nightly.backup_info(full.name) == full
    assert nightly.info().backups == 2


def test_a_full_backup_says_why_it_is_no_increment(nightly: Collection, shop: Database) -> None:
    full = nightly.backup(full_if_needed=True)
    change(shop)
    assert full.kind == "full"
    assert full.full_because == "the collection 'nightly' has no full backup yet"
    increment = nightly.backup(incremental=True, full_if_needed=True)
    assert (increment.kind, increment.full_because) == ("incremental", None)


def test_a_backup_in_the_background(nightly: Collection) -> None:
    operation = nightly.backup(wait=False)
    seen = []
    backup = operation.wait(timeout=60, on_progress=lambda info: seen.append(info.id))
    assert backup == nightly.backups()[0]
    assert (operation.info().state, operation.info().kind) == ("done", "backup")
    assert set(seen) <= {operation.id}
    assert repr(operation) == f"<Operation {operation.id}>"


def test_a_restore_in_the_background_is_cancelled_or_done(nightly: Collection, shop: Database) -> None:
    nightly.backup()
    operation = nightly.restore(into="r", wait=False)
    try:
        ended = operation.cancel()
    except StrandlineError as error:
        assert error.code == "PRECONDITION_FAILED"  # It was faster.
        assert operation.wait().tables == ("/r/customers", "/r/orders")
    else:
        assert ended.state in ("cancelling", "cancelled")
        with pytest.raises(Cancelled):
            operation.wait(timeout=60)
        assert "/r" not in [entry.path for entry in shop.ls()]


def test_a_pinned_backup_stays(nightly: Collection) -> None:
    first, second = nightly.backup(), nightly.backup()
    nightly.pin(first.name)
    assert nightly.backup_info(first.name).pinned
    with pytest.raises(StrandlineError, match=f"{first.name} is pinned"):
        nightly.drop_backup(first.name)
    kept = nightly.prune(Keep(last=1), dry_run=True)
    assert [(d.backup, d.keep, d.reasons) for d in kept] == [
        (first.name, True, ("pinned",)),
        (second.name, True, ("last 1 full", "minimum")),
    ]
    nightly.unpin(first.name)
    assert not nightly.backup_info(first.name).pinned


def test_prune_decides_and_removes(nightly: Collection) -> None:
    first, second = nightly.backup(), nightly.backup()
    dry = nightly.prune("KEEP LAST 1 FULL", dry_run=True)
    assert [(d.backup, d.keep, d.reasons) for d in dry] == [
        (first.name, False, ("no rule keeps it",)),
        (second.name, True, ("last 1 full", "minimum")),
    ]
    assert [d.bytes for d in dry] == [first.bytes, None]
    assert nightly.backups() == [first, second]
    assert nightly.prune(Keep(last=1)) == dry
    assert nightly.backups() == [second]


def test_prune_without_rules_takes_those_of_the_collection(shop: Database) -> None:
    c = shop.create_collection("c", ["orders"], retention="KEEP LAST 1 FULL")
    backups = [c.backup(), c.backup()]
    assert c.backups() == backups[1:]
    assert [d.reasons for d in c.prune()] == [("last 1 full", "minimum")]


def test_a_dropped_backup_goes_with_what_builds_on_it(nightly: Collection, shop: Database) -> None:
    first = nightly.backup()
    change(shop)
    increment = nightly.backup(incremental=True)
    dry = nightly.drop_backup(first.name, dry_run=True)
    assert [(d.backup, d.keep, d.reasons) for d in dry] == [
        (increment.name, False, (f"builds on {first.name}",)),
        (first.name, False, ("named",)),
    ]
    assert len(nightly.backups()) == 2
    assert nightly.drop_backup(first.name) == dry
    assert nightly.backups() == []


def test_compact_makes_an_increment_a_full_backup(nightly: Collection, shop: Database) -> None:
    nightly.backup()
    change(shop)
    increment = nightly.backup(incremental=True)
    compacted = nightly.compact()
    assert (compacted.name, compacted.kind, compacted.parent) == (increment.name, "full", None)
    assert compacted.rows == 4
    assert nightly.compact(increment.name, wait=False).wait(60) == compacted


def test_neighbouring_increments_are_merged(nightly: Collection, shop: Database) -> None:
    full = nightly.backup()
    increments = []
    for _ in range(3):
        change(shop)
        increments.append(nightly.backup(incremental=True).name)
    (merged,) = nightly.merge_increments(since=increments[1])
    assert (merged.name, merged.parent) == (increments[2], increments[0])
    assert [b.name for b in nightly.backups()] == [full.name, increments[0], increments[2]]


# --- restores --------------------------------------------------------------------------------------------


def test_a_restore_under_another_name(nightly: Collection, shop: Database) -> None:
    before = orders(shop)
    backup = nightly.backup()
    change(shop)
    result = nightly.restore(at=backup.name, tables={"orders": "orders_before"}, verify="data")
    assert (result.backup, result.tables, result.rows) == (backup.name, ("/orders_before",), 2)
    assert result.verified == "data"
    assert orders(shop, "/orders_before") == before != orders(shop)
    assert shop.check("/orders_before").ok


@pytest.mark.parametrize(
    "at",
    [
        lambda backup: backup.name,
        lambda backup: backup.step,
        lambda backup: str(backup.step),
        lambda backup: backup.time + timedelta(milliseconds=1),
        lambda backup: (backup.time + timedelta(milliseconds=1)).isoformat(),
    ],
)
def test_a_backup_is_named_by_its_name_a_step_or_a_time(
    nightly: Collection, shop: Database, at: Callable[[strandline.BackupInfo], Any]
) -> None:
    first = nightly.backup()
    change(shop)
    nightly.backup(incremental=True)
    assert nightly.plan_restore(at=at(first), into="r").backup == first.name
    assert nightly.restore(at=at(first), into="r").backup == first.name
    assert nightly.open(at=at(first)).name == first.name


def test_a_restore_into_a_directory(nightly: Collection, shop: Database) -> None:
    nightly.backup()
    result = nightly.restore(tables=["orders"], into="deep/er")
    assert result.tables == ("/deep/er/orders",)
    assert orders(shop, "/deep/er/orders") == orders(shop)


def test_a_restore_in_place(nightly: Collection, shop: Database) -> None:
    before = orders(shop)
    nightly.backup()
    change(shop)
    result = nightly.restore(tables=["orders"], replace=True)
    assert orders(shop) == before
    assert list(result.replaced or {}) == ["/orders"]


def test_a_copying_restore_copies_what_its_plan_says(nightly: Collection) -> None:
    nightly.backup()
    plan = nightly.plan_restore(into="r", mode="copy")
    operation = nightly.restore(into="r", mode="copy", copies=2, wait=False)
    assert operation.wait(60).verified == "data"
    assert operation.info().progress["bytes"] == plan.bytes_copied > 0


def test_a_plan_changes_nothing(nightly: Collection, shop: Database) -> None:
    full = nightly.backup()
    change(shop)
    increment = nightly.backup(incremental=True)
    tree = shop.ls(depth=None)
    plan = nightly.plan_restore(tables={"orders": "orders_before"})
    assert (plan.backup, plan.chain) == (increment.name, (full.name, increment.name))
    (table,) = plan.tables
    assert (table.source, table.path, table.rows) == ("/orders", "/orders_before", 3)
    assert (table.replaces, table.blocked_by, plan.bytes_copied, plan.is_possible) == (False, None, 0, True)
    assert str(plan).splitlines()[0] == f"apply {full.name}: full backup, up to step {full.step}"
    assert [tuple(step) for step in plan.steps] == shop.sql(
        "EXPLAIN RESTORE nightly TABLE orders AS orders_before"
    ).rows()
    assert shop.ls(depth=None) == tree


def test_a_plan_says_what_is_in_the_way(nightly: Collection) -> None:
    nightly.backup()
    plan = nightly.plan_restore(tables=["orders"])
    assert ([table.blocked_by for table in plan.tables], plan.is_possible) == (["/orders"], False)
    plan = nightly.plan_restore(tables=["orders"], replace=True)
    assert ([table.replaces for table in plan.tables], plan.is_possible) == ([True], True)


def test_a_backup_is_read_in_place(nightly: Collection, shop: Database) -> None:
    before = orders(shop)
    first = nightly.backup()
    change(shop)
    nightly.backup(incremental=True)
    assert sorted(nightly.open().table("orders").scan().rows()) == orders(shop)
    backup = nightly.open(at=first.name)
    assert set(backup.tables) == {"/orders", "/customers"}
    table = backup.table("orders")
    assert sorted(table.scan().rows()) == before
    assert table.scan(["id"], "total = :total", view="by_total", params={"total": 20}).rows() == [(2,)]
    assert repr(backup) == f"<OpenBackup nightly/{first.name}>"
    assert repr(table) == f"<BackupTable /orders in nightly/{first.name}>"


def test_a_backup_is_a_data_frame(spark_db: Database) -> None:
    spark_db.sql("CREATE TABLE t (k Int32, PRIMARY KEY (k)); UPSERT INTO t VALUES (1)")
    c = spark_db.create_collection("c", ["t"])
    c.backup()
    spark_db.sql("UPSERT INTO t VALUES (2)")
    assert [row.k for row in c.open().table("t").df().collect()] == [1]


# --- repositories and verification -----------------------------------------------------------------------


def test_a_copy_in_a_repository_is_attached(nightly: Collection, shop: Database, tmp_path: Path) -> None:
    backup = nightly.backup()
    copied = nightly.copy_to(tmp_path / "copy")
    assert (copied.repository, copied.backups) == (str(tmp_path / "copy"), (backup.name,))
    assert copied.bytes > 0
    assert nightly.copy_to(str(tmp_path / "copy"), backup.name, wait=False).wait(60).backups == ()
    attached = shop.attach(tmp_path / "copy", "other")
    assert [b.repository for b in attached.backups()] == [str(tmp_path / "copy")]
    attached.restore(into="from_copy")
    assert orders(shop, "/from_copy/orders") == orders(shop)


def test_a_repository_is_attached_under_the_name_of_its_collection(
    connect: Callable[..., Database], shop: Database, tmp_path: Path
) -> None:
    shop.create_collection("elsewhere", ["orders"], storage=tmp_path / "repository").backup()
    assert connect().attach(tmp_path / "repository").name == "elsewhere"


def test_backups_are_verified_and_repaired(nightly: Collection) -> None:
    nightly.backup()
    report = nightly.verify(level="checksums")
    assert (list(report), report.level, len(report.backups)) == ([], "checksums", 1)
    assert list(nightly.repair()) == []


# --- mistypes --------------------------------------------------------------------------------------------

MISTYPES: list[tuple[Callable[[Any, Any], Any], str, str, str]] = [
    (lambda c, db: db.collection("nigthly").info(), "PATH_NOT_FOUND", "nigthly", "nightly"),
    (lambda c, db: db.collection("nigthly").backup(), "PATH_NOT_FOUND", "nigthly", "nightly"),
    (lambda c, db: db.create_collection("nightly"), "ALREADY_EXISTS", "nightly", "another name"),
    (lambda c, db: db.create_collection("a/b"), "INVALID_ARGUMENT", "a/b", ""),
    (lambda c, db: db.create_collection("c", "orders"), "INVALID_ARGUMENT", "'orders'", "a list of paths"),
    (lambda c, db: db.create_collection("c", []), "INVALID_ARGUMENT", r"\[\]", "a list of paths"),
    (lambda c, db: db.create_collection("c", storage="clster"), "INVALID_ARGUMENT", "clster", "'cluster'"),
    (lambda c, db: db.create_collection("c", retention="7 days"), "INVALID_ARGUMENT", "7 days", ""),
    (lambda c, db: db.create_collection("c", retention=Keep(daily=0)), "INVALID_ARGUMENT", "DAILY 0", ""),
    (lambda c, db: db.create_collection("c", minimum=0), "INVALID_ARGUMENT", "MINIMUM", ""),
    (lambda c, db: db.attach("somewhere", "c"), "INVALID_ARGUMENT", "somewhere", "full path"),
    (lambda c, db: c.backup(copies=0), "INVALID_ARGUMENT", "COPIES cannot be 0", "from 1 to 1000"),
    (lambda c, db: c.backup(max_bytes_per_second=-0.5), "INVALID_ARGUMENT", "-0.5", "no limit"),
    (lambda c, db: c.backup_info("latest"), "PATH_NOT_FOUND", "has no backup", "SHOW BACKUPS"),
    (lambda c, db: c.pin("20260101120000Z_full"), "PATH_NOT_FOUND", "has no backup", ""),
    (lambda c, db: c.drop_backup("latest"), "PATH_NOT_FOUND", "no backup 'latest'", ""),
    (lambda c, db: c.prune(), "PRECONDITION_FAILED", "has no retention rules", "RETENTION"),
    (lambda c, db: c.prune(Keep()), "INVALID_ARGUMENT", "KEEP", "LAST n FULL"),
    (lambda c, db: c.prune("KEEP DAILY"), "INVALID_ARGUMENT", "KEEP DAILY", "LAST n FULL"),
    (lambda c, db: c.restore(at="latest"), "PATH_NOT_FOUND", "no backup 'latest'", ""),
    (lambda c, db: c.restore(at="2026-13-01"), "INVALID_ARGUMENT", "2026-13-01", "ISO form"),
    (lambda c, db: c.restore(at=True), "INVALID_ARGUMENT", "at cannot be True", "a step"),
    (lambda c, db: c.restore(at=0), "PATH_NOT_FOUND", "by step 0", "The first one is"),
    (lambda c, db: c.restore(at="1999-01-01"), "PATH_NOT_FOUND", "by 1999-01-01", "The first one is"),
    (lambda c, db: c.restore(tables=["oders"]), "PATH_NOT_FOUND", "/oders is not in", "/orders"),
    (lambda c, db: c.restore(tables="orders"), "INVALID_ARGUMENT", "'orders'", "a list of paths"),
    (lambda c, db: c.restore(tables={}), "INVALID_ARGUMENT", r"\[\]", "a list of paths"),
    (lambda c, db: c.restore(mode="refrence"), "INVALID_ARGUMENT", "MODE cannot be 'refrence'", "'copy'"),
    (lambda c, db: c.restore(verify="date"), "INVALID_ARGUMENT", "VERIFY cannot be 'date'", "'data'"),
    (lambda c, db: c.restore(replace="perhaps"), "INVALID_ARGUMENT", "REPLACE .* 'perhaps'", "true"),
    (lambda c, db: c.restore(deadline=0), "INVALID_ARGUMENT", "DEADLINE", "3600"),
    (lambda c, db: c.restore(), "ALREADY_EXISTS", "already exists", "REPLACE"),
    (lambda c, db: c.plan_restore(mode="refrence"), "INVALID_ARGUMENT", "MODE cannot be", "'copy'"),
    (lambda c, db: c.open(at="latest"), "PATH_NOT_FOUND", "no backup 'latest'", ""),
    (lambda c, db: c.open().table("oders").scan().rows(), "PATH_NOT_FOUND", "/oders is not in", "/orders"),
    (lambda c, db: c.verify(level="deep"), "INVALID_ARGUMENT", "level cannot be 'deep'", "'files'"),
    (lambda c, db: c.copy_to("copies"), "INVALID_ARGUMENT", "copies", "full path"),
    (lambda c, db: c.copy_to("/tmp/x", "latest"), "PATH_NOT_FOUND", "no backup 'latest'", ""),
    (lambda c, db: c.compact("latest"), "PATH_NOT_FOUND", "no backup 'latest'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("call", "code", "message", "hint"), MISTYPES)
def test_a_mistype_is_an_error_with_a_code_and_a_hint(
    nightly: Collection, shop: Database, call: Callable[..., Any], code: str, message: str, hint: str
) -> None:
    backups, tree = [nightly.backup()], shop.ls(depth=None)
    with pytest.raises(StrandlineError, match=message) as caught:
        call(nightly, shop)
    assert (caught.value.code, caught.value.hint != "") == (code, True)
    assert hint in caught.value.hint
    assert (nightly.backups(), shop.ls(depth=None)) == (backups, tree)


def test_a_collection_takes_no_part_in_a_transaction(nightly: Collection, shop: Database) -> None:
    with shop.transaction(), pytest.raises(StrandlineError, match="part of a transaction"):
        nightly.backup()
    assert nightly.backups() == []


def test_help_reads_well() -> None:
    text = subprocess.run(
        [sys.executable, "-c", "import strandline; help(strandline.Collection)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "A backup collection: tables that are backed up together with their indexes, at one step." in text
    assert "-> 'list[BackupInfo]'" in text
    assert "incremental: Back up only the changes since the last backup." in text


def test_every_public_name_is_there() -> None:
    assert [name for name in strandline.__all__ if getattr(strandline, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'Collecton'"):
        strandline.Collecton  # noqa: B018
    assert issubclass(InvalidArgument, StrandlineError)
