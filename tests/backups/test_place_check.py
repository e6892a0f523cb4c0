"""CREATE BACKUP COLLECTION refuses a location where no backup could be stored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.errors import PathNotFound, PreconditionFailed, StrandlineError, Unavailable
from strandline.sql import statements as st
from strandline.sql.parser import parse
from tests import s3 as s3_server
from tests.backups.reading import CLUSTER, TABLE, collection, open_at

KEY = "00" * 32


def encrypted(place: Path) -> str:
    return collection(place).replace("WITH (", "WITH (ENCRYPTION = 'true', ")


def there(db: Database) -> list[str]:
    return [row[0] for row in db.sql("SHOW BACKUP COLLECTIONS").rows()]


def test_a_place_that_cannot_be_written_is_refused(db: Database, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="Not a directory") as refused:
        db.sql(collection(tmp_path / "file" / "repository"))
    assert "CHECK = 'false'" in refused.value.hint
    assert there(db) == []
    unchecked = collection(tmp_path / "file" / "repository").replace("WITH (", "WITH (CHECK = 'false', ")
    db.sql(unchecked)
    assert there(db) == ["c"] and "CHECK" not in db.describe("c")["settings"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder in which nobody can create a file")
def test_a_folder_that_cannot_be_written_is_refused(db: Database) -> None:
    with pytest.raises(Unavailable, match="cannot create the file probe-"):
        db.sql(collection("/proc/self"))
    assert there(db) == []


def test_a_check_leaves_nothing(db: Database, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    db.sql(collection(tmp_path / "new" / "repository"))
    (tmp_path / "empty").mkdir()
    db.sql(collection(tmp_path / "empty").replace("COLLECTION c", "COLLECTION d"))
    left = [path for path in tmp_path.rglob("*") if "warehouse" not in path.parts]
    assert left == [tmp_path / "empty"] and not (tmp_path / "new").exists() and before


def test_an_encrypted_one_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSITORY_KEY", KEY)
    with open_at(tmp_path / "warehouse") as db:
        with pytest.raises(PreconditionFailed, match="encrypted and no key is configured"):
            db.sql(encrypted(tmp_path / "repository"))
        assert there(db) == [] and not (tmp_path / "repository").exists()
    with open_at(tmp_path / "warehouse", settings={"repository_key_env": "REPOSITORY_KEY"}) as db:
        db.sql(f"{TABLE}; {encrypted(tmp_path / 'repository')}; BACKUP c; DROP BACKUP COLLECTION c")
        with pytest.raises(
            PreconditionFailed, match="is encrypted, but the ENCRYPTION of the collection says otherwise"
        ):
            db.sql(collection(tmp_path / "repository"))
    monkeypatch.setenv("REPOSITORY_KEY", "11" * 32)
    with open_at(tmp_path / "warehouse", settings={"repository_key_env": "REPOSITORY_KEY"}) as db:
        with pytest.raises(StrandlineError, match="key"):
            db.sql(encrypted(tmp_path / "repository"))
        assert there(db) == []


def test_a_missing_bucket_is_refused(s3: s3_server.S3, tmp_path: Path) -> None:
    with open_at(tmp_path / "warehouse", settings={"storage_options": s3.options}) as db:
        with pytest.raises(StrandlineError, match="no-such-bucket"):
            db.sql(collection("s3://no-such-bucket/nightly"))
        assert there(db) == []


def test_another_place_is_checked_too(db: Database, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    db.sql(collection("cluster"))
    place = tmp_path / "file" / "repository"
    with pytest.raises(Unavailable):
        db.sql(f"ALTER BACKUP COLLECTION c SET (STORAGE = '{place}')")
    assert db.describe("c")["settings"]["STORAGE"] == "cluster"
    db.sql(f"ALTER BACKUP COLLECTION c SET (STORAGE = '{place}', CHECK = FALSE)")
    assert db.describe("c")["settings"]["STORAGE"] == str(place)
    with pytest.raises(StrandlineError, match="CHECK is given twice"):
        db.sql(
            "CREATE BACKUP COLLECTION e DATABASE WITH (STORAGE = 'cluster', CHECK = 'true', CHECK = 'false')"
        )


def test_a_table_that_is_not_there_is_warned_of(db: Database) -> None:
    db.sql("CREATE TABLE orders (k Int32, PRIMARY KEY (k)); CREATE TABLE `dir/u` (k Int32, PRIMARY KEY (k))")
    made = db.sql(f"CREATE BACKUP COLLECTION c (TABLE ordrs, TABLE orders, TABLE elsewhere) {CLUSTER}")
    assert made.warnings == [
        "there is no table ordrs yet; did you mean orders?",
        "there is no table elsewhere yet",
    ]
    assert db.sql("ALTER BACKUP COLLECTION c ADD TABLE `dir/v`").warnings == [
        "there is no table dir/v yet; did you mean dir/u?"
    ]
    assert db.sql("ALTER BACKUP COLLECTION c DROP TABLE ordrs").warnings == []
    assert db.sql(f"CREATE BACKUP COLLECTION d DATABASE {CLUSTER}").warnings == []


def test_collections_tell_where_they_are(db: Database, tmp_path: Path) -> None:
    place = str(tmp_path / "it's")
    quoted = place.replace("'", "\\'")
    db.sql(
        f"""CREATE BACKUP COLLECTION `a b` (TABLE t, TABLE `dir/u`) WITH (STORAGE = '{quoted}',
                INCREMENTAL_BACKUP_ENABLED = 'true', RETENTION = 'KEEP WITHIN 30d', MINIMUM = 2);
            CREATE BACKUP COLLECTION whole DATABASE WITH (STORAGE = 'cluster')"""
    )
    found = db.sql("SHOW BACKUP COLLECTIONS")
    assert [row[6:9] for row in found.rows()] == [
        (place, False, "KEEP WITHIN 30d"),
        ("cluster", False, None),
    ]
    assert db.describe("whole")["path"] == "/.backups/collections/whole"
    with pytest.raises(PathNotFound):
        db.describe("/whole")
    assert db.sql("DESCRIBE whole").rows()[0] == ("path", "/.backups/collections/whole")
    db.sql("CREATE TABLE whole (k Int32, PRIMARY KEY (k))")
    assert db.describe("whole")["type"] == "table"


@pytest.mark.parametrize("name", ["a b", "whole", "c"])
def test_the_statement_that_makes_it_again(db: Database, tmp_path: Path, name: str) -> None:
    texts: dict[str, Any] = {
        "a b": f"(TABLE t, TABLE `dir/u`) WITH (STORAGE = '{tmp_path}/r', MAX_CHAIN = 7, COMPACT_CHAIN = 'true', "
        "RETENTION = 'KEEP LAST 2 FULL')",
        "whole": "DATABASE WITH (STORAGE = 'cluster')",
        "c": f"(TABLE t) {CLUSTER}",
    }
    db.sql(f"CREATE BACKUP COLLECTION `{name}` {texts[name]}")
    described = db.describe(name)
    ((statement,),) = db.sql(f"SHOW CREATE BACKUP COLLECTION `{name}`").rows()
    (read,) = parse(statement)
    assert isinstance(read, st.CreateBackupCollection) and read.name == name
    db.sql(f"DROP BACKUP COLLECTION `{name}` PURGE")
    db.sql(statement)
    again = db.describe(name)
    assert (again["tables"], again["settings"]) == (described["tables"], described["settings"])


def test_an_attached_one_is_attached_again(kept: Database, repository: Path, tmp_path: Path) -> None:
    kept.sql("BACKUP c")
    with open_at(tmp_path / "other") as other:
        other.sql(f"ATTACH BACKUP COLLECTION e FROM '{repository}'")
        ((statement,),) = other.sql("SHOW CREATE BACKUP COLLECTION e").rows()
        assert statement == f"ATTACH BACKUP COLLECTION `e` FROM '{repository}'"
    assert os.path.exists(repository)
