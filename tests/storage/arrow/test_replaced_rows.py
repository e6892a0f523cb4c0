"""The positions of rows in files are found by their keys."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.model import State
from strandline.storage import segment as segments
from strandline.storage.arrow import replaced_rows
from strandline.storage.arrow.replaced_rows import find_positions, find_replaced, fold_logs
from strandline.storage.keys import keys_of
from strandline.storage.segment import read_segment
from strandline.storage.segment_cache import SegmentCache
from tests.storage.examples import History, QuickFiles, schema

KV = schema("k Int64", "t Utf8 NOT NULL", "v Utf8", key="k t")
KEYS = [(k, t) for k in (None, *range(300)) for t in "abc"]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A table of three files that overlap. Each has many row groups and is too large to be cached."""
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 16)
    monkeypatch.setattr(segments, "SMALL_BYTES", 0)
    made = History(QuickFiles(tmp_path), KV)
    for i in range(3):
        made.write("INSERT", ["k", "t", "v"], [(*key, "v") for key in KEYS[i::3]], inline=False)
    return made


def table_of(keys: list[tuple[int | None, str]]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in keys], pa.int64()), "t": pa.array([t for _, t in keys], pa.string())}
    )


@pytest.mark.parametrize("batch", [20, 1 << 20])
def test_positions_are_those_of_the_rows_with_the_keys(
    history: History, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(replaced_rows, "BATCH_ROWS", batch)
    rng, chain = random.Random(1), history.chain().segments
    for count in (1, 3, 40, len(KEYS)):
        keys = [*rng.sample(KEYS, count), (1000, "a"), (5, "other")]
        found = find_positions(history.cache, KV, chain, table_of(keys))
        for segment, at in zip(chain, found, strict=True):
            rows = keys_of(KV, read_segment(history.cache, KV, segment, KV.key))
            assert at.tolist() == [i for i, key in enumerate(rows) if key in keys]


def test_a_table_of_which_too_much_would_be_read_is_refused(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = history.chain().segments
    monkeypatch.setattr(replaced_rows, "READ_ROWS", 100)
    assert find_positions(history.cache, KV, chain, table_of(KEYS)) == ()
    assert len(find_positions(history.cache, KV, chain, table_of(KEYS[:1]))) == 3
    monkeypatch.setattr(replaced_rows, "FILE_ROWS", 100)
    assert find_positions(history.cache, KV, chain, table_of(KEYS[:1])) == ()
    monkeypatch.undo()
    monkeypatch.setattr(replaced_rows, "FILES", 2)
    assert find_positions(history.cache, KV, chain, table_of(KEYS[:1])) == ()


def test_a_scan_after_a_commit_looks_up_only_its_keys(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = history.chain().segments
    rng = random.Random(2)
    for number in range(12):
        if number == 4:
            monkeypatch.setattr(replaced_rows, "READ_ROWS", 3 * 3 * 16)
        some = rng.sample(KEYS, 40 if number < 4 else 3)
        history.write("UPSERT", ["k", "t", "v"], [(*key, "w") for key in some])
        state = State(KV, history.chain())
        logs = state.chain.segments[len(stored) :]
        keys, _ = fold_logs(history.cache, state, [], logs, ["k", "t", "v"])
        found = find_replaced(history.cache, state, stored, logs, keys)
        assert found is not None
        changed = set(keys_of(KV, keys))
        for segment in stored:
            rows = keys_of(KV, read_segment(history.cache, KV, segment, KV.key))
            assert found[str(segment.file)].tolist() == [i for i, key in enumerate(rows) if key in changed]
    assert find_replaced(SegmentCache(history.cache.files), state, stored, logs, keys) is None
    early = replace(state, chain=replace(state.chain, step=len(stored) + 1))
    keys, _ = fold_logs(history.cache, early, [], logs[:1], ["k", "t", "v"])
    assert find_replaced(history.cache, early, stored, logs[:1], keys) is None, "fewer keys are not added"
