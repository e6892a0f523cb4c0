"""An attacker changes a repository that it can write to.

Every text is either accepted because it is valid, or refused with the file's name. What is restored is what
was backed up.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select, update

from strandline import Database
from strandline.catalog import sqltables
from strandline.catalog.transactions import latest_step
from strandline.errors import BY_CODE, Corrupted, PreconditionFailed, StrandlineError
from strandline.storage.digest import checksum_of
from tests.backups.forged import body_of, changes, edit, sign
from tests.backups.reading import backups, leaks
from tests.backups.verify.repository import Kept, keep, opened, state
from tests.effort import EVERY

WATCHDOG_SECONDS = 60.0
"""An action that takes longer counts as hanging."""
SAMPLE = 9
"""Number of changes tried for each kind of text, if not all are tried."""
COLUMNS = {"/t": "k, v, n", "/u": "k, v", "/t/by_v/indexImplTable": "v, k, n"}
ADDED = {
    "pinned": True,
    "stored": "/etc",
    "synthetic": True,
    "merged": ["20260101120000Z_incremental"],
    "continued": {"step": 1, "sources": [[1, 2]]},
    "continues": 1,
    "was": "/t",
    "unique": True,
    "stored_": [],
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("forged")
    with opened(folder / "w") as db:
        return keep(db, folder / "w", folder / "repository")


@dataclass
class Attacked:
    """A copy of the repository, and a warehouse that knows nothing else."""

    kept: Kept
    folder: Path
    db: Database
    number: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / f"repository-{self.number}"

    @property
    def collection(self) -> str:
        return f"c{self.number}"

    def begin(self) -> Path:
        self.number += 1
        shutil.copytree(self.kept.root or "", self.root)
        return self.root

    def manifests(self) -> list[Path]:
        return sorted((self.root / "backups").iterdir())

    def attach(self, options: str = "") -> list[str]:
        self.db.sql(f"ATTACH BACKUP COLLECTION {self.collection} FROM '{self.root}' {options}")
        return backups(self.db, self.collection)

    def restore(self) -> None:
        """Restore, and assert that the rows are those that were backed up."""
        name = backups(self.db, self.collection)[-1]
        self.db.sql(f"RESTORE {self.collection}")
        # Select by name: only the manifest knows the order of columns.
        there = {
            path: sorted(
                (tuple(row) for row in self.db.sql(f"SELECT {columns} FROM `{path}`").rows()), key=repr
            )
            for path, columns in COLUMNS.items()
        }
        assert {
            path.removesuffix("/indexImplTable"): rows for path, rows in there.items()
        } == self.kept.states[name], "other rows came back"
        for k, v, n in self.kept.states[name]["/t"]:
            assert [tuple(row) for row in self.db.sql(f"SELECT v, n FROM t WHERE k = {k}").rows()] == [(v, n)]

    def go_through_all(self) -> None:
        """Run each statement: it ends well or with a named error.

        Afterwards the warehouse can be written to.
        """
        c = self.collection
        steps: list[Callable[[], Any]] = [
            lambda: self.attach("WITH (TAKE_OVER = 'true')"),
            lambda: self.db.sql(f"SHOW BACKUPS IN {c}").rows(),
            lambda: [self.db.describe(f"/.backups/collections/{c}/{b}") for b in backups(self.db, c)],
            lambda: self.db.verify(c),
            self.restore,
            lambda: self.db.sql(f"BACKUP {c} INCREMENTAL OR FULL"),
            lambda: self.db.sql(
                f"COPY BACKUP '{backups(self.db, c)[-1]}' FROM {c} TO '{self.folder}/copy-{c}'"
            ),
            lambda: self.db.sql(f"COMPACT {c} INCREMENTS"),
            lambda: self.db.sql(f"COMPACT {c}"),
            lambda: self.db.sql(f"PRUNE {c} KEEP LAST 1 FULL CONFIRM"),
            lambda: self.db.sql(f"DROP BACKUP COLLECTION IF EXISTS {c}"),
        ]
        for step in steps:
            try:
                step()
            except StrandlineError as error:
                self.told.append(error.code)
                # A forged row count may be too large for this process; there is no Spark here.
                is_for_spark = "Spark was used" in error.message
                assert error.code in BY_CODE and (error.code != "INTERNAL" or is_for_spark), repr(error)
            except IndexError:
                assert not backups_or_none(self.db, c)
        self.db.sql(
            "CREATE TABLE IF NOT EXISTS own (k Int32, PRIMARY KEY (k)); UPSERT INTO own (k) VALUES (1)"
        )
        self.db.sql("DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS u; DROP TABLE own")
        shutil.rmtree(self.root)

    def watch(self, what: str, action: Callable[[], None]) -> None:
        """Run the action, and fail if it hangs."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                action()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(WATCHDOG_SECONDS)
        assert not thread.is_alive(), f"{what}: it hangs"
        if failed:
            raise AssertionError(what) from failed[0]


def backups_or_none(db: Database, collection: str) -> list[str]:
    try:
        return backups(db, collection)
    except StrandlineError:
        return []


@pytest.fixture
def attacked(intact: Kept, tmp_path: Path) -> Iterator[Attacked]:
    with opened(tmp_path / "other") as db:
        yield Attacked(intact, tmp_path, db)


def sampled(cases: list[tuple[str, Any]], seed: str) -> list[tuple[str, Any]]:
    return cases if EVERY else random.Random(seed).sample(cases, min(SAMPLE, len(cases)))


@pytest.mark.slow
@pytest.mark.timeout(36000)
@pytest.mark.parametrize("which", [0, 2], ids=["full", "incremental"])
def test_every_field_of_a_manifest(attacked: Attacked, which: int) -> None:
    attacked.begin()
    file = attacked.manifests()[which].name
    cases = list(changes(body_of(attacked.manifests()[which]), ADDED))
    assert len(cases) > 1000
    for what, body in sampled(cases, file):
        path = attacked.begin() / "backups" / file
        path.write_bytes(sign(body))
        attacked.watch(what, attacked.go_through_all)
    assert leaks(attacked.db) == []


def text_of(root: Path, kind: str) -> Path:
    """Return the text of one kind that is in effect; create a trash list."""
    if kind == "repository.json":
        return root / kind
    if kind == "trash":
        (root / kind).mkdir(exist_ok=True)
        (root / kind / "00000001.json").write_bytes(
            sign({"record_format": 1, "time": 1.0, "names": [f"objects/ab/{'ab' * 16}.parquet", "backups/x"]})
        )
    return max((root / kind).iterdir(), key=lambda path: int(path.stem))


def rewrite(kind: str, body: Any) -> bytes:
    """Return a text as an attacker would write it, with right checksums."""
    if kind == "leases":
        return json.dumps(body).encode()
    if kind == "keys":
        names = ("generation", "key_id", "opens_with", "nonce", "wrapped")
        fields = " ".join([*(str(body.get(name)) for name in names), ""]) if isinstance(body, dict) else ""
        if isinstance(body, dict) and isinstance(body.get("check"), str):
            body = {**body, "check": hashlib.sha256(fields.encode(errors="replace")).hexdigest()[:16]}
        return json.dumps(body).encode()
    return sign(body)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("sealed")
    (folder / "key").write_text("ab" * 32)
    with opened(folder / "w", settings={"repository_key_file": str(folder / "key")}) as db:
        return keep(db, folder / "w", folder / "repository", encrypted=True)


@pytest.mark.slow
@pytest.mark.timeout(36000)
@pytest.mark.parametrize("kind", ["repository.json", "owners", "trash", "leases", "keys"])
def test_every_field_of_other_texts(sealed: Kept, tmp_path: Path, kind: str) -> None:
    settings = {"repository_key_file": str(sealed.folder.parent / "key")}
    with opened(tmp_path / "other", settings=settings) as db:
        attacked = Attacked(sealed, tmp_path, db)
        body = json.loads(text_of(attacked.begin(), kind).read_text())
        body.pop("checksum", None)
        cases = list(changes(body, {"unknown": 1}))
        assert len(cases) > 50
        for what, changed in sampled(cases, kind)[: None if EVERY else SAMPLE // 3]:
            path = text_of(attacked.begin(), kind)
            path.write_bytes(rewrite(kind, changed))
            attacked.watch(what, attacked.go_through_all)
        names = ["99999999999999999999.json", "x.json", "00000000.json", "1", "-1.json", "1.json.json"]
        for name in names if EVERY else names[:1]:
            path = text_of(attacked.begin(), kind)
            if path.parent != attacked.root:
                (path.parent / name).write_bytes(b"{")
                attacked.watch(name, attacked.go_through_all)
        assert leaks(db) == []


# --- single attacks ------------------------------------------------------------


def objects_of(body: dict[str, Any], table: str = "/t") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["contents"][table]["table"]
    return found


def rename(body: dict[str, Any], form: str) -> None:
    """Change the name of an object."""
    (found, *_) = objects_of(body)
    found["object"] = form.format(found["object"])


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "beside": (lambda b: rename(b, "../other/{}"), "is not the name of an object"),
    "up and down": (lambda b: rename(b, "objects/../../other/{}"), "is not the name of an object"),
    "from the root": (lambda b: rename(b, "/other/{}"), "is not the name of an object"),
    "in a folder": (lambda b: rename(b, "other/{}"), "is not the name of an object"),
    "a text": (lambda b: objects_of(b)[0].update(object="backups/x.json"), "is not the name of an object"),
    "of other digits": (
        lambda b: objects_of(b)[0].update(object=f"objects/ab/{'ab' * 16}.parquet"),
        "is not the name of an object with its checksum",
    ),
    "its own parent": (
        lambda b: b["backup"].update(parent=b["backup"]["name"], after_step=1),
        "builds on .*, which is not earlier",
    ),
    "a later parent": (
        lambda b: b["backup"].update(parent="20991231235959Z_full"),
        "builds on .*, which is not earlier",
    ),
    "a step without end": (lambda b: b["backup"].update(step=2**63 - 1), "the step is .* and not from"),
    "a step of the future": (lambda b: b["backup"].update(step=2**52), "later than any can be by now"),
    "no rows": (lambda b: objects_of(b)[0].update(rows=0), "has no rows, but a first or last key"),
    "no first key": (lambda b: objects_of(b)[0].update(min_key=None), "has rows, but no first or last key"),
    "a wide key": (lambda b: objects_of(b)[0].update(max_key=[1, 2]), "does not have the columns of the key"),
    "a key of text": (lambda b: objects_of(b)[0].update(min_key=["1"]), "cannot hold the str"),
    "a key of lists": (lambda b: objects_of(b)[0].update(min_key=[[1]]), "is not a value of a key"),
    "two columns of one name": (
        lambda b: b["backup"]["tables"]["/t"]["schema"]["columns"].append(
            {"id": 1, "name": "V", "type": "Utf8", "not_null": False, "physical": "w"}
        ),
        "never given out|twice",
    ),
    "a column of ours": (
        lambda b: b["backup"]["tables"]["/t"]["schema"]["columns"][1].update(physical="__strandline_op"),
        "is reserved",
    ),
    "a table among backups": (
        lambda b: [d.update({"/.backups/x": d.pop("/u")}) for d in (b["backup"]["tables"], b["contents"])],
        "where only backups live",
    ),
    "a table below a table": (
        lambda b: [d.update({"/t/u": d.pop("/u")}) for d in (b["backup"]["tables"], b["contents"])],
        "is below the table /t",
    ),
    "what only a catalog says": (lambda b: b["backup"].update(pinned=True), "only a catalog may set"),
    "half a character": (lambda b: b.update(engine="\ud800"), "half of a character"),
    "no time": (lambda b: b["backup"].update(time=float("nan")), "is not a finite number"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_manifest_that_cannot_be_true_is_refused(attacked: Attacked, what: str) -> None:
    change, said = REFUSED[what]
    attacked.begin()
    file = attacked.manifests()[2]
    edit(file, change)
    told = attacked.db.sql(
        f"ATTACH BACKUP COLLECTION c FROM '{attacked.root}' WITH (TAKE_OVER = 'true')"
    ).rows()
    assert [name for name, *_ in told] == attacked.kept.backups
    assert re.search(said, told[2][-1]), told[2]
    attacked.db.sql("DROP BACKUP COLLECTION c; CREATE TABLE own (k Int32, PRIMARY KEY (k))")
    attacked.db.sql("UPSERT INTO own (k) VALUES (1); DROP TABLE own")


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a": ' * 200_000, "\xff", '{"repository": 1' + "0" * 5_000]
)
def test_a_text_that_is_hard_to_read(attacked: Attacked, text: str) -> None:
    attacked.begin()
    data = text.encode("latin-1")
    end = f', "checksum": "{checksum_of(data)}"}}\n'
    attacked.manifests()[2].write_bytes(data + end.encode())

    def attach() -> None:
        attacked.attach()

    attacked.watch(text[:10], attach)
    assert backups(attacked.db, attacked.collection) == attacked.kept.backups[:2]


def test_the_clock_of_a_warehouse_is_not_brought_to_its_end(attacked: Attacked) -> None:
    """The highest accepted step leaves room for later steps, also in other warehouses."""
    most = latest_step(attacked.db._runtime.clock.now())

    def to_the_limit(body: dict[str, Any]) -> None:
        body["backup"]["step"] = most

    attacked.begin()
    edit(attacked.manifests()[2], to_the_limit)
    attacked.attach("WITH (TAKE_OVER = 'true')")
    attacked.restore()
    attacked.db.sql("UPSERT INTO t (k, v) VALUES (1000, 'after it')")
    c, rows = attacked.collection, state(attacked.db)
    attacked.db.sql(f"BACKUP {c} INCREMENTAL OR FULL; BACKUP {c}; DROP TABLE t; DROP TABLE u")
    attacked.db.sql(f"DROP BACKUP COLLECTION {c}")
    with opened(attacked.folder / "third") as third:
        third._runtime.clock.sleep(1)
        third.sql(f"ATTACH BACKUP COLLECTION c FROM '{attacked.root}'; RESTORE c")
        assert state(third) == rows


def test_a_catalog_that_believed_a_backup_that_is_its_own_parent(attacked: Attacked) -> None:
    """An earlier version accepted it. Nothing hangs, and the collection can be dropped."""
    attacked.begin()
    *_, last = attacked.attach("WITH (TAKE_OVER = 'true')")
    attacked.restore()
    with attacked.db._runtime.catalog.write() as tx:
        own = sqltables.paths.c.name == last
        body = tx.conn.execute(select(sqltables.paths.c.body).where(own)).scalar_one()
        parent = json.loads(body)["parent"]
        changed = body.replace(f'"parent": "{parent}"', f'"parent": "{last}"')
        assert changed != body
        tx.conn.execute(update(sqltables.paths).where(own).values(body=changed))

    def use() -> None:
        c = attacked.collection
        with pytest.raises(Corrupted, match="is not earlier"):
            attacked.db.sql(f"RESTORE {c} INTO again")
        assert attacked.db.verify(c)
        for statement in (
            f"BACKUP {c} INCREMENTAL",
            f"SHOW BACKUPS IN {c}",
            "SHOW STATUS",
            f"PRUNE {c} KEEP LAST 1 FULL",
        ):
            with suppress(StrandlineError):
                attacked.db.sql(statement)
        attacked.db.status()
        attacked.db.sql(f"DROP BACKUP COLLECTION {c}")

    attacked.watch("its own parent", use)


def forged_object(attacked: Attacked, make: Callable[[pa.Table], bytes], **claims: Any) -> None:
    """Replace the first object of the full backup, with correct names and checksums."""
    file = attacked.manifests()[0]
    (found,) = objects_of(body_of(file))
    old = attacked.root / found["object"]
    content = make(pq.read_table(old))
    digits = checksum_of(content).rpartition(":")[2]
    new = f"objects/{digits[:2]}/{digits}.parquet"
    (attacked.root / new).parent.mkdir(exist_ok=True)
    (attacked.root / new).write_bytes(content)

    def change(body: dict[str, Any]) -> None:
        more = len(content) - found["bytes"]
        body["backup"]["tables"]["/t"]["slice"]["bytes"] += more
        named = {"object": new, "checksum": f"xxh3-128:{digits}", "bytes": len(content)}
        objects_of(body)[0].update(named | claims)

    edit(file, change)


def as_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def shuffled(table: pa.Table) -> bytes:
    """Reverse the rows between the first and the last."""
    order = [0, *range(table.num_rows - 2, 0, -1), table.num_rows - 1]
    return as_parquet(table.take(pa.array(order)))


def with_column(table: pa.Table, name: str, values: pa.Array) -> bytes:
    return as_parquet(table.set_column(table.column_names.index(name), name, values))


ONLY_AT_RESTORE = "rows that are not in order", "another key twice"
OBJECTS: dict[str, tuple[Callable[[pa.Table], bytes], dict[str, Any]]] = {
    "more rows": (as_parquet, {"rows": 61}),
    "a later first key": (as_parquet, {"min_key": [30]}),
    "an earlier last key": (as_parquet, {"max_key": [3]}),
    "no Parquet": (lambda t: b"no Parquet" * 100, {}),
    "no footer": (lambda t: as_parquet(t)[:-100], {}),
    "a footer of noise": (lambda t: b"PAR1" + bytes(500) + (400).to_bytes(4, "little") + b"PAR1", {}),
    "no key": (lambda t: as_parquet(t.drop_columns(["k"])), {}),
    "lists for keys": (lambda t: with_column(t, "k", pa.array([[1]] * t.num_rows)), {}),
    "text for keys": (lambda t: with_column(t, "k", pa.array(["x"] * t.num_rows)), {}),
    "lists for values": (lambda t: with_column(t, "v", pa.array([[b"x"]] * t.num_rows)), {}),
    "no columns": (lambda t: as_parquet(pa.table({"x": pa.nulls(t.num_rows)})), {}),
    "no rows": (lambda t: as_parquet(t.slice(0, 0)), {}),
    "rows that are not in order": (shuffled, {}),
    "another key twice": (lambda t: as_parquet(t.take(pa.array([0, 1, 1, *range(3, t.num_rows)]))), {}),
}


@pytest.mark.parametrize("what", OBJECTS)
def test_an_object_that_is_not_what_its_manifest_says(attacked: Attacked, what: str) -> None:
    make, claims = OBJECTS[what]
    attacked.begin()
    forged_object(attacked, make, **claims)
    attacked.attach()
    problems = attacked.db.verify(attacked.collection)
    assert bool(problems) == (what not in ONLY_AT_RESTORE), problems
    with pytest.raises(Corrupted):
        attacked.db.sql(f"RESTORE {attacked.collection} TABLE t AS back")
    assert attacked.db.ls("/") == [] or "back" not in [entry.name for entry in attacked.db.ls("/")]
    attacked.db.collect()
    assert leaks(attacked.db) == []


def test_two_backups_that_describe_an_object_in_two_ways(attacked: Attacked) -> None:
    """Two manifests describe one object differently: both descriptions are checked."""
    attacked.begin()
    full, first, _ = attacked.manifests()
    (found,) = objects_of(body_of(full), "/u")
    assert found["min_key"] == [0]

    def name_it_too(body: dict[str, Any]) -> None:
        table = body["backup"]["tables"]["/u"]["slice"]
        table["bytes"] += found["bytes"]
        objects_of(body, "/u").append({**found, "role": "log", "fresh": False, "min_key": [30]})

    edit(first, name_it_too)
    attacked.attach()
    assert "in two ways" in " ".join(problem.message for problem in attacked.db.verify(attacked.collection))


# --- links and pipes -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a foreign folder, with files whose names look like those of a repository."""
    folder = tmp_path / "home"
    for name in ("thesis.txt", f"{'aa' * 16}.parquet", f"aa/{'aa' * 16}.parquet", f"x.json.{'ab' * 16}"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("years of work")
    return folder


def contents_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("place", ["objects", "objects/aa", "backups", "trash", "owners", "leases"])
def test_prune_follows_no_link(intact: Kept, tmp_path: Path, home: Path, place: str) -> None:
    shutil.copytree(intact.folder, tmp_path / "w")
    root, kept = intact.root, tmp_path / "kept"
    assert root is not None
    shutil.copytree(root, kept)
    before = contents_of(home)
    try:
        with opened(tmp_path / "w", files=None, settings={"repository_grace_seconds": 0.0}) as db:
            shutil.rmtree(root / place, ignore_errors=True)
            (root / place).symlink_to(home)
            for statement in (
                "PRUNE c KEEP LAST 1 FULL CONFIRM",
                "BACKUP c",
                "PRUNE c KEEP LAST 1 FULL CONFIRM",
            ):
                with suppress(StrandlineError):
                    db.sql(statement)
        assert contents_of(home) == before
        assert all(path.is_dir() or path.read_text() == "years of work" for path in home.rglob("*"))
    finally:
        (root / place).unlink(missing_ok=True)
        shutil.rmtree(root)
        shutil.copytree(kept, root)


def test_the_repository_itself_may_be_a_link(attacked: Attacked) -> None:
    attacked.begin()
    moved = attacked.root.rename(attacked.folder / "elsewhere")
    attacked.root.symlink_to(moved)
    attacked.attach("WITH (TAKE_OVER = 'true')")
    attacked.restore()
    attacked.db.sql(f"BACKUP {attacked.collection} INCREMENTAL OR FULL")
    assert len(list((moved / "backups").iterdir())) == 4


@pytest.mark.parametrize("kind", ["link", "link to a folder", "pipe"])
def test_what_is_in_the_place_of_an_object(attacked: Attacked, kind: str) -> None:
    """A link leads out of the repository, even to a file with the same content. A pipe has no end."""
    attacked.begin()
    (found,) = objects_of(body_of(attacked.manifests()[0]))
    place = attacked.root / found["object"]
    moved = place.rename(attacked.folder / "moved")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(moved)
    else:
        shutil.move(place.parent, attacked.folder / "folder")
        moved.rename(attacked.folder / "folder" / place.name)
        place.parent.symlink_to(attacked.folder / "folder")
    attacked.attach()

    def look() -> None:
        c = attacked.collection
        for statement in (
            f"VERIFY {c}",
            f"RESTORE {c}",
            f"SELECT * FROM `.backups/collections/{c}/{place_of}/t`",
        ):
            try:
                told = attacked.db.sql(statement).rows()
            except (Corrupted, PreconditionFailed):
                continue
            assert statement.startswith("VERIFY") and any(row[4] for row in told), statement

    place_of = attacked.kept.backups[0]
    attacked.watch(kind, look)
