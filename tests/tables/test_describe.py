"""``ls``, ``describe``, SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import strandline
from strandline import Database, Entry
from strandline.errors import (
    InvalidArgument,
    PathNotFound,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
)
from tests.tables.examples import refused, rows


@pytest.fixture
def filled(db: Database) -> Database:
    return fill(db)


@pytest.fixture
def on_both(connect: Callable[..., Database], catalog_url: str | None) -> Database:
    """Run with both kinds of catalog."""
    return fill(connect(catalog=catalog_url))


def fill(db: Database) -> Database:
    db.sql(
        "CREATE TABLE `a/b/t` (k Uint64 NOT NULL, v Utf8, n Int32, PRIMARY KEY (k), INDEX i GLOBAL ON (v) COVER (n), INDEX j GLOBAL ASYNC ON (n))"
    )
    db.sql(
        "CREATE TABLE `a/Z` (k Int32, PRIMARY KEY (k)); UPSERT INTO `a/b/t` (k, v) VALUES (1, 'x'), (2, 'y')"
    )
    return db


def test_ls_lists_by_name(filled: Database) -> None:
    assert filled.ls() == filled.ls("/") == [Entry("a", "directory", "/a")]
    assert (
        filled.ls("a") == filled.ls("/a/") == [Entry("Z", "table", "/a/Z"), Entry("b", "directory", "/a/b")]
    )
    assert [(e.name, e.type) for e in filled.ls("/a/b/t")] == [("i", "index"), ("j", "index")]
    assert filled.ls("/a/b/t/i") == [Entry("indexImplTable", "table", "/a/b/t/i/indexImplTable")]
    assert filled.ls("/a/b/t/i/indexImplTable") == []


def test_ls_goes_down_as_far_as_it_is_asked_to(on_both: Database) -> None:
    all_below = [e.path for e in on_both.ls("/", depth=None)]
    impl = [f"/a/b/t/{index}{below}" for index in ("i", "j") for below in ("", "/indexImplTable")]
    assert all_below == ["/a", "/a/Z", "/a/b", "/a/b/t", *impl]
    assert on_both.ls("/", depth=2) == [*on_both.ls("/"), *on_both.ls("/a")]
    assert on_both.ls("/a/b/t", depth=9) == on_both.ls("/a/b/t", depth=None)
    for depth in (0, -1, True, "1", 1.0):
        with pytest.raises(InvalidArgument, match="depth"):
            on_both.ls("/", depth=depth)  # type: ignore[arg-type]


def test_an_overview_says_of_each_entry_what_its_description_says(on_both: Database) -> None:
    on_both.sql("UPSERT INTO `a/b/t` (k, v) VALUES (3, 'z')")
    on_both.compact("/a/b/t")
    on_both.sql(
        "DELETE FROM `a/b/t` WHERE k = 1; ALTER TABLE `a/b/t` ADD CHANGEFEED f WITH (MODE = 'NEW_IMAGE', FORMAT = 'JSON')"
    )
    for path in ("/", "/a", "/a/b", "/a/b/t", "/a/b/t/i", "/a/b/t/i/indexImplTable"):
        described = [(entry, on_both.describe(entry.path)) for entry in on_both.ls(path)]
        assert on_both.overview(path) == [
            {**entry._asdict(), **{name: found.get(name) for name in ("version", "state", "rows", "bytes")}}
            for entry, found in described
        ]


def test_what_sql_shows(filled: Database) -> None:
    assert rows(filled, "SHOW TABLES") == [("/a/Z", 1), ("/a/b/t", 1)]
    assert rows(filled, "SHOW TABLES IN `a/b`") == [("/a/b/t", 1)]
    shown = dict(rows(filled, "DESCRIBE `a/b/t`"))
    assert shown["rows"] == "2"
    assert rows(filled, "CHECK TABLE `a/b/t`") == []


@pytest.mark.parametrize("path", ["/x", "/a/x", "/a/b/t/x", "/a/b/t/i/x", "/A"])
def test_what_is_not_there(filled: Database, path: str) -> None:
    for ask in (filled.ls, filled.describe, filled.check, filled.compact, filled.maintain):
        with refused(filled, "PATH_NOT_FOUND"):
            ask(path)
    with refused(filled, "PATH_NOT_FOUND"):
        filled.table(path).upsert([{"k": 1}])


# --- connecting -------------------------------------------------------------------------------------------


def test_a_warehouse_is_found_again(tmp_path: Path) -> None:
    with strandline.connect(tmp_path / "w") as db:
        db.sql("CREATE TABLE t (k Int32, PRIMARY KEY (k)); UPSERT INTO t (k) VALUES (1)")
    with strandline.connect(str(tmp_path / "w"), create=False) as db:
        assert rows(db, "SELECT * FROM t") == [(1,)]
    with strandline.connect(f"file://{tmp_path}/w", create=False) as db:
        assert db.describe("/t")["rows"] == 1


def test_a_folder_that_is_no_warehouse_is_not_made_one_on_request(tmp_path: Path) -> None:
    with pytest.raises(PathNotFound):
        strandline.connect(tmp_path / "w", create=False)
    assert not (tmp_path / "w").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(InvalidArgument, match="is a file"):
        strandline.connect(tmp_path / "f")
    with pytest.raises(InvalidArgument, match="inside a file"):
        strandline.connect(tmp_path / "f" / "below")


def test_a_folder_and_a_catalog_belong_together(
    connect: Callable[..., Database], catalog_url: str | None, tmp_path: Path
) -> None:
    connect("one", catalog=catalog_url)
    other = catalog_url or f"sqlite:///{tmp_path / 'one' / 'catalog.sqlite'}"
    connect("two")
    with pytest.raises(PreconditionFailed, match="belongs to another catalog") as refused:
        strandline.connect(tmp_path / "two", catalog=other)
    assert str(tmp_path / "one") in refused.value.message
    assert str(tmp_path / "two") in refused.value.message


def test_a_newer_format_is_refused(connect: Callable[..., Database], tmp_path: Path) -> None:
    connect("w")
    marker = tmp_path / "w" / "strandline.json"
    marker.write_text(marker.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(PreconditionFailed, match="format 2"):
        strandline.connect(tmp_path / "w")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "x"}', '{"format": 1}'])
def test_a_damaged_marker_is_an_error_of_ours(
    connect: Callable[..., Database], tmp_path: Path, text: str
) -> None:
    connect("w")
    (tmp_path / "w" / "strandline.json").write_text(text)
    with pytest.raises(StrandlineError):
        strandline.connect(tmp_path / "w")


def test_a_closed_database_says_so(tmp_path: Path) -> None:
    db = strandline.connect(tmp_path / "w")
    db.sql("CREATE TABLE t (k Int32, PRIMARY KEY (k))")
    table = db.table("t")
    db.close()
    db.close()
    for ask in (
        lambda: db.sql("SELECT * FROM t"),
        lambda: db.ls("/"),
        lambda: table.upsert([{"k": 1}]),
        lambda: table.get(1),
        db.maintain,
    ):
        with pytest.raises(PreconditionFailed, match="closed"):
            ask()
    with pytest.raises(PreconditionFailed, match="closed"), db.transaction():
        pass


BAD_CATALOGS = [
    "nonsense",
    "mysql://host/database",
    "postgresql+psycopg://ada:secret@host:port/database",
    "postgresql+psycopg://nobody@127.0.0.1:1/database",
    "sqlite:////no/such/folder/catalog.sqlite",
    "sqlite:///:memory:",
]


@pytest.mark.parametrize("catalog", BAD_CATALOGS)
def test_a_catalog_that_cannot_be_opened_leaves_no_folder_behind(tmp_path: Path, catalog: str) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "a" / "b" / "warehouse", tmp_path / "mine"):
        with pytest.raises((InvalidArgument, Unavailable)) as failed:
            strandline.connect(folder, catalog=catalog)
        assert "secret" not in str(failed.value)
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]
