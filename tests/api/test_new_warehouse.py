"""Places where a warehouse may be created, and calls that create one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

import strandline
from strandline import dbapi
from strandline.catalog.connection import Catalog
from strandline.dbapi import dialect
from strandline.errors import PathNotFound, PreconditionFailed
from tests.s3 import S3


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def refused(folder: Path, act: Callable[[], object], error: type[Exception], match: str) -> str:
    """Assert that the call is refused and creates nothing in the folder; return the hint."""
    before = tree(folder)
    with pytest.raises(error, match=match) as raised:
        act()
    assert tree(folder) == before
    return str(raised.value.hint)  # type: ignore[attr-defined]


def test_a_missing_and_an_empty_folder_become_warehouses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strandline")
    (tmp_path / "empty").mkdir()
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    (tmp_path / "configured").mkdir()
    (tmp_path / "configured" / "strandline.toml").write_text("")
    for name in ("missing", "deep/er", "empty", "disk", "configured"):
        caplog.clear()
        strandline.connect(tmp_path / name).close()
        assert f"{tmp_path / name} is now the folder of the warehouse" in caplog.text
        caplog.clear()
        strandline.connect(tmp_path / name).close()
        assert not caplog.text, "opened, not created"


@pytest.mark.parametrize("name", ["letter.txt", ".git", "sub"])
def test_a_folder_with_other_files_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    (folder / name).mkdir(parents=True)
    for catalog in (None, f"sqlite:///{tmp_path}/elsewhere.sqlite"):
        hint = refused(
            tmp_path,
            lambda c=catalog: strandline.connect(folder, catalog=c),
            PreconditionFailed,
            f"papers is not a warehouse.* it holds {name}",
        )
        assert "new or empty folder" in hint


def test_a_database_of_another_program_is_not_taken_for_a_catalog(tmp_path: Path) -> None:
    import sqlite3

    folder = tmp_path / "app"
    folder.mkdir()
    with sqlite3.connect(folder / "catalog.sqlite") as conn:
        conn.execute("CREATE TABLE books (title TEXT)")
    conn.close()
    refused(tmp_path, lambda: strandline.connect(folder), PreconditionFailed, "another program")


def test_inside_a_repository_or_among_data_files_is_refused(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    with strandline.connect(tmp_path / "wh") as db:
        db.sql(f"""
            CREATE TABLE t (k Int32, PRIMARY KEY (k));
            CREATE BACKUP COLLECTION c (TABLE t) WITH (STORAGE = '{repository}');
            BACKUP c
        """)
    assert (repository / "repository.json").exists()
    hint = refused(tmp_path, lambda: strandline.connect(repository), PreconditionFailed, "it holds ")
    assert "It is a backup repository" in hint and "ATTACH BACKUP COLLECTION" in hint
    for name in ("repository/new", "repository/objects/a/b"):
        refused(
            tmp_path,
            lambda n=name: strandline.connect(tmp_path / n),
            PreconditionFailed,
            "inside the backup repository",
        )
    refused(
        tmp_path,
        lambda: strandline.connect(tmp_path / "wh/data/9"),
        PreconditionFailed,
        "among the data files",
    )


def test_without_create_nothing_is_created(tmp_path: Path) -> None:
    strandline.connect(tmp_path / "warehouse").close()
    hint = refused(
        tmp_path,
        lambda: strandline.connect(tmp_path / "warehose", create=False),
        PathNotFound,
        "warehose is not a warehouse",
    )
    assert "Did you mean 'warehouse'?" in hint and f"strandline init -w {tmp_path}/warehose" in hint
    hint = refused(
        tmp_path, lambda: strandline.connect(tmp_path, create=False), PathNotFound, "is not a warehouse"
    )
    assert f"Did you mean '{tmp_path}/warehouse'?" in hint


def test_the_hint_suggests_to_create_a_warehouse_only_where_that_is_allowed(tmp_path: Path) -> None:
    def hint_of(folder: Path) -> str:
        with pytest.raises(PathNotFound, match="is not a warehouse") as refusal:
            strandline.connect(folder, create=False)
        return str(refusal.value.hint)

    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").touch()
    (tmp_path / "repository.json").touch()
    assert "init -w" not in hint_of(tmp_path / "others"), "it has other files"
    assert "init -w" not in hint_of(tmp_path / "new"), "it is in a repository"
    (tmp_path / "repository.json").unlink()
    assert f"strandline init -w '{tmp_path}/a b'" in hint_of(tmp_path / "a b")


def test_the_db_api_and_sqlalchemy_create_only_when_they_are_asked_to(tmp_path: Path) -> None:
    registry.register("strandline", dialect.__name__, "StrandlineDialect")
    place = tmp_path / "typo"
    with pytest.raises(dbapi.Error, match="is not a warehouse"):
        dbapi.connect(str(place))
    with pytest.raises(sa.exc.DBAPIError, match="is not a warehouse"):
        sa.create_engine(f"strandline:///{place}").connect()
    assert tree(tmp_path) == []
    engine = sa.create_engine(f"strandline:///{place}?create=true")
    engine.connect().close()
    engine.dispose()
    dbapi.connect(str(place)).close()
    dbapi.connect(str(tmp_path / "other"), create=True).close()


def test_an_unfinished_creation_is_completed(tmp_path: Path) -> None:
    """The catalog exists without the marker; with and without rows in the catalog."""
    folder = tmp_path / "wh"
    folder.mkdir()
    catalog = Catalog(f"sqlite:///{folder}/catalog.sqlite")
    with catalog.database.engine.connect() as conn:
        conn.exec_driver_sql("SELECT 1")
    catalog.close()
    (folder / f"strandline.json.{'0' * 32}").write_text("")
    assert os.path.exists(folder / "catalog.sqlite")
    with pytest.raises(PathNotFound):
        strandline.connect(folder, create=False)
    strandline.connect(folder).close()
    (folder / "strandline.json").unlink()
    strandline.connect(folder).close()
    assert (folder / "strandline.json").exists()


def test_a_bucket_with_other_objects_is_refused(s3: S3, tmp_path: Path) -> None:
    bucket = s3.new_bucket()
    catalog = f"sqlite:///{tmp_path}/catalog.sqlite"
    s3.client.put_object(Bucket=bucket, Key="photos/1.jpg", Body=b"x")
    s3.client.put_object(Bucket=bucket, Key="backups/repository.json", Body=b"{}")

    def act(place: str) -> None:
        strandline.connect(f"s3://{bucket}/{place}", catalog=catalog, settings=s3.settings()).close()

    refused(tmp_path, lambda: act("photos"), PreconditionFailed, r"it holds .*1\.jpg")
    refused(tmp_path, lambda: act("backups/below"), PreconditionFailed, "inside the backup repository")
    assert sorted(s3.objects(bucket)) == ["backups/repository.json", "photos/1.jpg"]
    act("new")
