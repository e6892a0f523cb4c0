"""What backups record, and that a chain whose links do not fit is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.backups.record import BackupRecord, IndexRecord, SliceRecord, TableRecord, chain_to, slices_of
from strandline.errors import Corrupted
from strandline.model import Digest, IndexDef, TableSchema
from strandline.types import parse_type

SCHEMA = TableSchema.of([("k", parse_type("Decimal(22,9)"), True), ("v", parse_type("Utf8"), False)], ("k",))
INDEX = IndexDef("by_v", "GLOBAL SYNC", ("v",))


def digest(number: int) -> Digest:
    return Digest(number, number * 2**100 + 7)


def table(whole: bool, before: Digest, after: Digest, index: bool = True) -> TableRecord:
    made = SliceRecord(10, 20, 3, whole, before, after, after - before, 5, 1, 100)
    return TableRecord(
        SCHEMA, made, (IndexRecord(INDEX, 4, "data", replace(made, source_id=11)),) if index else ()
    )


FULL = BackupRecord("1_full", "full", None, 0, 10, 1.5, "s1", {"/t": table(True, Digest(), digest(3))})
ONE = BackupRecord(
    "2_incremental", "incremental", "1_full", 10, 20, 2.5, "s2", {"/t": table(False, digest(3), digest(4))}
)
TWO = BackupRecord(
    "3_incremental",
    "incremental",
    "2_incremental",
    20,
    30,
    3.5,
    "s3",
    {"/t": table(False, digest(4), digest(2))},
)


def with_slice(record: BackupRecord, **changes: Any) -> BackupRecord:
    found = record.tables["/t"]
    return replace(record, tables={"/t": replace(found, slice=replace(found.slice, **changes))})


def test_they_come_back_as_they_were() -> None:
    for record in (FULL, ONE, TWO, replace(FULL, stream=None, tables={})):
        assert BackupRecord.from_json(record.to_json()) == record
    dropped = with_slice(ONE, delta=None, target_id=None)
    assert BackupRecord.from_json(dropped.to_json()) == dropped
    bounded = replace(
        FULL, tables={"/t": replace(FULL.tables["/t"], schema=replace(SCHEMA, bounds=((None,), (1,))))}
    )
    assert BackupRecord.from_json(bounded.to_json()).tables["/t"].schema.bounds == ((None,), (1,))


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


def test_a_slice_after_a_column_was_dropped_has_no_arithmetic() -> None:
    assert len(slices_of([FULL, with_slice(ONE, delta=None)], "/t")) == 2


def test_an_index_that_is_built_anew_begins_again() -> None:
    anew = replace(
        ONE, tables={"/t": replace(ONE.tables["/t"], indexes=table(True, Digest(), digest(4)).indexes)}
    )
    assert [place for place, _ in slices_of([FULL, anew, TWO], "/t", "by_v")] == [1, 2]
    assert slices_of([FULL, ONE], "/t", "other") == []
