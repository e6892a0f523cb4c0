"""Verdicts on backups, from their records and from the state of the objects that they need."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from strandline.backups.record import BackupRecord
from strandline.backups.verify.verify_chain import SliceHealth, judge
from strandline.model import Digest
from tests.backups.test_records import FULL, ONE, TWO, digest, table

TABLE, INDEX = 100, 101
"""Base ids of the paths that hold a table and an index; the position in the chain is added."""


def held_at(record: BackupRecord, place: int, path: str = "/t", **changes: Any) -> BackupRecord:
    """Return the record with its own path ids for a table and its index."""
    found = record.tables[path]
    assert found.indexes[0].slice is not None
    index = replace(found.indexes[0], slice=replace(found.indexes[0].slice, target_id=INDEX + 10 * place))
    own = replace(
        found, slice=replace(found.slice, target_id=TABLE + 10 * place), indexes=(index,), **changes
    )
    return replace(record, tables={**record.tables, path: own})


CHAIN = [held_at(record, place) for place, record in enumerate((FULL, ONE, TWO))]
NAMES = [record.name for record in CHAIN]


def known(times: dict[int, float | None]) -> dict[int, SliceHealth]:
    return {id_: SliceHealth(since) for id_, since in times.items()}


def test_each_is_as_old_as_the_oldest_look_at_what_it_needs() -> None:
    found = judge(CHAIN, known({100: 5.0, 101: 9.0, 110: 3.0, 111: 8.0, 120: 7.0, 121: 8.5}), {})
    assert [found[name].since for name in NAMES] == [5.0, 3.0, 3.0]
    assert [found[name].because for name in NAMES] == [None] * 3
    found = judge(CHAIN, known({100: 5.0, 101: 9.0, 110: 6.0, 111: None, 120: 7.0, 121: 8.5}), {})
    assert [found[name].since for name in NAMES] == [5.0, None, None]
    assert [v.since for v in judge([replace(FULL, tables={})], {}, {}).values()] == [inf]


def test_damage_is_that_of_all_that_build_on_it() -> None:
    damaged = {id_: SliceHealth(1.0) for id_ in (100, 101, 110, 120, 121)}
    found = judge(CHAIN, {**damaged, 111: SliceHealth(1.0, "a hole")}, {})
    assert [found[name].because for name in NAMES] == [None, "a hole", "a hole"]
    found = judge(CHAIN, {**damaged, 100: SliceHealth(1.0, "first"), 110: SliceHealth(1.0, "then")}, {})
    assert [found[name].because for name in NAMES] == ["first"] * 3


def test_a_whole_slice_needs_nothing_before_it() -> None:
    anew = table(True, Digest(), digest(4))
    chain = [CHAIN[0], held_at(replace(ONE, tables={"/t": anew}), 1), CHAIN[2]]
    found = judge(
        chain,
        {
            100: SliceHealth(1.0, "a hole"),
            101: SliceHealth(1.0, "a hole"),
            110: SliceHealth(4.0),
            111: SliceHealth(4.0),
        },
        {},
    )
    assert [found[name].because for name in NAMES] == ["a hole", None, None]
    assert [found[name].since for name in NAMES] == [1.0, 4.0, 4.0]


def test_what_spoils_a_backup_as_a_whole_spoils_those_after_it() -> None:
    found = judge(CHAIN, {}, {NAMES[1]: "no manifest", NAMES[2]: "its own"})
    assert [found[name].spoiled for name in NAMES] == [None, "no manifest", "its own"]
    assert [found[name].because for name in NAMES] == [None, "no manifest", "its own"]
    found = judge(CHAIN, {110: SliceHealth(1.0, "a hole")}, {NAMES[0]: "no manifest"})
    assert [found[name].because for name in NAMES] == ["no manifest"] * 3
    assert [found[name].broken for name in NAMES] == [None] * 3


def test_a_chain_that_does_not_fit_breaks_where_it_does_not() -> None:
    gap = judge([CHAIN[0], replace(CHAIN[1], after_step=9), CHAIN[2]], {}, {})
    assert [gap[name].broken is None for name in NAMES] == [True, False, False]
    assert gap[NAMES[2]].broken == gap[NAMES[1]].broken == gap[NAMES[1]].because
    assert gap[NAMES[1]].since is None
    missing = judge([CHAIN[0], CHAIN[2]], {}, {})
    assert missing[NAMES[2]].broken == f"the backup {NAMES[1]}, on which {NAMES[2]} builds, is missing"
    first = judge([replace(CHAIN[1], parent=None)], {}, {})
    assert first[NAMES[1]].broken == f"the chain of {NAMES[1]} begins with an increment"
    wrong = replace(CHAIN[1].tables["/t"], slice=replace(CHAIN[1].tables["/t"].slice, before=digest(9)))
    sums = judge([CHAIN[0], replace(CHAIN[1], tables={"/t": wrong})], {}, {})
    assert "begins with the digest" in (sums[NAMES[1]].broken or "")


def test_a_table_is_followed_to_its_new_name() -> None:
    renamed = replace(CHAIN[1], tables={"/u": replace(CHAIN[1].tables["/t"], was="/t")})
    later = replace(CHAIN[2], tables={"/u": CHAIN[2].tables["/t"]})
    found = judge([CHAIN[0], renamed, later], {100: SliceHealth(1.0, "a hole"), 121: SliceHealth(0.5)}, {})
    assert [found[name].broken for name in NAMES] == [None] * 3
    assert [found[name].because for name in NAMES] == ["a hole"] * 3
    assert [found[name].since for name in NAMES] == [1.0, 1.0, 0.5]


def test_a_table_that_is_no_member_any_more_is_not_needed() -> None:
    left = replace(CHAIN[0], tables={"/u": held_at(FULL, 5).tables["/t"], **CHAIN[0].tables})
    found = judge([left, *CHAIN[1:]], {150: SliceHealth(1.0, "a hole")}, {})
    assert [found[name].because for name in NAMES] == ["a hole", None, None]
