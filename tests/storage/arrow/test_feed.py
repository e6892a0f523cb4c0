"""What the five modes of a stream show of each change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.model import Chain
from strandline.storage.arrow.feed import feed as table
from strandline.storage.arrow.records import records
from strandline.storage.feed import MODES, STATEFUL_MODES, Feed
from strandline.types.arrays import column_to_python
from tests.quick_files import QuickFiles
from tests.storage.examples import History, histories, schema

KV = schema("k Int64", "v Utf8", "x Double", key="k")


def feed_of(history: History, mode: str, after: int = 0, upto: int | None = None) -> Feed:
    logs = tuple(s for s in history.segments if s.role == "log")
    before = history.chain(after) if mode in STATEFUL_MODES else None
    return Feed(
        schema=history.schema,
        mode=mode,
        after=after,
        upto=history.step if upto is None else upto,
        logs=logs,
        before=before,
    )


def expected(history: History, mode: str, after: int, upto: int) -> list[dict[str, Any]]:
    """Return the expected records, computed from the history."""
    names, key = history.schema.names, history.schema.key
    values = [n for n in names if n not in key]
    found = []
    for step, change in sorted(
        ((s, c) for s, c in history.log if after < s <= upto), key=lambda pair: pair[0]
    ):
        old = dict(zip(names, change.old, strict=True)) if change.old is not None else {}
        new = dict(zip(names, change.new, strict=True)) if change.new is not None else {}
        changed = [n for n in values if new and (not old or new[n] != old[n])]
        shown = {
            "KEYS_ONLY": {},
            "NEW_IMAGE": {n: new.get(n) for n in values},
            "OLD_IMAGE": {n: old.get(n) for n in values},
            "NEW_AND_OLD_IMAGES": {
                **{n: new.get(n) for n in values},
                **{f"old_{n}": old.get(n) for n in values},
            },
            "UPDATES": {**{n: new[n] if n in changed else None for n in values}, "changed": changed},
        }
        found.append(
            {"step": step, "op": change.op, **dict(zip(key, change.key, strict=True)), **shown[mode]}
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_mode_shows_what_happened(
    mode: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    history = data.draw(histories(tmp_path_factory.mktemp("history")))
    compacted = max([0, *(s.upto for s in history.segments if s.role == "base")])
    after = data.draw(st.integers(compacted, history.step))
    upto = data.draw(st.integers(after, history.step))
    feed = feed_of(history, mode, after, upto)
    found = list(records(history.cache, feed))

    def place(record: dict[str, Any]) -> tuple[int, str]:
        return record["step"], repr([record[n] for n in history.schema.key])

    assert [r["step"] for r in found] == sorted(r["step"] for r in found)
    assert sorted(found, key=place) == sorted(expected(history, mode, after, upto), key=place)
    arrow = table(history.cache, feed)
    assert arrow.num_rows == len(found)
    if found:
        assert arrow.column_names == list(found[0])
        for name in history.schema.key:
            assert column_to_python(history.schema[name].type, arrow[name]) == [r[name] for r in found]


def test_no_column_of_the_table_is_hidden(tmp_path: Path) -> None:
    history = History(
        QuickFiles(tmp_path),
        schema("Step Int64", "op Utf8", "old_v Utf8", "_old_v Utf8", "v Utf8", "changed Int8", key="Step"),
    )
    history.write("UPSERT", ["Step", "op", "v", "old_v", "changed"], [(5, "mine", "new", "also mine", 1)])
    (record,) = records(history.cache, feed_of(history, "NEW_AND_OLD_IMAGES"))
    assert record == {
        **{
            "_step": 1,
            "_op": "U",
            "Step": 5,
            "op": "mine",
            "old_v": "also mine",
            "_old_v": None,
            "v": "new",
            "changed": 1,
        },
        **{"old_op": None, "old_old_v": None, "old__old_v": None, "__old_v": None, "old_changed": None},
    }
    (record,) = records(history.cache, feed_of(history, "UPDATES"))
    assert record["_changed"] == ["op", "old_v", "_old_v", "v", "changed"]
    assert record["changed"] == 1


def test_nan_is_not_a_change_of_nan(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), KV)
    history.write("UPSERT", ["k", "v", "x"], [(1, "a", float("nan"))])
    history.write("UPSERT", ["k", "v"], [(1, "b")])
    assert [r["changed"] for r in records(history.cache, feed_of(history, "UPDATES"))] == [["v", "x"], ["v"]]


def test_a_table_without_value_columns(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), schema("k Utf8", key="k"))
    history.write("UPSERT", ["k"], [("a",), (None,)])
    history.write("DELETE ON", ["k"], [("a",)])
    for mode in MODES:
        found = list(records(history.cache, feed_of(history, mode)))
        assert [(r["step"], r["op"], r["k"]) for r in found] == [(1, "U", None), (1, "U", "a"), (2, "E", "a")]


def test_an_empty_window(tmp_path: Path) -> None:
    history = History(QuickFiles(tmp_path), KV)
    for mode in MODES:
        feed = Feed(
            schema=KV,
            mode=mode,
            after=0,
            upto=0,
            logs=(),
            before=Chain((), 0) if mode in STATEFUL_MODES else None,
        )
        assert list(records(history.cache, feed)) == []
        assert table(history.cache, feed).num_rows == 0
