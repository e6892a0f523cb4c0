"""The record of a compacted backup, and what of its chain is shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.backups.fold.compact_plan import is_at, to_full_backup
from strandline.model import Digest, Segment
from tests.backups.test_merge_plan import of
from tests.backups.test_records import FULL, ONE, TWO, digest
from tests.storage.test_shards import segment

HERE = segment((1,), (2,), 100)
FILE, SENT = replace(HERE, file="data/a"), replace(HERE, file="/repository/objects/a#1")


def test_what_it_becomes() -> None:
    renamed = replace(TWO, tables={"/u": replace(TWO.tables["/t"], was="/t")}, pinned=True)
    found = to_full_backup(renamed, {20: 77})
    slice_ = replace(
        TWO.tables["/t"].slice,
        whole=True,
        before=Digest(),
        delta=digest(2),
        rows=2,
        tombstones=0,
        bytes=77,
    )
    index = replace(TWO.tables["/t"].indexes[0], slice=replace(slice_, source_id=11))
    assert found == replace(
        renamed,
        kind="full",
        parent=None,
        after_step=0,
        synthetic=True,
        tables={"/u": replace(TWO.tables["/t"], slice=slice_, indexes=(index,))},
    )
    defined = replace(TWO.tables["/t"].indexes[0], holds="definition", slice=None)
    without = replace(TWO, tables={"/t": replace(TWO.tables["/t"], indexes=(defined,))})
    assert to_full_backup(without, {20: 77}).tables["/t"].indexes == (defined,)


@pytest.mark.parametrize(
    ("found", "root", "expected"),
    [
        (HERE, None, True),
        (FILE, None, True),
        (SENT, None, False),
        (HERE, "/repository", False),
        (FILE, "/repository", False),
        (SENT, "/repository", True),
        (SENT, "/repository/", True),
        (SENT, "/repo", False),
    ],
)
def test_where_a_segment_is(found: Segment, root: str | None, expected: bool) -> None:
    assert is_at(found, root) is expected
    assert of((FULL, [found])).is_shared(root) is expected


def test_what_has_changed_is_not_shared() -> None:
    same = replace(ONE, tables={"/t": replace(ONE.tables["/t"], slice=FULL.tables["/t"].slice)})
    assert of((FULL, [HERE]), (same, [])).is_shared(None)
    assert not of((FULL, [HERE]), (same, [HERE])).is_shared(None)
    assert not of((FULL, [HERE]), (ONE, [])).is_shared(None), "it ends elsewhere"


def test_how_it_is_called_and_cut() -> None:
    source = of((FULL, [HERE]), (ONE, [segment((5,), (9,), 60)]))
    assert (source.name, replace(source, index="i").name) == ("/t", "/t/i")
    (whole,) = source.shards(7, 1_000)
    assert (whole.target_id, whole.staging_id, whole.bytes, whole.digest) == (20, 7, 160, None)
    assert whole.slices == ((20, 10), (20, 20))
    first, second = source.shards(7, 90)
    assert (first.bytes, second.bytes) == (100, 60)
    assert (first.within.lower, first.within.upper, second.within.lower) == (None, (5,), (5,))
