"""Really full or read-only file systems: a small tmpfs, and a read-only bind mount."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import strandline
from strandline import Database, Settings
from strandline.catalog import sqlite_files
from strandline.cli import main
from strandline.errors import Unavailable
from tests.processes import environment

SETTINGS = Settings(inline_rows=0, grace_seconds=0, history_seconds=0)
FILL = """
CREATE TABLE t (k Int32, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v));
CREATE TABLE u (k Int32, PRIMARY KEY (k));
UPSERT INTO t (k, v) VALUES (1, 'a'), (2, 'b');
CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster', INCREMENTAL_BACKUP_ENABLED = 'true');
BACKUP c;
UPSERT INTO t (k, v) VALUES (3, 'c');
BACKUP c INCREMENTAL
"""
QUERY = "SELECT k FROM t VIEW by_v WHERE v >= 'a' ORDER BY k"

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Return a function that mounts a file system at a new folder; unmount all at the end."""
    mounted: list[Path] = []

    def call(*arguments: str) -> Path:
        place = tmp_path / f"mount{len(mounted)}"
        place.mkdir()
        done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this process may not mount: {done.stderr.strip()}")
        mounted.append(place)
        return place

    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux may mount")
    try:
        yield call
    finally:
        for place in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def read_only(mount: Mount, folder: Path) -> Path:
    """Return a read-only second path to a folder."""
    place = mount("--bind", str(folder))
    subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
    return place


def fill(folder: Path) -> Path:
    with strandline.connect(folder, settings=SETTINGS) as db:
        db.sql(FILL)
    return folder


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def keys(db: Database, query: str = QUERY) -> list[int]:
    return [row[0] for row in db.sql(query).rows()]


READING = (
    ["ls"],
    ["tree"],
    ["describe", "/t"],
    ["sql", QUERY],
    ["sql", "SELECT * FROM t IN BACKUP c"],
    ["show-backup", "c"],
    ["status"],
    ["check"],
    ["operations", "list"],
    ["metrics"],
)


def read_all(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in READING:
        code = main([*command, "-w", str(place)])
        # "Needs attention" is a valid answer, too.
        assert code == 0 or (command == ["status"] and code < 3), (command, capsys.readouterr())


# --- read-only ----------------------------------------------------------------------------------------------


def test_a_read_only_warehouse_is_listed_and_read(
    mount: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = read_only(mount, fill(tmp_path / "wh"))
    read_all(place, capsys)
    with strandline.connect(place) as db:
        assert keys(db) == [1, 2, 3]
        assert db.table("t").scan().to_arrow().num_rows == 3
        assert keys(db, "SELECT k FROM t") == [1, 2, 3]
        for statement in ("UPSERT INTO t (k) VALUES (9)", "DROP TABLE u", "BACKUP c"):
            with pytest.raises(Unavailable, match="read-only for this process") as refused:
                db.sql(statement)
            assert "Reading works here" in refused.value.hint
    assert not list(tmp_path.glob("wh/catalog.sqlite-wal"))


def test_a_read_only_way_sees_what_a_live_process_commits(mount: Mount, tmp_path: Path) -> None:
    place = read_only(mount, fill(tmp_path / "wh"))
    with strandline.connect(place) as reader:
        assert keys(reader) == [1, 2, 3]
        with strandline.connect(tmp_path / "wh", settings=SETTINGS) as writer:
            writer.sql("UPSERT INTO t (k, v) VALUES (4, 'd')")
            assert keys(reader) == [1, 2, 3, 4]
            writer.sql("UPSERT INTO t (k, v) VALUES (5, 'e')")
            assert keys(reader) == [1, 2, 3, 4, 5]
        assert keys(reader) == [1, 2, 3, 4, 5], "the log is gone"


DIE = """
import os, sys, strandline
db = strandline.connect(sys.argv[1])
db.sql("UPSERT INTO t (k, v) VALUES (4, 'd')")
os._exit(0)
"""


@pytest.mark.parametrize("index", [True, False], ids=["with its index", "without its index"])
def test_what_a_dead_process_has_committed_is_read(mount: Mount, tmp_path: Path, index: bool) -> None:
    """Its last commits are in the write-ahead log, and no process can move them into the database file."""
    folder = fill(tmp_path / "wh")
    subprocess.run([sys.executable, "-c", DIE, str(folder)], check=True, env=environment())
    assert (folder / "catalog.sqlite-wal").stat().st_size > 0
    if not index:
        (folder / "catalog.sqlite-shm").unlink()
    place = read_only(mount, folder)
    with strandline.connect(place) as db:
        assert keys(db) == [1, 2, 3, 4]
        assert keys(db) == [1, 2, 3, 4]


def test_a_change_during_a_read_without_locks_is_told(mount: Mount, tmp_path: Path) -> None:
    place = read_only(mount, fill(tmp_path / "wh"))
    with strandline.connect(place) as reader:
        with (
            pytest.raises(Unavailable, match="another process changed the catalog during a read"),
            reader._runtime.catalog.read(),
            strandline.connect(tmp_path / "wh") as writer,
        ):
            writer.sql("UPSERT INTO t (k, v) VALUES (4, 'd')")
        assert keys(reader) == [1, 2, 3, 4]


def test_long_reads_say_how_long_they_are_safe(
    mount: Mount, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "strandline")
    seven = Settings(inline_rows=0, grace_seconds=7)
    with strandline.connect(tmp_path / "wh", settings=seven) as db:
        db.sql(FILL)
    with strandline.connect(read_only(mount, tmp_path / "wh"), settings=seven) as db:
        db.files("/t")
        db.files("/t")
    assert caplog.text.count("they remove from a table stay readable for the grace period only, 7") == 1


def test_an_older_catalog_is_not_migrated_where_it_is_read_only(mount: Mount, tmp_path: Path) -> None:
    import sqlite3

    folder = fill(tmp_path / "wh")
    with sqlite3.connect(folder / "catalog.sqlite") as conn:
        conn.execute("UPDATE alembic_version SET version_num = '0001'")
    conn.close()
    with pytest.raises(Unavailable, match="read-only for this process"):
        strandline.connect(read_only(mount, folder))


# --- full ---------------------------------------------------------------------------------------------------


@contextmanager
def full(place: Path) -> Iterator[None]:
    """Fill the file system to the last byte while the block runs."""
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


def test_a_full_disk_is_read(mount: Mount, capsys: pytest.CaptureFixture[str]) -> None:
    place = mount("-t", "tmpfs", "-o", "size=4m", "none")
    fill(place / "wh")
    with full(place):
        read_all(place / "wh", capsys)
        with strandline.connect(place / "wh", settings=SETTINGS) as db:
            assert keys(db) == [1, 2, 3]
            with pytest.raises(Unavailable) as refused:
                db.sql("UPSERT INTO t (k) VALUES (9)")
            assert "left behind" not in refused.value.hint
            assert keys(db) == [1, 2, 3]


def test_space_can_be_freed_on_a_full_disk(mount: Mount) -> None:
    place = mount("-t", "tmpfs", "-o", "size=4m", "none")
    folder = fill(place / "wh")
    with strandline.connect(folder, settings=SETTINGS) as db:
        db.sql("UPSERT INTO u (k) VALUES (1); DROP BACKUP COLLECTION c")
        db.sql("CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = 'cluster'); BACKUP c")
        db.sql("UPSERT INTO t (k, v) VALUES (4, 'd')")
        db.sql("BACKUP c")
    reserve = Path(sqlite_files.reserve_of(str(folder / "catalog.sqlite")))
    assert reserve.stat().st_blocks * 512 >= sqlite_files.RESERVE_BYTES
    with full(place):
        for statement in (
            "PRUNE c KEEP LAST 1 FULL CONFIRM",
            "DROP TABLE u",
            "DROP BACKUP COLLECTION c",
        ):
            with strandline.connect(folder, settings=SETTINGS) as db:
                db.sql(statement)
            assert reserve.exists(), "it is kept again for the next one"
        with strandline.connect(folder, settings=SETTINGS) as db:
            db.maintain()
            assert not {"/u", "/.backups/collections/c"} & {entry.path for entry in db.ls("/", depth=None)}
            assert keys(db) == [1, 2, 3, 4]
    with strandline.connect(folder, settings=SETTINGS) as db:
        db.maintain()
    before = bytes_of(folder / "data")
    with full(place):
        with strandline.connect(folder, settings=SETTINGS) as db:
            db.sql("ALTER WAREHOUSE SET (BIN_SECONDS = 0)")  # The collection is in the bin.
        with strandline.connect(folder, settings=SETTINGS) as db:
            db.maintain()
        assert bytes_of(folder / "data") < before
    with strandline.connect(folder, settings=SETTINGS) as db:
        db.sql("UPSERT INTO t (k, v) VALUES (5, 'e')")
        assert db.check("/t").ok
