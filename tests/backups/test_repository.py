"""Backups in a repository: uploads, shared objects, ownership, and ATTACH by another warehouse."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import strandline
from strandline import Database
from strandline.backups.collection import SendRequest
from strandline.backups.repository.manifest import Manifest
from strandline.catalog import paths
from strandline.catalog.tables import TableBody
from strandline.errors import InvalidArgument, PreconditionFailed, Unavailable
from strandline.settings import Settings
from strandline.storage.repository_marker import from_bytes
from tests.backups.reading import TABLE, backups, collection, contents, hurry, leaks, open_at, records
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, MortalFiles, bury
from tests.crash.mortal import connect as mortal_connect
from tests.effort import EVERY
from tests.quick_files import QuickFiles
from tests.tables.examples import assert_sound, content, rows

pytestmark = pytest.mark.slow


def objects(repository: Path) -> dict[str, int]:
    found = (p for p in (repository / "objects").rglob("*") if p.is_file())
    return {p.name: p.stat().st_ino for p in found}


def load(db: Database, first: int, number: int) -> None:
    db.table("t").upsert([{"k": k, "v": f"v{k}", "n": k % 7} for k in range(first, first + number)])


@pytest.fixture
def kept(db: Database, repository: Path) -> Database:
    """Create a table with an index, and a collection with a repository."""
    db.sql(TABLE)
    load(db, 0, 10)
    db.sql(collection(repository))
    return db


def test_a_backup_is_in_the_repository_and_no_longer_in_the_warehouse(
    kept: Database, repository: Path
) -> None:
    load(kept, 100, 5_000)  # more than is kept inline
    kept.sql("ALTER BACKUP COLLECTION c SET (INCREMENTAL_BACKUP_ENABLED = 'false')")  # no stream holds logs
    kept.sql("BACKUP c")
    before = contents(kept)
    (record,) = records(kept)
    assert record.stored == str(repository)
    assert {p.name for p in (repository / "backups").iterdir()} == {f"{record.name}.json"}
    kept.sql("DELETE FROM t")
    kept.compact("t")
    kept._runtime.clock.sleep(10_000)
    kept.collect()
    left = sum(
        (Path(kept._runtime.files.location) / f).stat().st_size for f in kept._runtime.files.names("data")
    )
    assert left < 5_000, "the rows are held by nothing in the warehouse"
    assert contents(kept) == before
    kept.sql("RESTORE c TABLE t AS back")
    assert len(content(kept, "back")) == 5_010
    assert_sound(kept, "back")
    assert leaks(kept) == []


def test_what_the_repository_has_is_not_sent_again(kept: Database, repository: Path) -> None:
    load(kept, 1_000, 20_000)
    kept.compact("t")
    kept.sql("BACKUP c")
    first = objects(repository)
    kept.sql("UPSERT INTO t (k, v, n) VALUES (1, 'other', 1)")
    kept.sql("BACKUP c")
    second = objects(repository)
    assert first.items() <= second.items(), "nothing was written anew"
    assert 0 < len(second) - len(first) <= 2, "one commit of a table and of its index"
    kept.sql("BACKUP c")
    assert objects(repository) == second


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_was_cut_is_sent_again(
    connect: Callable[..., Database], repository: Path, encrypted: bool
) -> None:
    (key := repository.with_name("key")).write_text("ab" * 32)
    db = connect(settings={"repository_key_file": str(key)})
    db.sql(TABLE)
    db.sql(collection(repository).removesuffix(")") + f", ENCRYPTION = '{encrypted}')")
    load(db, 0, 5_000)
    db.compact("t")
    load(db, 0, 1)  # One segment is a file, and one is packed from inline rows.
    db.sql("BACKUP c")
    for number, path in enumerate(sorted((repository / "objects").rglob("*.parquet"))):
        path.write_bytes(path.read_bytes()[: (0, 40, 300)[number % 3]])
    db.sql("BACKUP c; RESTORE c TABLE t AS back")
    assert sorted(content(db, "back")) == sorted(content(db, "t"))


def test_small_commits_are_packed(kept: Database, repository: Path) -> None:
    for number in range(40):
        kept.sql(f"UPSERT INTO t (k, v, n) VALUES ({number}, 'x', {number})")
    kept.sql("BACKUP c")
    assert len(objects(repository)) == 2, "one for the table, and one for its index"
    assert sorted(contents(kept)["/t"].values()) == sorted(content(kept, "t"))


def test_an_index_that_no_backup_had_before_is_sound_when_it_is_restored(kept: Database) -> None:
    """Its entries are older than the backup on which the increment builds."""
    kept.sql("ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'true'); BACKUP c")
    kept.sql("UPSERT INTO t (k, v) VALUES (50, 'x'); ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'false')")
    kept.sql("BACKUP c INCREMENTAL; RESTORE c TABLE t AS back")
    assert_sound(kept, "back")


class Watched(QuickFiles):
    """Checks each manifest that is written: all its objects exist."""

    listed = 0

    def write_if_absent(self, name: str, data: bytes) -> bool:
        if name.startswith("backups/"):
            manifest = from_bytes(Manifest, data, name)
            assert manifest.objects() and all(map(self.exists, manifest.objects())), "it names what is there"
            parent = manifest.backup.parent
            assert parent is None or self.exists(f"backups/{parent}.json")
            self.listed += 1
        return super().write_if_absent(name, data)


def test_a_manifest_comes_after_all_that_it_needs(kept: Database, repository: Path) -> None:
    there = Watched(repository)
    kept._runtime.files.opener = lambda root: there
    for statement in ("BACKUP c", "BACKUP c INCREMENTAL", "BACKUP c INCREMENTAL", "COMPACT c"):
        load(kept, 50, 3)
        kept.sql(statement)
    load(kept, 5_000, 5_000)  # more than is kept inline
    kept.sql("BACKUP c")
    assert there.listed == 5


class Broken(QuickFiles):
    """A repository that is unavailable until ``broken`` is reset."""

    broken = True

    def find(self, name: str) -> bytes | None:
        if self.broken:
            raise Unavailable(f"cannot use the file {name}: it is far away")
        return super().find(name)


def test_an_outage_costs_no_backup(kept: Database, repository: Path) -> None:
    there = Broken(repository)
    kept._runtime.files.opener = lambda root: there
    with pytest.raises(Unavailable):
        kept.sql("BACKUP c")
    (first,) = records(kept)
    assert first.stored is None, "it waits in the warehouse"
    there.broken = False
    load(kept, 50, 3)
    kept.sql("BACKUP c INCREMENTAL")
    assert [record.stored for record in records(kept)] == [str(repository)] * 2
    assert len(list((repository / "backups").iterdir())) == 2
    assert leaks(kept) == []


def test_a_backup_that_had_to_wait_is_sent_though_a_new_chain_has_begun(
    kept: Database, repository: Path
) -> None:
    there = Broken(repository)
    there.broken = False
    kept._runtime.files.opener = lambda root: there
    kept.sql("BACKUP c")
    there.broken = True
    for _ in range(2):
        load(kept, 50, 3)
        with pytest.raises(Unavailable):
            kept.sql("BACKUP c INCREMENTAL")
    there.broken = False
    kept.sql("BACKUP c")
    assert [record.stored for record in records(kept)] == [str(repository)] * 4
    assert len(list((repository / "backups").iterdir())) == 4
    assert all(operation.is_over for operation in kept.operations())
    assert leaks(kept) == []


def test_a_folder_that_cannot_be_made_is_named(kept: Database, repository: Path) -> None:
    target = repository.with_name("not mounted") / "repository"
    repository.symlink_to(target)
    with pytest.raises(Unavailable, match=f"the folder {repository} cannot be created"):
        kept.sql("BACKUP c")
    target.mkdir(parents=True)
    kept.sql("BACKUP c")
    assert {record.stored for record in records(kept)} == {str(repository)}


def test_a_repository_that_is_not_there_is_not_made_anew(kept: Database, repository: Path) -> None:
    """Its storage may not be mounted, or it was moved."""
    kept.sql("BACKUP c")
    away = repository.rename(repository.with_name("away"))
    repository.mkdir()
    load(kept, 50, 3)
    for statement in ("BACKUP c INCREMENTAL", "BACKUP c", "PRUNE c KEEP LAST 1 FULL CONFIRM"):
        with pytest.raises(PreconditionFailed, match=r"has no repository\.json"):
            kept.sql(statement)
    first = backups(kept)[0]
    with pytest.raises(PreconditionFailed, match=r"has no repository\.json"):
        kept.sql(f"DROP BACKUP c '{first}' CONFIRM")
    for statement in (
        f"RESTORE c AT '{first}' INTO x",
        f"RESTORE c AT '{first}' WITH (REPLACE = 'true')",
        f"SELECT k FROM t IN BACKUP c AT '{first}'",
        f"SELECT k FROM t VIEW by_v IN BACKUP c AT '{first}' WHERE v = 'v1'",
    ):
        with pytest.raises(PreconditionFailed, match=f"{repository}, .* is missing: it has no"):
            kept.sql(statement).rows()
    assert list(repository.iterdir()) == []
    repository.rmdir()
    away.rename(repository)
    kept.sql("BACKUP c INCREMENTAL")
    assert {record.stored for record in records(kept)} == {str(repository)}
    assert kept.verify("c") == []


def test_an_increment_does_not_go_where_its_parent_is_not(
    kept: Database, repository: Path, tmp_path: Path
) -> None:
    """The repository was replaced by an older copy."""
    kept.sql("BACKUP c")
    shutil.copytree(repository, tmp_path / "older")
    load(kept, 50, 3)
    kept.sql("BACKUP c INCREMENTAL")
    lost = backups(kept)[-1]
    shutil.rmtree(repository)
    (tmp_path / "older").rename(repository)
    load(kept, 60, 3)
    with pytest.raises(PreconditionFailed, match=f"does not have the backup {lost}, on which"):
        kept.sql("BACKUP c INCREMENTAL")
    assert len(list((repository / "backups").iterdir())) == 1
    kept.sql(f"DROP BACKUP c '{lost}' CONFIRM; BACKUP c")
    assert {record.stored for record in records(kept)} == {str(repository)}
    assert kept.verify("c") == []


@pytest.mark.parametrize("has_damage", [False, True])
def test_a_copy_of_a_warehouse_does_not_write_where_the_other_does(
    kept: Database, repository: Path, tmp_path: Path, has_damage: bool
) -> None:
    """Both were the same warehouse, so each takes itself for the owner.

    An unreadable manifest does not hide another one.
    """
    read_first = repository / "backups" / "20990101000000Z_full.full.json"
    kept.sql("BACKUP c")
    here, copied = Path(kept._runtime.files.location), tmp_path / "copied"
    shutil.copytree(here, copied)
    load(kept, 50, 3)
    kept.sql("BACKUP c INCREMENTAL")
    second = backups(kept)[-1]
    with open_at(copied, clock=ManualClock(kept._runtime.clock.now() + 100)) as other:
        if has_damage:
            read_first.write_text("{")
        for statement in ("BACKUP c", "BACKUP c INCREMENTAL"):
            with pytest.raises(PreconditionFailed, match=f"{second} that this warehouse does not know"):
                other.sql(statement)
        first, *waiting = backups(other)
        with pytest.raises(PreconditionFailed, match=f"{second} that this warehouse does not know"):
            other.sql(f"DROP BACKUP c '{first}' CONFIRM")
        assert backups(other) == [first, *waiting]
        read_first.unlink(missing_ok=True)
        assert [problem.kind for problem in other.verify("c", level="chain")] == ["unknown_backup"]
        other.sql(f"DROP BACKUP COLLECTION c; {collection(tmp_path / 'its own')}; BACKUP c")
    assert kept.verify("c") == []
    kept.sql("BACKUP c INCREMENTAL")


def test_a_backup_that_came_back_is_named_and_is_in_nobodys_way(kept: Database, repository: Path) -> None:
    """Files of a dropped backup were copied back from an older copy of the repository."""
    kept.sql("BACKUP c")
    for _ in range(3):
        kept.sql("BACKUP c INCREMENTAL")
    *_, third, last = backups(kept)
    files = {name: repository / "backups" / f"{name}.json" for name in (third, last)}
    older = {name: path.read_bytes() for name, path in files.items()}
    kept.sql(f"DROP BACKUP c '{third}' CONFIRM")
    assert kept.verify("c") == []
    for name, path in files.items():
        path.write_bytes(older[name])
    found = kept.verify("c", level="chain")
    assert [(problem.kind, problem.path) for problem in found] == [
        ("unknown_backup", str(path)) for path in files.values()
    ]
    assert all(backup.restorable for backup in found.backups)
    kept.sql("BACKUP c INCREMENTAL OR FULL; BACKUP c INCREMENTAL")
    assert {record.stored for record in records(kept)} == {str(repository)}


def test_two_warehouses_do_not_share_a_repository(
    kept: Database, repository: Path, tmp_path: Path, clock: ManualClock
) -> None:
    kept.sql("BACKUP c")
    with open_at(tmp_path / "other", clock=clock) as other:
        other.sql(TABLE)
        other.sql(collection(repository))
        with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
            other.sql("BACKUP c")
        assert len(list((repository / "backups").iterdir())) == 1
        other.sql("DROP BACKUP COLLECTION c")
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
        with pytest.raises(PreconditionFailed, match="belongs to another warehouse"):
            other.sql("BACKUP c")
        other.sql("DROP BACKUP COLLECTION c")
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}' WITH (TAKE_OVER = 'true')")
        other.sql("BACKUP c")
        assert len(backups(other)) == 2
        kept.sql("UPSERT INTO t (k) VALUES (77)")
        with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
            kept.sql("BACKUP c")


def test_a_chain_is_brought_out_of_the_warehouse(db: Database, repository: Path, tmp_path: Path) -> None:
    db.sql(TABLE)
    db.sql(collection("cluster"))
    load(db, 0, 10)
    db.sql("BACKUP c")
    db.sql("DELETE FROM t WHERE k < 3")
    db.sql("BACKUP c INCREMENTAL")
    load(db, 90, 1)
    db.sql("BACKUP c INCREMENTAL")
    first, second, third = backups(db)
    db.sql(f"COPY BACKUP '{second}' FROM c TO '{repository}'")
    assert [record.stored for record in records(db)] == [None] * 3, "the warehouse keeps its own"
    assert {p.name for p in (repository / "backups").iterdir()} == {f"{first}.json", f"{second}.json"}
    copied = db.operation(rows(db, f"COPY BACKUP '{third}' FROM c TO '{repository}'")[0][0]).result or {}
    assert copied["backups"] == [third], "the others were there"
    assert copied["bytes"] == sum(slice_.bytes for slice_ in records(db)[-1].slices)
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        found = rows(other, f"ATTACH BACKUP COLLECTION d FROM '{repository}'")
        assert [row[0] for row in found] == [first, second, third]
        assert contents(other, collection="d") == contents(db, third)
    with pytest.raises(InvalidArgument, match="no other place"):
        db._operations.run("send backup", SendRequest(collection="c"))


@pytest.mark.parametrize("place", ["", "backups/here", "../link/here", ".."])
def test_a_repository_is_not_in_the_warehouse_nor_that_in_it(
    db: Database, repository: Path, tmp_path: Path, place: str
) -> None:
    here = Path(db._runtime.files.location)
    (tmp_path / "link").symlink_to(here)
    db.sql(f"{TABLE}; {collection('cluster')}; BACKUP c")
    (name,), before = backups(db), sorted(tmp_path.rglob("*"))
    for statement in (
        collection(here / place).replace(" c ", " d "),
        f"ALTER BACKUP COLLECTION c SET (STORAGE = '{here / place}')",
        f"COPY BACKUP '{name}' FROM c TO '{here / place}'",
    ):
        with pytest.raises(InvalidArgument, match="inside each other"):
            db.sql(statement)
    assert sorted(tmp_path.rglob("*")) == before and len(rows(db, "SHOW BACKUP COLLECTIONS")) == 1
    db.sql(f"COPY BACKUP '{name}' FROM c TO '{repository}'")


@pytest.mark.parametrize("changed", ["STORAGE = 'cluster'", "STORAGE = '{}'", "ENCRYPTION = 'true'"])
@pytest.mark.parametrize("attached", [False, True])
def test_backups_stay_where_they_are(
    kept: Database, repository: Path, tmp_path: Path, changed: str, attached: bool
) -> None:
    kept.sql(f"ALTER BACKUP COLLECTION c SET (STORAGE = '{repository}2'); BACKUP c")  # There was none before.
    with open_at(tmp_path / "other") as other:
        if attached:
            other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}2'")
        db = other if attached else kept
        before = db.describe("/.backups/collections/c")
        with pytest.raises(PreconditionFailed, match="has backups in"):
            db.sql(f"ALTER BACKUP COLLECTION c SET ({changed.format(tmp_path / 'elsewhere')})")
        assert db.describe("/.backups/collections/c") == before


def test_nothing_that_others_have_becomes_a_part_of_a_new_repository(
    kept: Database, repository: Path, tmp_path: Path
) -> None:
    """A repository deletes files from its own folders that it does not need."""
    for folder in ("backups", "objects", "owners", "trash", "leases"):
        (tmp_path / folder / folder).mkdir(parents=True)
        (tmp_path / folder / folder / "dump.sql").write_text("precious")
        create = collection(tmp_path / folder).replace(" c ", f" {folder} ")
        with pytest.raises(PreconditionFailed, match=f"cannot become .* has the file {folder}/dump.sql"):
            kept.sql(create)
        kept.sql(create.replace("WITH (", "WITH (CHECK = 'false', "))
        with pytest.raises(PreconditionFailed, match=f"cannot become .* has the file {folder}/dump.sql"):
            kept.sql(f"BACKUP {folder}")
        assert [path.name for path in (tmp_path / folder).iterdir()] == [folder]
        (tmp_path / folder / folder / "dump.sql").rename(tmp_path / folder / "dump.sql")
        kept.sql(f"BACKUP {folder}")
    kept.sql("BACKUP c")
    (name,) = backups(kept)
    before = sorted(repository.rglob("*"))
    for folder in ("backups", "objects/ab", "owners", "trash", "leases", "keys"):
        with pytest.raises(PreconditionFailed, match=f"among the files of the one at {repository}"):
            kept.sql(f"COPY BACKUP '{name}' FROM c TO '{repository}/{folder}'")
    assert sorted(repository.rglob("*")) == before
    kept.sql(f"COPY BACKUP '{name}' FROM c TO '{repository}/other'")
    kept.sql(f"COPY BACKUP '{name}' FROM c TO '{tmp_path}/elsewhere/objects/x'")


def test_what_is_no_repository_is_refused(db: Database, tmp_path: Path) -> None:
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(PreconditionFailed, match=r"repository\.json"):
            db.sql(f"ATTACH BACKUP COLLECTION c FROM '{place}'")
    assert not (tmp_path / "nothing").exists()
    assert rows(db, "SHOW BACKUP COLLECTIONS") == []


def test_a_damaged_manifest_costs_its_backup_only(kept: Database, repository: Path, tmp_path: Path) -> None:
    kept.sql("BACKUP c")
    kept._runtime.clock.sleep(5)
    kept.sql("BACKUP c")
    first, second = backups(kept)
    manifest = repository / "backups" / f"{second}.json"
    text = manifest.read_bytes()
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        for broken in (text[:-1], b"", text.replace(b'"rows": 10', b'"rows": 11', 1), b"[]", b"\xff" * 9):
            manifest.write_bytes(broken)
            found = rows(other, f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
            assert [row[-1] == "attached" for row in found] == [True, False]
            assert backups(other) == [first]
            other.sql("RESTORE c; DROP TABLE t; DROP BACKUP COLLECTION c")
        manifest.write_bytes((repository / "backups" / f"{first}.json").read_bytes())
        found = rows(other, f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
        assert f"that of {first}" in found[1][-1]


def test_each_collection_has_a_repository_of_its_own(kept: Database, repository: Path) -> None:
    """Otherwise the retention rules of one would delete the backups of the other."""
    db = kept
    db.sql("CREATE TABLE u (k Int32, PRIMARY KEY (k)); BACKUP c")
    with pytest.raises(PreconditionFailed, match="is that of the collection 'c'"):
        db.sql(f"CREATE BACKUP COLLECTION d (TABLE u) WITH (STORAGE = '{repository}/')")
    db.sql("CREATE BACKUP COLLECTION d (TABLE u) WITH (STORAGE = 'cluster')")
    with pytest.raises(PreconditionFailed, match="is that of the collection 'c'"):
        db.sql(f"ALTER BACKUP COLLECTION d SET (STORAGE = '{repository}')")
    with pytest.raises(PreconditionFailed, match="is that of the collection 'c'"):
        db.sql(f"ATTACH BACKUP COLLECTION e FROM '{repository}' WITH (TAKE_OVER = 'true')")
    db.sql("BACKUP d")
    copy, name = repository.with_name("copy"), backups(db, "d")[-1]
    db.sql(f"COPY BACKUP '{backups(db)[-1]}' FROM c TO '{copy}'")
    for place in (repository, copy):
        with pytest.raises(PreconditionFailed, match="is that of the collection 'c'"):
            db.sql(f"COPY BACKUP '{name}' FROM d TO '{place}'")
    # The repository of a collection known here is refused before anything begins.
    assert [operation.state for operation in db.operations()].count("failed") == 1
    db.sql(f"ATTACH BACKUP COLLECTION reads FROM '{repository}'")
    for statement in ("BACKUP reads", "PRUNE reads KEEP LAST 1 FULL CONFIRM"):
        with pytest.raises(PreconditionFailed, match="to another warehouse"):
            db.sql(statement)
    db.sql(f"DROP BACKUP COLLECTION c; ATTACH BACKUP COLLECTION e FROM '{repository}'; BACKUP e")
    assert len(backups(db, "e")) == 2


def test_what_is_attached_is_described_as_where_it_was_made(
    kept: Database, repository: Path, tmp_path: Path
) -> None:
    kept.sql("BACKUP c; UPSERT INTO t (k, v) VALUES (1, 'x'), (2, 'y'), (50, 'z'); DELETE FROM t WHERE k = 3")
    kept.sql("BACKUP c INCREMENTAL; ALTER BACKUP COLLECTION c SET (OMIT_INDEXES = 'true'); BACKUP c")

    def described(db: Database) -> dict[str, list[object]]:
        tables = [e.path for e in db.ls("/.backups/collections/c", depth=None) if e.type == "table"]
        shown = ("columns", "key", "rows", "digest", "indexes")
        with db._runtime.catalog.read() as conn:
            bodies = {path: paths.require(conn, path).record(TableBody) for path in tables}
        return {
            path: [
                *(db.describe(path)[name] for name in shown),
                [ref.omitted for ref in bodies[path].indexes],
            ]
            for path in tables
        }

    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
        assert described(other) == described(kept)
        assert len(described(other)) > 4


def test_a_repository_can_be_moved(kept: Database, repository: Path, tmp_path: Path) -> None:
    kept.sql("BACKUP c")
    before = contents(kept)
    place = tmp_path / 'another "pl#ace"' / "objects" / "x"
    shutil.copytree(repository, place)
    shutil.rmtree(repository)
    with open_at(tmp_path / "other", clock=ManualClock()) as other:
        quoted = str(place).replace("'", "''")
        other.sql(f"ATTACH BACKUP COLLECTION c FROM '{quoted}'")
        assert contents(other) == before
        other.sql("RESTORE c")
        assert_sound(other, "t")


ALONE = Settings(workers=1, parts_together=1, history_seconds=0.0, grace_seconds=0.0, inline_rows=0)


def living(folder: Path, repository: Path) -> Database:
    db = strandline.connect(folder, settings=ALONE)
    db._runtime.files.opener = QuickFiles
    hurry(db)
    return db


class Places(Fate):
    """Places to die: before and after every catalog transaction and every change of a file."""

    def meet(self, boundary: str) -> None:
        if self.dead or boundary not in ("sync", "flush", "mkdir", "before the catalog commits"):
            super().meet(boundary)


@pytest.mark.parametrize("statement", ["BACKUP c", "BACKUP c INCREMENTAL"])
def test_death_at_every_write(tmp_path: Path, statement: str) -> None:
    folder, repository = tmp_path / "w", tmp_path / "r"
    stride = 1 if EVERY else 23
    with living(folder, repository) as db:
        db.sql(TABLE)
        load(db, 0, 40)
        db.sql(collection(repository))
        db.sql("BACKUP c")
    for number in itertools.count():
        with living(folder, repository) as db:
            db.sql(f"UPSERT INTO t (k, v, n) VALUES ({number}, 'new', 0), ({-number}, 'x', 1)")
        fate = Places(1 + number * stride)
        mortal = mortal_connect(folder, None, fate, ALONE)
        mortal._runtime.files.opener = lambda root, fate=fate: MortalFiles(root, fate)
        try:
            mortal.sql(statement)
            mortal.close()
        except Death:
            bury(mortal, folder, None)
        with living(folder, repository) as db:
            db.resume()
            assert all(o.is_over for o in db.operations())
            db.sql("BACKUP c INCREMENTAL")
            assert all(record.stored == str(repository) for record in records(db)), fate.place
            assert sorted(contents(db)["/t"].values()) == sorted(content(db, "t")), fate.place
            db.collect()
            assert leaks(db) == []
            expected = {name: contents(db, name) for name in backups(db)}
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        if number % 3 == 0 or not fate.dead:
            with open_at(tmp_path / "other", clock=ManualClock()) as other:
                other.sql(f"ATTACH BACKUP COLLECTION c FROM '{repository}'")
                assert {name: contents(other, name) for name in backups(other)} == expected, fate.place
                assert other.verify("c") == []
        if not fate.dead:
            assert fate.trail.count("link") > 2
            return
