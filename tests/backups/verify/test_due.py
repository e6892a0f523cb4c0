"""Which objects a verification checks, in which order, and how old earlier results are."""

from __future__ import annotations

from math import inf
from typing import Any, cast

import pytest

from strandline.backups.verify.verification_history import Level, Looked, key_of
from strandline.backups.verify.verify_objects import Objects
from strandline.model import Segment, TableSchema

NEVER, OLD, NEW, SEEN = "never", "old", "new", "seen"
SCHEMA = TableSchema((), ())


def segment(name: str) -> Segment:
    return Segment(
        id=1, file=name, data=None, role="base", fresh=True, after=0, upto=1, rows=1, bytes=1,
        min_key=None, max_key=None, checksum="", stepped=True,
    )  # fmt: skip


def key(name: str) -> str:
    return key_of(segment(name))


def known(**damaged: set[str]) -> Looked:
    """Return results: one object was checked long ago, one recently, one was listed but not checked."""
    times = {
        "checksums": {key(OLD): 1.0, key(NEW): 5.0},
        "files": {key(NEVER): 7.0},
        "seen": {key(SEEN): 3.0},
    }
    return Looked(
        times, {cast(Level, level): {key(name) for name in names} for level, names in damaged.items()}
    )


def due(looked: Looked, level: Level = "checksums", **options: Any) -> list[str]:
    # Nothing is read, so no runtime is needed.
    objects = Objects(cast(Any, None), 1, looked, level)
    objects.add("b", [segment(name) for name in (NEW, SEEN, OLD, NEVER)], SCHEMA)
    found = objects.due(**{"sample": None, "again": False, **options})
    return [str(each.segment.file) for each in found]


def test_what_was_never_looked_at_so_closely_is_due() -> None:
    assert set(due(known())) == {NEVER, SEEN}
    assert due(known(), "files") == [SEEN]


def test_all_of_it_again_begins_with_what_has_waited_longest() -> None:
    assert set(due(known(), again=True)[:2]) == {NEVER, SEEN}
    assert due(known(), again=True)[2:] == [OLD, NEW]


@pytest.mark.parametrize(
    ("sample", "expected"),
    [(1, [OLD]), (25, [OLD]), (26, [OLD, SEEN]), (75, [OLD, SEEN, NEW]), (100, [OLD, SEEN, NEW, NEVER])],
)
def test_a_sample_is_of_what_has_waited_longest(sample: int, expected: list[str]) -> None:
    """An object that was never listed waits from now on."""
    assert due(known(), sample=sample) == expected


@pytest.mark.parametrize(("sample", "expected"), [(1, 3), (50, 150), (99, 297), (100, 300)])
def test_a_sample_has_as_many_percent_as_were_asked_for(sample: int, expected: int) -> None:
    objects = Objects(cast(Any, None), 1, Looked(), "checksums")
    objects.add("b", [segment(f"file {number}") for number in range(300)], SCHEMA)
    assert len(objects.due(sample=sample, again=False)) == expected


def test_what_was_damaged_is_looked_at_each_time() -> None:
    assert due(known(files={OLD, "of others"}), sample=1) == [SEEN, OLD]
    assert due(known(checksums={NEVER}), "files") == [SEEN, NEVER]


def test_when_it_was_last_found_well() -> None:
    found = known(checksums={OLD})
    assert [found.at(key(name), "files") for name in (OLD, NEW, NEVER, SEEN)] == [None, 5.0, 7.0, None]
    assert found.at(key(OLD), "checksums") is None, "it was damaged"
    assert [found.since(key(name), "checksums") for name in (NEW, SEEN, "other")] == [5.0, 3.0, inf]
    assert found.oldest([key(NEW), key(NEVER)], "files") == 5.0
    assert found.oldest([key(NEW), key(SEEN)], "files") is None
    assert found.oldest([], "files") == inf


def test_what_is_damaged_at_a_level_may_be_well_at_a_lower_one() -> None:
    found = Looked({"files": {"a": 2.0}, "restore": {"a": 9.0}}, {"checksums": {"a"}})
    assert [found.at("a", level) for level in ("chain", "files", "checksums")] == [2.0, 2.0, None]
