"""Checks of a repository before a backup counts as done, and before its content is trusted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.backups.collection import CollectionRecord
from strandline.backups.repository.readme import README
from strandline.backups.repository.rotate_key import rotate_key
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, StrandlineError
from strandline.settings import Settings
from strandline.storage.repository_marker import MARKER, Marker, from_bytes
from tests.backups.reading import TABLE, backups, collection, open_at, records
from tests.catalogs import ManualClock
from tests.tables.examples import content


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (made := tmp_path / "key").write_text("ab" * 32)
    return made


@pytest.fixture
def db(connect: Callable[..., Database], clock: ManualClock, key: Path) -> Database:
    """Open a database with a key for repositories, and create a table."""
    db = connect(clock=clock, settings={"repository_key_file": str(key)})
    db.sql(TABLE)
    db.sql("UPSERT INTO t (k, v, n) VALUES (1, 'one', 1)")
    return db


def create(db: Database, place: Path, how: str = "ENCRYPTION = 'true'", name: str = "c") -> None:
    said = collection(place).replace("COLLECTION c", f"COLLECTION {name}")
    db.sql(f"{said.removesuffix(')')}, {how})" if how else said)


def id_of(place: Path) -> str:
    return from_bytes(Marker, (place / MARKER).read_bytes(), "it").id


def described(db: Database, name: str = "c") -> dict[str, Any]:
    return db.describe(f"/.backups/collections/{name}")


# --- a backup is done only if it is restorable -------------------------------------------------------------

LOST: dict[str, tuple[Callable[[Path], object], str]] = {
    "keys": (lambda place: shutil.rmtree(place / "keys"), "has no keys"),
    "marker": (lambda place: (place / MARKER).unlink(), "is missing|is not a backup repository"),
    "parent": (lambda place: next((place / "backups").iterdir()).unlink(), "does not have the backup"),
    "parent's manifest": (
        lambda place: next((place / "backups").iterdir()).write_bytes(b"no longer"),
        "is cut off",
    ),
    "key": (lambda place: place.with_name("key").unlink(), "cannot be read from the file"),
    "another key": (lambda place: place.with_name("key").write_text("cd" * 32), "does not open"),
}


@pytest.mark.parametrize("lost", LOST)
def test_a_backup_that_nobody_could_restore_is_not_done(db: Database, repository: Path, lost: str) -> None:
    """The process has opened the repository before, and has its marker and keys in memory."""
    create(db, repository)
    db.sql("BACKUP c")
    whole = shutil.copytree(repository, repository.with_name("whole"))
    secret = repository.with_name("key").read_bytes()
    destroy, message = LOST[lost]
    destroy(repository)
    db.sql("UPSERT INTO t (k, v, n) VALUES (2, 'two', 2)")
    with pytest.raises(StrandlineError, match=message) as caught:
        db.sql("BACKUP c INCREMENTAL")
    assert caught.value.code in ("CORRUPTED", "PRECONDITION_FAILED")
    assert caught.value.hint != StrandlineError.default_hint
    full, increment = records(db)
    assert (full.stored, increment.stored) == (str(repository), None), "it waits in the warehouse"
    # When the files are back, the next backup uploads both.
    for name in ("keys", "backups"):
        shutil.copytree(whole / name, repository / name, dirs_exist_ok=True)
    shutil.copy(whole / MARKER, repository / MARKER)
    repository.with_name("key").write_bytes(secret)
    db._runtime.clock.sleep(10_000)
    db.sql("BACKUP c INCREMENTAL")
    assert [record.stored for record in records(db)] == [str(repository)] * 3
    with open_at(
        repository.with_name("other"), settings={"repository_key_file": str(repository.with_name("key"))}
    ) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'; RESTORE c")
        assert len(content(other, "t")) == 2


@pytest.mark.parametrize(
    ("content", "said"), [(None, "does not have the backup {}, on which"), (b"no longer", "{}.* is cut off")]
)
def test_an_ancestor_that_is_gone_or_damaged_is_noticed(
    db: Database, repository: Path, content: bytes | None, said: str
) -> None:
    create(db, repository)
    db.sql("BACKUP c; BACKUP c INCREMENTAL")
    full = repository / "backups" / f"{backups(db)[0]}.json"
    if content is None:
        full.unlink()
    else:
        full.write_bytes(content)
    with pytest.raises(Corrupted, match=said.format(backups(db)[0])):
        db.sql("BACKUP c INCREMENTAL")


@pytest.mark.parametrize("what", ["an object of another repository", "a link"])
def test_verification_reports_what_was_put_in_the_place_of_an_object(
    db: Database, repository: Path, tmp_path: Path, what: str
) -> None:
    """The other objects are verified all the same."""
    create(db, repository)
    create(db, tmp_path / "other", name="d")
    db.sql("BACKUP c; BACKUP d")
    place, foreign = (next(root.glob("objects/*/*")) for root in (repository, tmp_path / "other"))
    place.unlink()
    if what == "a link":
        place.symlink_to(foreign)
    else:
        shutil.copy(foreign, place)
    (row,) = db.sql("VERIFY c").rows()
    assert row[4] == 1 and row[5] is False, "one problem, and not restorable"
    assert db.status().level == "critical"
    (*_, healed, how) = db.sql("REPAIR c").rows()[0]
    assert healed is (what != "a link") and ("symbolic link" in how) is (what == "a link")


def test_a_new_master_key_is_taken_by_a_process_that_has_opened_the_repository(
    db: Database, repository: Path, key: Path
) -> None:
    create(db, repository)
    db.sql("BACKUP c")
    kept = shutil.copytree(repository / "keys", repository.with_name("keys"))
    (new := key.with_name("new")).write_text("cd" * 32)
    (stolen := key.with_name("stolen")).write_bytes(key.read_bytes())
    rotate_key(str(repository), _settings(key), _settings(new), new_master=True)
    db.sql("UPSERT INTO t (k, v, n) VALUES (2, 'two', 2)")
    with pytest.raises(PreconditionFailed, match="the key does not open the repository"):
        db.sql("BACKUP c INCREMENTAL")
    key.write_bytes(new.read_bytes())
    db.sql("BACKUP c INCREMENTAL")
    assert [record.stored for record in records(db)] == [str(repository)] * 3
    db.sql("VERIFY c WITH (LEVEL = 'checksums'); RESTORE c TABLE t AS back")
    assert sorted(content(db, "back")) == sorted(content(db, "t"))
    # The old user key and the old key files open earlier backups, but no later ones.
    thief = shutil.copytree(repository, repository.with_name("thief"))
    shutil.rmtree(thief / "keys")
    shutil.copytree(kept, thief / "keys")
    with open_at(repository.with_name("w"), settings={"repository_key_file": str(stolen)}) as other:
        states = [row[-1] for row in other.sql(f"ATTACH BACKUP COLLECTION c FROM '{thief}'").rows()]
    assert states[0] == "attached"
    assert all("encrypted with a key" in state for state in states[1:]), states


def _settings(key: Path) -> Settings:
    return Settings(repository_key_file=str(key))


# --- the repository is the expected one --------------------------------------------------------------------


@pytest.fixture
def forged(tmp_path: Path) -> Path:
    """Create a foreign, unencrypted repository with a collection of the same name."""
    place = tmp_path / "forged"
    with open_at(tmp_path / "forger") as db:
        db.sql(TABLE)
        db.sql("UPSERT INTO t (k, v, n) VALUES (666, 'forged', 1)")
        create(db, place, "")
        db.sql("BACKUP c")
    return place


def test_a_plain_repository_is_refused_where_a_key_is_configured(db: Database, forged: Path) -> None:
    attach = f"ATTACH BACKUP COLLECTION c FROM '{forged}'"
    for how in ("", " WITH (TAKE_OVER = 'true')"):
        with pytest.raises(
            PreconditionFailed, match="is not encrypted, and a key for repositories"
        ) as caught:
            db.sql(attach + how)
        assert "ENCRYPTION = 'false'" in caught.value.hint
    with pytest.raises(PreconditionFailed, match="is not encrypted, and it is expected to be"):
        db.sql(f"{attach} WITH (ENCRYPTION = 'true')")
    with pytest.raises(PreconditionFailed, match="is not encrypted, and a key for repositories"):
        create(db, forged, "")
    assert db.ls("/") == db.ls("/") and not db.sql("SHOW BACKUP COLLECTIONS").rows()
    db.sql(f"{attach} WITH (ENCRYPTION = 'false')")
    db.sql("RESTORE c TABLE t AS plain")
    assert db.sql("SELECT k FROM plain").rows() == [(666,)]
    # The setting was given once, and applies to the collection from then on.
    db.sql(f"{attach} WITH (ENCRYPTION = 'false', TAKE_OVER = 'true'); BACKUP c")


def test_without_a_key_a_plain_repository_is_as_good_as_ever(tmp_path: Path, forged: Path) -> None:
    with open_at(tmp_path / "other") as db:
        db.sql(f"ATTACH BACKUP COLLECTION c FROM '{forged}'; RESTORE c")


def test_one_process_has_encrypted_and_plain_collections(
    db: Database, repository: Path, tmp_path: Path, connect: Callable[..., Database], key: Path
) -> None:
    create(db, repository)
    plain = tmp_path / "plain"
    create(db, plain, "", name="d")  # Nothing exists yet that could have been forged.
    db.sql("BACKUP c; BACKUP d; BACKUP c INCREMENTAL; BACKUP d INCREMENTAL")
    copy = tmp_path / "copy"
    for backup in backups(db, "d"):
        db.sql(f"COPY BACKUP '{backup}' FROM d TO '{copy}'")
    with pytest.raises(PreconditionFailed, match="is not encrypted, but the ENCRYPTION of the collection"):
        db.sql(f"COPY BACKUP '{backups(db)[0]}' FROM c TO '{copy}'")
    again = connect(settings={"repository_key_file": str(key)})
    again.sql("VERIFY c; VERIFY d; RESTORE c TABLE t AS one; RESTORE d TABLE t AS two")
    again.sql("BACKUP c; BACKUP d; COMPACT d")
    assert content(again, "one") == content(again, "two")


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_repository_that_was_exchanged_is_refused_by_everything(
    db: Database,
    repository: Path,
    forged: Path,
    tmp_path: Path,
    connect: Callable[..., Database],
    key: Path,
    encrypted: bool,
) -> None:
    """By an unencrypted repository, or, if the first is unencrypted as well, by one with another id."""
    create(db, repository, f"ENCRYPTION = '{encrypted}'")
    db.sql("BACKUP c")
    shown = described(db)
    assert shown["repository"] == id_of(repository)
    assert (shown.get("key") is not None) == encrypted
    shutil.rmtree(repository)
    shutil.copytree(forged, repository)
    new = connect(settings={"repository_key_file": str(key)})
    message = (
        "is not encrypted, and it is expected to be" if encrypted else "has the id .*, but .* was expected"
    )
    for statement in (
        "SELECT * FROM t IN BACKUP c",
        "RESTORE c TABLE t AS back",
        "BACKUP c",
        f"ATTACH BACKUP COLLECTION d FROM '{repository}' WITH (ENCRYPTION = '{encrypted}')",
        f"COPY BACKUP '{backups(db)[0]}' FROM c TO '{tmp_path}/copy'",
    ):
        with pytest.raises(PreconditionFailed, match=f"{message}|has the id"):
            new.sql(statement).rows()
    (row,) = new.sql("VERIFY c").rows()[:1]
    assert row[5] is False and ("expected" in row[7]), row


def test_a_key_opens_only_the_repository_that_is_named(db: Database, repository: Path, key: Path) -> None:
    create(db, repository)
    db.sql("BACKUP c")
    shown = described(db)
    with open_at(repository.with_name("other"), settings={"repository_key_file": str(key)}) as other:
        attach = f"ATTACH BACKUP COLLECTION c FROM '{repository}' WITH (ENCRYPTION = 'true', REPOSITORY = "
        with pytest.raises(PreconditionFailed, match=f"has the id {id_of(repository)}, but"):
            other.sql(f"{attach}'{'0' * 32}')")
        with pytest.raises(InvalidArgument, match="REPOSITORY cannot be 'x'"):
            other.sql(f"{attach}'x')")
        assert other.sql("SHOW BACKUP COLLECTIONS").rows() == []
        other.sql(f"{attach}'{id_of(repository)}')")
        assert {name: described(other)[name] for name in ("repository", "key")} == {
            "repository": id_of(repository),
            "key": shown["key"],
        }
        assert len(shown["key"]) == 16 and key.read_text()[:8] not in str(shown)


def test_a_repository_without_backups_may_be_made_anew(db: Database, repository: Path) -> None:
    create(db, repository)
    db.sql("BACKUP c")
    first = described(db)["repository"]
    db.sql(f"DROP BACKUP c '{backups(db)[0]}' CONFIRM")
    shutil.rmtree(repository)
    db.sql("BACKUP c")
    assert described(db)["repository"] == id_of(repository) != first


def test_a_collection_of_an_earlier_version_gets_its_id_with_the_next_backup(
    db: Database, repository: Path
) -> None:
    from strandline.backups.record import require_collection
    from strandline.catalog import paths

    create(db, repository)
    db.sql("BACKUP c")
    with db._runtime.catalog.write() as tx:
        row = require_collection(tx.conn, "c")
        paths.set_body(tx, row.id, replace(row.record(CollectionRecord), repository=None, key=None))
    assert "repository" not in described(db)
    db.sql("BACKUP c INCREMENTAL")
    assert described(db)["repository"] == id_of(repository)


# --- README ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_repository_says_what_it_is_and_how_to_restore_from_it(
    db: Database, repository: Path, tmp_path: Path, encrypted: bool
) -> None:
    create(db, repository, f"ENCRYPTION = '{encrypted}'")
    db.sql("BACKUP c")
    text = (repository / README).read_text()
    assert f"--repository {id_of(repository)} --{'' if encrypted else 'no-'}encryption" in text
    assert ("STRANDLINE_REPOSITORY_KEY_FILE" in text) == encrypted
    assert max(map(len, text.splitlines())) <= 115
    # Its content is not checked, and a missing file is written again.
    (repository / README).write_text("something else")
    db.sql("BACKUP c INCREMENTAL; VERIFY c; PRUNE c KEEP LAST 1 FULL CONFIRM; COMPACT c")
    assert (repository / README).read_text() == "something else"
    (repository / README).unlink()
    db.sql("BACKUP c")
    assert (repository / README).read_text() == text
    db.sql(f"COPY BACKUP '{backups(db)[-1]}' FROM c TO '{tmp_path}/copy'")
    assert "strandline" in (tmp_path / "copy" / README).read_text()
