"""Records of backups, and refusal of chains whose links do not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from sqlalchemy import update

from strandline import Database, records
from strandline.backups.backup.increment_plan import CutShard, CutSlice, Made
from strandline.backups.record import (
    BackupHead,
    BackupRecord,
    IndexRecord,
    SliceRecord,
    TableRecord,
    backup_heads,
    chain_to,
    slices_of,
)
from strandline.backups.repository.manifest import ObjectRecord, after_in, backup_of, file_of
from strandline.catalog import paths, sqltables
from strandline.errors import Corrupted, Internal
from strandline.model import Digest, IndexDef, TableSchema
from strandline.operations.streams import StreamSpec
from strandline.types import parse_type
from tests.backups.reading import CLUSTER, backups, last
from tests.storage.test_shards import segment

SCHEMA = TableSchema.of([("k", parse_type("Decimal(22,9)"), True), ("v", parse_type("Utf8"), False)], ("k",))
INDEX = IndexDef(name="by_v", kind="GLOBAL SYNC", columns=("v",))


def digest(number: int) -> Digest:
    return Digest(number, number * 2**100 + 7)


def table(whole: bool, before: Digest, after: Digest, index: bool = True) -> TableRecord:
    made = SliceRecord(
        source_id=10,
        target_id=20,
        version=3,
        whole=whole,
        before=before,
        after=after,
        delta=after - before,
        rows=5,
        tombstones=1,
        bytes=100,
    )
    indexes = (IndexRecord.of(INDEX, 4, replace(made, source_id=11)),) if index else ()
    return TableRecord(schema=SCHEMA, slice=made, indexes=indexes)


FULL = BackupRecord(
    name="1_full",
    kind="full",
    parent=None,
    after_step=0,
    step=10,
    time=1.5,
    stream="s1",
    tables={"/t": table(True, Digest(), digest(3))},
)
ONE = BackupRecord(
    name="2_incremental",
    kind="incremental",
    parent="1_full",
    after_step=10,
    step=20,
    time=2.5,
    stream="s2",
    tables={"/t": table(False, digest(3), digest(4))},
)
TWO = BackupRecord(
    name="3_incremental",
    kind="incremental",
    parent="2_incremental",
    after_step=20,
    step=30,
    time=3.5,
    stream="s3",
    tables={"/t": table(False, digest(4), digest(2))},
)


def with_slice(record: BackupRecord, **changes: Any) -> BackupRecord:
    found = record.tables["/t"]
    return replace(record, tables={"/t": replace(found, slice=replace(found.slice, **changes))})


def again(record: BackupRecord) -> BackupRecord:
    return records.from_text(BackupRecord, records.to_text(record), "a backup")


def test_they_come_back_as_they_were() -> None:
    for record in (FULL, ONE, TWO, replace(FULL, stream=None, tables={})):
        assert again(record) == record
    dropped = with_slice(ONE, delta=None)
    assert again(dropped) == dropped
    bounded = replace(
        FULL, tables={"/t": replace(FULL.tables["/t"], schema=replace(SCHEMA, bounds=((None,), (1,))))}
    )
    assert again(bounded).tables["/t"].schema.bounds == ((None,), (1,))


def test_sums() -> None:
    assert (FULL.rows, FULL.bytes, len(FULL.slices)) == (5, 200, 2)


def test_a_chain() -> None:
    assert chain_to([FULL, ONE, TWO], "3_incremental") == [FULL, ONE, TWO]
    assert chain_to([FULL, ONE, TWO], "1_full") == [FULL]
    assert [place for place, _ in slices_of([FULL, ONE, TWO], "/t")] == [0, 1, 2]
    assert [place for place, _ in slices_of([FULL, ONE, TWO], "/t", "by_v")] == [0, 1, 2]


@pytest.mark.parametrize(
    "records",
    [
        [ONE, TWO],
        [FULL, TWO],
        [FULL, replace(ONE, after_step=9), TWO],
        [FULL, replace(ONE, after_step=11), TWO],
        [FULL, replace(ONE, tables={}), TWO],
        [replace(FULL, kind="incremental"), ONE, TWO],
    ],
)
def test_links_that_do_not_fit(records: list[BackupRecord]) -> None:
    with pytest.raises(Corrupted):
        chain_to(records, "3_incremental")


@pytest.mark.parametrize(
    "chain",
    [
        [FULL, with_slice(ONE, before=digest(9)), TWO],
        [FULL, with_slice(ONE, after=digest(9)), TWO],
        [FULL, with_slice(ONE, delta=digest(9)), TWO],
        [FULL, with_slice(ONE, source_id=99), TWO],
        [with_slice(FULL, whole=False), ONE, TWO],
        [FULL, replace(ONE, tables={}), TWO],
    ],
)
def test_slices_that_do_not_fit(chain: list[BackupRecord]) -> None:
    with pytest.raises(Corrupted):
        slices_of(chain, "/t")


def test_a_table_that_was_no_member_for_a_while_does_not_go_on() -> None:
    """Also if its content is the same."""
    back = replace(TWO, tables={"/t": table(False, digest(3), digest(2))})
    assert len(slices_of([FULL, replace(back, after_step=10)], "/t")) == 2
    with pytest.raises(Corrupted, match="continues something that no earlier backup has"):
        slices_of([FULL, replace(ONE, tables={}), back], "/t")


def test_what_begins_anew_needs_nothing_of_before() -> None:
    damaged = with_slice(FULL, delta=digest(9))
    anew = replace(ONE, tables={"/t": table(True, Digest(), digest(4))})
    assert [place for place, _ in slices_of([damaged, anew, TWO], "/t")] == [1, 2]
    without = replace(ONE, tables={"/t": table(False, digest(3), digest(4), index=False)})
    built = replace(TWO, tables={"/t": replace(TWO.tables["/t"], indexes=anew.tables["/t"].indexes)})
    assert [place for place, _ in slices_of([FULL, without, built], "/t", "by_v")] == [2]


def test_a_slice_after_a_column_was_dropped_has_no_arithmetic() -> None:
    assert len(slices_of([FULL, with_slice(ONE, delta=None)], "/t")) == 2


def test_an_index_that_is_built_anew_begins_again() -> None:
    anew = replace(
        ONE, tables={"/t": replace(ONE.tables["/t"], indexes=table(True, Digest(), digest(4)).indexes)}
    )
    assert [place for place, _ in slices_of([FULL, anew, TWO], "/t", "by_v")] == [1, 2]
    assert slices_of([FULL, ONE], "/t", "other") == []


def test_the_head_of_a_backup_is_read_without_its_tables(db: Database) -> None:
    """Also of a record in another field order or form; and damage is reported."""
    db.sql(
        f"CREATE TABLE t (k Int32, PRIMARY KEY (k)); CREATE BACKUP COLLECTION c (TABLE t) {CLUSTER}; BACKUP c"
    )
    path = f"/.backups/collections/c/{backups(db)[0]}"
    with db._runtime.catalog.read() as conn:
        text, record = paths.require(conn, path).body, last(db)
    assert isinstance(record, BackupHead)
    shown = json.loads(text)
    others = [
        text,
        records.to_text(replace(record, pinned=True, stored='/a, "tables": /b')),
        records.to_text(record),
        json.dumps(dict(reversed(shown.items())), indent=1),
        json.dumps({**shown, "tables": {f'/, "tables": {n}': shown["tables"]["/t"] for n in range(20)}}),
    ]
    for other in others:
        with db._runtime.catalog.write() as tx:
            tx.conn.execute(
                update(sqltables.paths).where(sqltables.paths.c.name == record.name).values(body=other)
            )
        with db._runtime.catalog.read() as conn:
            ((_, head),) = backup_heads(conn, paths.require(conn, "/.backups/collections/c"))
        assert (head.name, head.step) == (record.name, record.step)
        assert head.pinned == (head.stored is not None) == ('"pinned"' in other)
    with db._runtime.catalog.write() as tx:
        damaged = update(sqltables.paths).where(sqltables.paths.c.name == record.name)
        tx.conn.execute(damaged.values(body=text.replace('"step"', '"stop"')))
    with pytest.raises(Corrupted, match="'step' is missing"):
        db.sql("PRUNE c KEEP LAST 1 FULL")


def test_the_names_of_manifests_tell_from_where_on_a_backup_holds_changes() -> None:
    """Of several manifests of one backup, the one that reaches back farthest is in effect."""
    name = "20260103120000Z_incremental"
    last = replace(TWO, name=name)
    swallowed = replace(last, merged=("20260102120000Z_incremental",), after_step=10)
    forms = [replace(last, synthetic=True), swallowed, last]
    files = [file_of(record) for record in forms]
    assert files == [f"backups/{name}{form}.json" for form in (".full", ".after-10", "")]
    assert [backup_of(file) for file in files] == [name] * 3
    for other in (
        "backups/x.json",
        f"backups/{name}.txt",
        f"backups/{name}.after-.json",
        f"a/backups/{name}.json",
    ):
        assert backup_of(other) is None
    assert [after_in(file) for file in files] == [-1, 10, inf]
    assert (backup_of("owners/1.json"), after_in("owners/1.json")) == (None, inf)


def test_what_is_not_done_yet_does_not_say_what_came_of_it() -> None:
    cut = CutShard(table_id=1, target_id=2, after=3, step=4, whole=False, base=None)
    made = cut.finish(Made(5, 6, 7, digest(8)))
    assert made.made + made.made == Made(10, 12, 14, digest(8) + digest(8))
    for missing in ("rows", "tombstones", "bytes", "delta"):
        changes: dict[str, Any] = {missing: None}
        with pytest.raises(Internal, match="path 1 is not cut yet"):
            _ = replace(made, **changes).made
    stream = StreamSpec(name="s", mode="NEW_IMAGE", format="JSON", owner=9)
    slice_ = CutSlice(
        table_id=1, target_id=2, after=3, step=4, whole=False, base=None, before=digest(1), stream=stream
    ).finish(made.made)
    with pytest.raises(Internal, match="path 1 is not cut yet"):
        slice_.record(1)
    assert replace(slice_, digest=digest(9)).record(1).after == digest(9)
    with pytest.raises(Internal, match="inline"):
        ObjectRecord.of(segment((1,), (2,)))
