"""Folders and catalogs of the same warehouse are opened; others are refused and stay unchanged."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, select, text

import strandline
from strandline import Database, Settings
from strandline.catalog import sqltables
from strandline.catalog.connection import Catalog
from strandline.errors import PreconditionFailed, Unavailable
from tests.catalogs import Death
from tests.crash.failures import BROKEN, FaultyFiles
from tests.crash.mortal import Fate, MortalFiles
from tests.processes import READY, run_at_once

FILES = Settings(inline_rows=0)
"""Settings with which each commit writes a file."""


@pytest.fixture
def url(new_catalog_url: str | None, tmp_path: Path) -> str:
    """The URL of an empty catalog database outside of warehouses."""
    return new_catalog_url or f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder for warehouses, which is also the current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def fill(db: Database) -> None:
    db.sql("CREATE TABLE IF NOT EXISTS t (k Int32, v Utf8, PRIMARY KEY (k))")
    db.sql(f"UPSERT INTO t (k, v) VALUES ({db.step}, 'x')")


def make(folder: str | Path, url: str, **options: object) -> None:
    """Create a warehouse with one data file."""
    with strandline.connect(folder, catalog=url, settings=FILES, **options) as db:  # type: ignore[arg-type]
        fill(db)


def location(url: str) -> str | None:
    engine = create_engine(url)
    with engine.connect() as conn:
        found: str | None = conn.execute(select(sqltables.warehouse.c.location)).scalar_one()
    engine.dispose()
    return found


def refused(url: str, act: Callable[[], object], *named: object) -> None:
    """Assert that the block is refused with these texts, and changes neither catalog nor folders."""

    def everything() -> object:
        files = sorted(Path.cwd().rglob("*"))
        return files, [f.read_text() for f in files if f.name == "strandline.json"], _rows(url)

    before = everything()
    with pytest.raises(PreconditionFailed) as error:
        act()
    for name in named:
        assert str(name) in error.value.message
    assert error.value.hint
    assert everything() == before


def _rows(url: str) -> object:
    engine = create_engine(url)
    try:
        with engine.connect() as conn:
            tables = sorted(inspect(conn).get_table_names())
            return {table: conn.execute(text(f"SELECT * FROM {table}")).all() for table in tables}
    finally:
        engine.dispose()


def test_a_catalog_records_where_its_warehouse_is(url: str, here: Path) -> None:
    make("warehouse", url)
    assert location(url) == os.path.realpath(here / "warehouse")


def test_a_second_folder_is_refused(url: str, here: Path) -> None:
    (here / "empty").mkdir()
    for _ in range(2):  # Whether the first folder has data or not.
        strandline.connect("warehouse", catalog=url).close()
        for other in (here / "other", here / "empty", here / "deep" / "er"):
            refused(url, lambda o=other: strandline.connect(o, catalog=url), here / "warehouse", other)
        make("warehouse", url)


def test_the_same_relative_name_in_another_folder_is_a_second_folder(
    url: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strandline.connect("warehouse", catalog=url).close()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    refused(
        url,
        lambda: strandline.connect("warehouse", catalog=url),
        here / "warehouse",
        tmp_path / "there" / "warehouse",
    )


def test_a_folder_has_many_names(url: str, here: Path) -> None:
    folder = here / "ware house"
    folder.mkdir()
    (here / "link").symlink_to(folder)
    make("link", url)
    recorded = _rows(url)
    assert location(url) == str(folder)
    for name in (
        "ware house",
        "./ware house/",
        f"{folder}/",
        "link",
        "link/../ware house",
        folder.as_uri(),
        f"file:{folder}",
        f"file://{folder}",
    ):
        with strandline.connect(name, catalog=url) as db:
            assert db.describe("/t")["rows"] == 1
        assert _rows(url) == recorded, name
    assert sorted(p.name for p in here.iterdir()) == ["link", "ware house"]


def test_a_folder_that_moved_is_found_by_its_files(url: str, here: Path) -> None:
    make("one", url)
    (here / "one").rename(here / "two")
    make("two", url)
    assert location(url) == str(here / "two")
    refused(url, lambda: strandline.connect("one", catalog=url), here / "two", here / "one")


def test_a_copy_takes_over_and_the_folder_that_was_left_behind_is_refused(url: str, here: Path) -> None:
    make("one", url)
    shutil.copytree("one", "copy")
    make("copy", url)
    assert location(url) == str(here / "copy")
    refused(url, lambda: strandline.connect("one", catalog=url), here / "copy", here / "one", "data/")


def test_a_marked_folder_without_the_files_is_refused(url: str, here: Path) -> None:
    make("one", url)
    (here / "two").mkdir()
    shutil.copy("one/strandline.json", "two")
    for adopt in (False, True):
        refused(
            url,
            lambda a=adopt: strandline.connect("two", catalog=url, adopt=a),
            here / "one",
            here / "two",
            "data/",
        )


def test_a_folder_is_adopted_if_the_files_are_there(url: str, here: Path) -> None:
    make("one", url)
    shutil.copytree("one/data", "two/data")
    refused(url, lambda: strandline.connect("two", catalog=url), here / "one", here / "two")
    with strandline.connect("two", catalog=url, adopt=True, create=False) as db:
        assert db.sql("SELECT * FROM t").rows()
    assert location(url) == str(here / "two")
    with strandline.connect("two", catalog=url) as db:
        assert db.check("/t").ok
    (here / "three").mkdir()
    refused(
        url,
        lambda: strandline.connect("three", catalog=url, adopt=True),
        here / "two",
        here / "three",
        "data/",
    )
    refused(
        url, lambda: strandline.connect("four", catalog=url, adopt=True), here / "two", here / "four", "data/"
    )


def test_there_is_nothing_to_adopt_in_a_new_catalog(url: str, here: Path) -> None:
    with pytest.raises(PreconditionFailed, match="holds no warehouse"):
        strandline.connect("one", catalog=url, adopt=True, create=False)
    assert list(here.iterdir()) == []
    make("one", url, adopt=True)
    assert location(url) == str(here / "one")


def test_a_folder_and_a_catalog_that_belong_to_others_are_refused(url: str, here: Path) -> None:
    make("one", url)
    strandline.connect("two").close()
    marked = json.loads((here / "two" / "strandline.json").read_text())["warehouse"]
    for adopt in (False, True):
        refused(
            url,
            lambda a=adopt: strandline.connect("two", catalog=url, adopt=a),
            "belongs to another catalog",
            here / "two",
            here / "one",
            marked,
        )


def test_a_warehouse_makes_no_second_catalog(url: str, here: Path, tmp_path: Path) -> None:
    strandline.connect("one").close()
    with pytest.raises(PreconditionFailed, match=r"belongs to another catalog.* holds no warehouse"):
        strandline.connect("one", catalog=url)
    assert not (tmp_path / "elsewhere.sqlite").exists()
    assert _rows(url) == {}
    for file in here.glob("one/catalog.sqlite*"):
        file.unlink()
    with pytest.raises(PreconditionFailed, match="belongs to another catalog"):
        strandline.connect("one")
    assert [p.name for p in (here / "one").iterdir()] == ["strandline.json"]


def test_a_folder_that_lost_its_marker_is_known_by_the_record(url: str, here: Path) -> None:
    make("one", url)
    before = (here / "one" / "strandline.json").read_text()
    (here / "one" / "strandline.json").unlink()
    make("one", url)
    assert (here / "one" / "strandline.json").read_text() == before


def test_another_folder_in_the_same_place_is_not_the_recorded_one(url: str, here: Path) -> None:
    """As on another machine, or under an unmounted mount point."""
    make("one", url)
    (here / "one").rename(here / "away")
    (here / "one").mkdir()
    refused(url, lambda: strandline.connect("one", catalog=url), here / "one", "data/")


def test_a_warehouse_with_its_catalog_in_it_goes_where_it_likes(here: Path) -> None:
    with strandline.connect("one", settings=FILES) as db:
        fill(db)
    (here / "one" / "strandline.json").unlink()
    (here / "one").rename(here / "two")
    with strandline.connect("two") as db:
        assert db.check("/t").ok
    assert location(f"sqlite:///{here}/two/catalog.sqlite") == str(here / "two")


def test_a_catalog_of_an_older_version_learns_its_place_from_the_first_folder_that_is_marked(
    url: str, here: Path
) -> None:
    make("one", url)
    _make_older(url)
    older = _rows(url)
    refused(url, lambda: strandline.connect("two", catalog=url), "has not recorded", here / "two")
    (here / "three").mkdir()
    shutil.copy("one/strandline.json", "three")
    refused(
        url, lambda: strandline.connect("three", catalog=url), "has not recorded", here / "three", "data/"
    )
    assert _rows(url) == older, "who is refused migrates nothing"
    make("one", url)
    assert location(url) == str(here / "one")


SEEN = ("increment", "path", "shard", "bytes", "began", "seconds", "process", "errors")
"""Columns of parts that were added to show them to users."""


def _make_older(url: str) -> None:
    """Downgrade the catalog to the version without locations of warehouses."""
    engine = create_engine(url)
    with engine.begin() as conn:
        for index in ("parts_open", "parts_begun", "paths_by_owner", "holds_by_table", "operations_by_end"):
            conn.execute(text(f"DROP INDEX {index}"))
        for table in (
            "verified",
            "claimed",
            "noticed",
            "counts",
            "applied",
            "settings",
            "schedules",
            "schedule_runs",
            "tokens",
            "web_sessions",
            "audit",
            "alarms",
            "alarm_sends",
            "alarm_channels",
            "alarm_watch",
        ):
            conn.execute(text(f"DROP TABLE {table}"))
        for undone in (
            "board DROP COLUMN step",
            "descriptions DROP COLUMN time",
            *(
                f"commits DROP COLUMN {name}"
                for name in ("author", "statement", "inserted", "updated", "deleted")
            ),
            "board DROP COLUMN operation_id",
            *(f"parts DROP COLUMN {name}" for name in SEEN),
            "operations DROP COLUMN process",
            "sessions DROP COLUMN seen",
            "paths DROP COLUMN owner_id",
            "chains DROP COLUMN removed_at",
            "sessions DROP COLUMN reads_from",
            "pins ADD COLUMN session_id TEXT",
            "pins ADD COLUMN expires FLOAT",
            "tables DROP COLUMN committed_bytes",
            "tables DROP COLUMN merged_bytes",
            "warehouse DROP COLUMN location",
        ):
            conn.execute(text(f"ALTER TABLE {undone}"))
        conn.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    engine.dispose()


def test_files_that_are_collected_while_we_look_do_not_count(url: str, here: Path) -> None:
    """Files are removed from the catalog first, then from the folder.

    A process that reads the catalog before, and the folder after, misses the file.
    """
    make("one", url)
    (here / "one").rename(here / "two")

    class Collecting(FaultyFiles):
        def exists(self, name: str) -> bool:
            with engine.begin() as conn:
                conn.execute(text("DELETE FROM chains"))
                conn.execute(text("DELETE FROM segments"))
            return False

    engine = create_engine(url)
    strandline.connect("two", catalog=url, files=Collecting("two")).close()
    engine.dispose()
    assert location(url) == str(here / "two")


INIT = f"""
import strandline, sys
from strandline.errors import PreconditionFailed
{READY}
try:
    with strandline.connect(sys.argv[1], catalog=sys.argv[2] or None) as db:
        print(db.step)
except PreconditionFailed as error:
    print(error.message)
"""


@pytest.mark.slow
def test_of_processes_that_make_two_folders_of_one_new_catalog_one_wins(url: str, here: Path) -> None:
    names = ("one", "two", "three")
    answers = dict(zip(names, run_at_once(INIT, [[name, url] for name in names]), strict=True))
    winners = [name for name, said in answers.items() if said == "0\n"]
    assert len(winners) == 1
    assert location(url) == str(here / winners[0])
    assert [p.name for p in here.iterdir()] == winners
    for name in answers.keys() - winners:
        assert str(here / winners[0]) in answers[name] and str(here / name) in answers[name]


@pytest.mark.slow
def test_processes_that_make_one_folder_of_one_new_catalog_all_win(url: str, here: Path) -> None:
    for given in ([["one", url]] * 3, [["embedded", ""]] * 3):
        assert run_at_once(INIT, given) == ["0\n"] * 3
    assert [p.name for p in (here / "one").iterdir()] == ["strandline.json"]


@pytest.mark.slow
def test_of_processes_that_make_one_folder_of_two_new_catalogs_one_wins(url: str, here: Path) -> None:
    answers = run_at_once(INIT, [["one", url], ["one", ""]])
    assert sorted(said == "0\n" for said in answers) == [False, True]
    marked = json.loads((here / "one" / "strandline.json").read_text())["warehouse"]
    assert warehouse_id(url if answers[0] == "0\n" else f"sqlite:///{here}/one/catalog.sqlite") == marked


def warehouse_id(url: str) -> str:
    catalog = Catalog(url)
    try:
        return catalog.open().id
    finally:
        catalog.close()


def test_death_at_any_write_of_a_new_warehouse_is_made_good_by_the_next_attempt(here: Path, url: str) -> None:
    folder = here / "one"
    folder.mkdir()
    died: list[str] = []
    for at in itertools.count(1):
        fate = Fate(at)
        try:
            strandline.connect(folder, catalog=url, files=MortalFiles(folder, fate)).close()
        except Death:
            died.append(fate.trail[-1])
        else:
            break
    assert set(died) >= {"sync", "create", "append", "flush", "link", "unlink"}
    make(folder, url)
    assert location(url) == str(folder)


def test_the_folder_and_the_marker_are_durable_in_this_order(here: Path) -> None:
    files = FaultyFiles(here / "a" / "one")
    strandline.connect(here / "a" / "one", files=files).close()
    assert files.trail[:4] == ["mkdir", "mkdir", "sync", "sync"], "both folders, in their parents"
    assert [w for w in files.trail[4:] if w != "append"] == [
        "create",
        "flush",
        "sync",
        "link",
        "unlink",
        "sync",
        "sync",
    ]


def test_a_marker_is_written_where_there_are_no_links(here: Path) -> None:
    files = FaultyFiles(here / "one", 1, only=("link",))
    strandline.connect(here / "one", files=files).close()
    assert files.failed == "link"
    assert not list(here.glob("one/strandline.json.*"))
    with strandline.connect("one", create=False) as db:
        assert db.step == 0


def test_a_marker_that_cannot_be_written_can_be_written_later(url: str, here: Path) -> None:
    with pytest.raises(Unavailable, match=r"strandline\.json"):
        strandline.connect("one", catalog=url, files=FaultyFiles(here / "one", 1, BROKEN, only=("append",)))
    assert list(here.iterdir()) == []
    make("one", url)


def test_a_secret_is_not_told(emptied_database: str, here: Path) -> None:
    url = f"{emptied_database}&password=hush"
    make("one", url)
    with pytest.raises(PreconditionFailed) as error:
        strandline.connect("two", catalog=url)
    assert "hush" not in str(error.value)


def test_sqlite_is_left_closed(here: Path) -> None:
    """A refused connection leaves no file open that could block others."""
    make("one", f"sqlite:///{here}/c.sqlite")
    with pytest.raises(PreconditionFailed):
        strandline.connect("two", catalog=f"sqlite:///{here}/c.sqlite")
    with sqlite3.connect(here / "c.sqlite", timeout=0) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.rollback()
    other.close()
