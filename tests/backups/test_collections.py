"""Collections: tables, settings, and names of backups."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import records
from strandline.backups.collection import CollectionRecord, CollectionSettings, repository_of, storage_of
from strandline.backups.record import next_name, stream_name, time_of
from strandline.errors import AlreadyExists, InvalidArgument, PathNotFound, StrandlineError

CLUSTER = ("STORAGE", "cluster")
NOON = 1767268800.0  # 2026-01-01 12:00:00 UTC


def again(collection: CollectionRecord) -> CollectionRecord:
    """Return the collection after a round trip through the catalog's format."""
    return records.from_text(CollectionRecord, records.to_text(collection), "a collection")


def test_settings_and_their_defaults() -> None:
    made = CollectionRecord.of(["/a"], [CLUSTER])
    assert (made.tables, made.settings.storage) == (("/a",), "cluster")
    assert not (made.settings.incremental or made.settings.omit_indexes)
    assert CollectionRecord.of(
        None, [CLUSTER, ("INCREMENTAL_BACKUP_ENABLED", True), ("OMIT_INDEXES", "FALSE")]
    ).settings.incremental
    assert again(made) == made
    assert again(CollectionRecord.of(None, [CLUSTER])).tables is None


@pytest.mark.parametrize(
    "settings",
    [
        [],
        [("OMIT_INDEXES", "true")],
        [CLUSTER, CLUSTER],
        [("STORAGE", "s3")],
        [("STORAGE", 1)],
        [CLUSTER, ("INCREMENTAL_BACKUP_ENABLED", "maybe")],
        [CLUSTER, ("INCREMENTAL_BACKUP_ENABLED", 1)],
        [CLUSTER, ("INCREMENTAL_BACKUP_ENABLED", "")],
        [CLUSTER, ("OMIT_INDEXES", 0)],
        [CLUSTER, ("OMIT_INDEXES", "true"), ("OMIT_INDEXES", "true")],
        [CLUSTER, ("NO_SUCH_SETTING", "1")],
        [CLUSTER, ("storage", "cluster")],
        [("STORAGE", "file://somewhere")],
        [CLUSTER, ("ENCRYPTION", "true")],
        [("ENCRYPTION", "true"), CLUSTER],
        [("STORAGE", "/a\0b")],
        *([CLUSTER, ("MAX_CHAIN", number)] for number in (0, -1, 1.5, True, "two", 10**9, "")),
        [CLUSTER, ("MINIMUM", 0)],
        [CLUSTER, ("COMPACT_CHAIN", 1)],
        [CLUSTER, ("RETENTION", "LAST 0 FULL")],
    ],
)
def test_settings_that_are_refused(settings: list[tuple[str, Any]]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        CollectionRecord.of(["/a"], settings)
    assert caught.value.hint
    if settings and settings != [("OMIT_INDEXES", "true")] and settings[0][0] != "STORAGE":
        with pytest.raises(InvalidArgument):
            CollectionRecord(tables=("/a",)).with_settings(settings)


def test_places_have_one_form() -> None:
    forms = {
        "cluster": "cluster",
        "/a/../b/": "/b",
        "file:///a/b": "/a/b",
        "file:///a%20b/%23": "/a b/#",
        "/a%20b": "/a%20b",
        "s3://bucket/a/": "s3://bucket/a",
        "~/a": os.path.expanduser("~/a"),
    }
    assert {given: storage_of(given) for given in forms} == forms
    assert repository_of("file:///a") == "/a"
    with pytest.raises(InvalidArgument, match="not a repository"):
        repository_of("cluster")


def test_increments_go_on_after_a_restore_only_where_the_chain_outlives_its_tables() -> None:
    kept = CollectionRecord.of(["/a"], [("STORAGE", "/r"), ("INCREMENTAL_BACKUP_ENABLED", True)])
    assert kept.goes_on_after("2_full")
    assert replace(kept, dropped="1_full").goes_on_after("2_full")
    assert not replace(kept, dropped="2_full").goes_on_after("2_full")
    assert not replace(kept, dropped="3_full").goes_on_after("2_full")
    assert not replace(kept, attached=True).goes_on_after("2_full")
    assert not kept.with_settings([CLUSTER]).goes_on_after("2_full")
    assert not kept.with_settings([("INCREMENTAL_BACKUP_ENABLED", False)]).goes_on_after("2_full")


def test_a_close_name_is_offered() -> None:
    with pytest.raises(InvalidArgument) as caught:
        CollectionRecord(tables=("/a",)).with_settings([("INCREMENTAL_BACKUP", "true")])
    assert "INCREMENTAL_BACKUP_ENABLED" in caught.value.hint


def test_settings_are_changed_and_put_back() -> None:
    changed = CollectionRecord(tables=("/a",)).with_settings(
        [("INCREMENTAL_BACKUP_ENABLED", "true"), ("OMIT_INDEXES", "true")]
    )
    assert (changed.settings.incremental, changed.settings.omit_indexes) == (True, True)
    assert changed.without_settings(["OMIT_INDEXES"]) == CollectionRecord(
        tables=("/a",), settings=CollectionSettings(incremental=True)
    )
    assert changed.without_settings(["INCREMENTAL_BACKUP_ENABLED", "OMIT_INDEXES"]) == CollectionRecord(
        tables=("/a",)
    )


def test_what_is_kept_in_the_warehouse_is_not_called_encrypted() -> None:
    sealed = CollectionRecord.of(["/a"], [("STORAGE", "/r"), ("ENCRYPTION", "true")])
    for settings in ([CLUSTER], [CLUSTER, ("MINIMUM", 2)]):
        with pytest.raises(InvalidArgument, match="is not encrypted"):
            sealed.with_settings(settings)
    assert not sealed.with_settings([CLUSTER, ("ENCRYPTION", "false")]).settings.encryption
    # A collection that an earlier version accepted can be changed.
    earlier = replace(sealed, settings=replace(sealed.settings, storage="cluster"))
    assert earlier.with_settings([("MINIMUM", 2)]).settings.minimum == 2
    assert earlier.with_settings([("STORAGE", "/r")]).settings.encryption


@pytest.mark.parametrize("names", [["STORAGE"], ["NOTHING"], ["OMIT_INDEXES", "OMIT_INDEXES"]])
def test_resets_that_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        CollectionRecord(tables=("/a",)).without_settings(names)


def test_tables_come_and_go() -> None:
    made = CollectionRecord(tables=("/a",)).with_table("/dir/b")
    assert made.tables == ("/a", "/dir/b")
    assert made.without_table("/a").without_table("/dir/b").tables == ()
    refused: list[tuple[Any, type[StrandlineError]]] = [
        (lambda: made.with_table("/a"), AlreadyExists),
        (lambda: made.without_table("/b"), PathNotFound),
        (lambda: made.with_table("/.backups/x"), InvalidArgument),
        (lambda: CollectionRecord.of(["/a", "/a"], [CLUSTER]), InvalidArgument),
        (lambda: CollectionRecord.of(["/.backups/collections/c/t"], [CLUSTER]), InvalidArgument),
        (lambda: CollectionRecord(tables=None).with_table("/a"), InvalidArgument),
        (lambda: CollectionRecord(tables=None).without_table("/a"), InvalidArgument),
    ]
    for act, error in refused:
        with pytest.raises(error):
            act()


def test_names() -> None:
    assert next_name("full", NOON + 0.9, []) == "20260101120000Z_full"
    assert stream_name("20260101120000Z_full") == "20260101120000Z_continuousBackupImpl"
    assert stream_name("20260101120000Z_incremental") == "20260101120000Z_continuousBackupImpl"


def test_a_name_that_its_streams_cannot_have_is_passed_over() -> None:
    taken = [
        "20260101120000Z_continuousBackupImpl",
        "20260101120001Z_continuousBackupImpl",
        "99991231235959Z_continuousBackupImpl",
        "feed",
    ]
    assert next_name("full", NOON, [], taken) == "20260101120002Z_full"
    assert next_name("full", NOON, ["20260101120000Z_full"], taken) == "20260101120002Z_full"


@given(st.lists(st.tuples(st.sampled_from(["full", "incremental"]), st.floats(-5, 5)), max_size=20))
def test_names_differ_and_sort_in_the_order_of_the_backups(taken: list[Any]) -> None:
    """Also if backups follow closely, and if the clock goes back."""
    made: list[str] = []
    for kind, shift in taken:
        made.append(next_name(kind, NOON + shift, made))
    assert made == sorted(made)
    times = [time_of(name) for name in made]
    assert len({stream_name(name) for name in made}) == len(made) == len(set(times))
    assert times == sorted(times)
