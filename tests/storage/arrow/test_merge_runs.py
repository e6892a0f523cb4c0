"""Staged runs are merged in the order of keys: each is read once, with few rows in memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strandline.model import Segment
from strandline.storage.arrow import merge_runs
from strandline.storage.rows import Mode
from strandline.storage.segment import footer_of, read_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.staged_files import Staging, last_of_keys, stage
from tests.storage.examples import QuickFiles, schema

GROUP = 16
WIDE = schema("a Utf8", "k Int64", "v Utf8", key="a k")
Pair = tuple[str | None, int | None]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SegmentCache:
    """A cache of files whose row groups have few rows."""
    for module in ("strandline.storage.segment", "strandline.storage.arrow.merge_runs"):
        monkeypatch.setattr(f"{module}.ROW_GROUP_ROWS", GROUP)
    monkeypatch.setattr("strandline.storage.parquet.ParquetFile.write", _write_groups)
    return SegmentCache(QuickFiles(tmp_path))


def _write_groups(file: Any, rows: pa.Table) -> None:
    file._writer.write_table(rows, row_group_size=GROUP)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str | None, int]]:
    """How often each row group of each file was read."""
    found = Counter[tuple[str | None, int]]()

    def counted(
        cache: Any, schema: Any, segment: Segment, names: Any, groups: Sequence[int], **more: Any
    ) -> Any:
        found.update((segment.file, group) for group in groups)
        return read_segment(cache, schema, segment, names, groups, **more)

    monkeypatch.setattr(merge_runs, "read_segment", counted)
    return found


def staged(cache: SegmentCache, runs: Iterable[Sequence[Pair]], mode: Mode) -> list[list[Segment]]:
    """Stage runs of keys. Each row has the number of its run and its place there."""
    made = []
    for number, keys in enumerate(runs):
        texts = [f"{number} {place}" for place in range(len(keys))]
        rows = pa.table([pa.array(each) for each in (*zip(*keys, strict=True), texts)], ["a", "k", "v"])
        staging = Staging(files=cache.files, folder="staged/1-a", schema=WIDE, mode=mode)
        made.append(list(stage(staging, rows.to_batches()).segments))
    return made


def random_runs(rng: random.Random, count: int) -> list[list[Pair]]:
    """Return runs that overlap, are apart, or repeat few keys; some keys have NULLs."""
    made = []
    for number in range(count):
        low = rng.choice([0, number * 50])
        span = rng.choice([1, 3, 60, 5000])
        made.append(
            [
                (rng.choice([None, "", "x", "y"]), rng.choice([None, low + rng.randrange(span)]))
                for _ in range(rng.choice([1, GROUP, 100]))
            ]
        )
    return made


@pytest.mark.parametrize("mode", ["UPSERT", "INSERT"])
@pytest.mark.parametrize("passes", [1, 3])
def test_the_rows_come_in_the_order_of_keys_and_runs(
    cache: SegmentCache, monkeypatch: pytest.MonkeyPatch, mode: Mode, passes: int
) -> None:
    """INSERT keeps all rows of a key, so that the commit finds the second one."""
    if passes > 1:
        monkeypatch.setattr(merge_runs, "BUFFER_BYTES", 0)
        monkeypatch.setattr(merge_runs, "LEAST", 3)
    fold = partial(last_of_keys, WIDE, mode)
    for seed in range(15):
        runs = random_runs(random.Random(seed), 12)
        files = staged(cache, runs, mode)
        found = list(merge_runs.pieces_of(cache, WIDE, files, most=50, memory=1, fold=fold))
        rows = [row for piece in found for row in piece.to_pylist()]
        keys = [{(row["a"], row["k"]) for row in piece.to_pylist()} for piece in found]
        assert sum(map(len, keys)) == len(set().union(*keys)), "a key is in one piece only"
        expected: dict[Pair, list[str]] = {}
        for number, run in enumerate(runs):
            for place, key in enumerate(run):
                expected.setdefault(key, []).append(f"{number} {place}")
        came: dict[Pair, list[str]] = {}
        for row in rows:
            came.setdefault((row["a"], row["k"]), []).append(row["v"])
        if mode == "INSERT":
            assert {key: sorted(texts) for key, texts in came.items()} == {
                key: sorted(texts) for key, texts in expected.items()
            }
        else:
            assert {key: texts[-1] for key, texts in came.items()} == {
                key: texts[-1] for key, texts in expected.items()
            }


def test_each_row_group_is_read_once_and_few_are_in_memory(
    cache: SegmentCache, reads: Counter[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    runs = [[("x", rng.randrange(10**6)) for _ in range(320)] for _ in range(20)]
    files = staged(cache, runs, "UPSERT")
    held: list[int] = []
    for found in merge_runs.merge_runs(cache, WIDE, files):
        held.append(found.num_rows)
    groups = sum(footer_of(cache, segment).groups for run in files for segment in run)
    assert (len(reads), set(reads.values())) == (groups, {1})
    assert sum(held) == sum(len(set(run)) for run in runs)
    assert max(held) <= 2 * GROUP * len(runs)


def test_runs_that_do_not_overlap_are_opened_one_after_the_other(
    cache: SegmentCache, reads: Counter[Any]
) -> None:
    files = staged(cache, [[("x", 100 * n + k) for k in range(10)] for n in range(30)], "UPSERT")
    coming = merge_runs.merge_runs(cache, WIDE, files)
    next(coming)
    assert len(reads) <= 2
    assert sum(table.num_rows for table in coming) == 290


def test_more_runs_than_fit_into_memory_are_read_once_in_each_pass(
    cache: SegmentCache, reads: Counter[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_runs, "BUFFER_BYTES", 0)
    monkeypatch.setattr(merge_runs, "LEAST", 4)
    rng = random.Random(2)
    runs = [[("x", rng.randrange(10**6)) for _ in range(64)] for _ in range(16)]
    files = staged(cache, runs, "UPSERT")
    fold = partial(last_of_keys, WIDE, "UPSERT")
    rows = sum(p.num_rows for p in merge_runs.pieces_of(cache, WIDE, files, most=10**6, memory=1, fold=fold))
    assert rows == len({key for run in runs for key in run})
    assert set(reads.values()) == {1}
    assert {segment.file for run in files for segment in run} < {file for file, _ in reads}
    assert len(reads) <= 2 * 16 * 64 / GROUP + 16
