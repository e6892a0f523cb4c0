"""Damage of any file of a repository is found at the expected level of verification.

RESTORE, also after ATTACH, publishes nothing but what was backed up.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from strandline import Database
from strandline.catalog import chains
from strandline.errors import Corrupted, PreconditionFailed
from tests.backups.reading import records
from tests.backups.verify.repository import Kept, keep, opened, state
from tests.effort import EVERY

ATTACHED = 16
"""If every byte of a text is changed, ATTACH is tried once for this many bytes.

It reads the text as the verification does, and takes ten times as long.
"""


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("damage")
    with opened(folder / "w") as db:
        return keep(db, folder / "w", folder / "repository")


class Bench:
    """A repository to damage, the warehouse that owns it, and one to attach it to."""

    def __init__(self, kept: Kept, db: Database, other: Database) -> None:
        self.kept, self.db, self.other = kept, db, other
        self.cases: Counter[str] = Counter()
        self.missed: list[str] = []
        self._number = 0
        self.shown = shown(db, "c")

    @property
    def root(self) -> Path:
        assert self.kept.root is not None
        return self.kept.root

    def path(self, name: str) -> Path:
        return self.root / name

    def of_kind(self, kind: str) -> list[str]:
        return [name for name in self.kept.files() if name.startswith(kind)]

    @contextmanager
    def damaged(self, name: str, content: bytes | None) -> Iterator[None]:
        """Replace or remove the content of a file for a while."""
        before = self.path(name).read_bytes()
        assert content != before
        try:
            if content is None:
                self.path(name).unlink()
            else:
                self.path(name).write_bytes(content)
            yield
        finally:
            self.path(name).write_bytes(before)

    def try_case(
        self, what: str, name: str, content: bytes | None, *, level: str, publish: bool, attach: bool = False
    ) -> None:
        """Damage a file, and check that the damage is found.

        Args:
            publish: Also try to restore the damaged rows.
            attach: Also compare what is attached.
        """
        self.cases[what] += 1
        with self.damaged(name, content):
            self._judge(f"{what} of {name}", level=level, publish=publish, attach=attach)

    def _judge(self, what: str, *, level: str, publish: bool, attach: bool) -> None:
        report = self.db.verify("c", level=level, again=True)
        if not report:
            self.missed.append(what)
        if publish:
            self._publish(what, self.db, "c")
        if publish or attach:
            self._attach(what, publish=publish)

    def _attach(self, what: str, *, publish: bool) -> None:
        """Assert that the attached backups, and what they restore, are those that were taken."""
        self._number += 1
        name = f"c{self._number}"
        try:
            self.other.sql(f"ATTACH BACKUP COLLECTION {name} FROM '{self.root}'")
        except (Corrupted, PreconditionFailed):
            return
        assert shown(self.other, name).items() <= self.shown.items(), what
        if publish:
            self._publish(what, self.other, name)
        self.other.sql(f"DROP BACKUP COLLECTION {name}")

    def _publish(self, what: str, db: Database, collection: str) -> None:
        """Assert that the last backup is restored as it was, or that nothing is."""
        self._number += 1
        place = f"r{self._number}"
        backup = db.ls(f"/.backups/collections/{collection}")[-1].name
        try:
            db.sql(f"RESTORE {collection} INTO `{place}`")
        except (Corrupted, PreconditionFailed):  # The latter if it has another repository's id.
            assert place not in [entry.name for entry in db.ls("/")], what
            return
        assert state(db, f"/{place}") == self.kept.states[backup], what
        db.sql(f"DROP TABLE `{place}/t`; DROP TABLE `{place}/u`")


def shown(db: Database, collection: str) -> dict[str, Any]:
    """Return how the catalog describes each backup: schemas, digests, and segments."""
    found: dict[str, Any] = {}
    for record in records(db, collection):
        with db._runtime.catalog.read() as conn:
            held = [chains.load(conn, s.target_id, record.step).segments for s in record.slices]
        bytes_ = [[replace(s, id=0, file=(s.file or "").partition("#")[0]) for s in each] for each in held]
        tables = {
            path: (table.schema, [i.definition for i in table.indexes], table.changefeeds)
            for path, table in record.tables.items()
        }
        sums = [replace(s, target_id=0) for s in record.slices]
        about = (record.kind, record.parent, record.after_step, record.step, record.time, record.stream)
        found[record.name] = about, tables, sums, bytes_
    return found


@pytest.fixture
def bench(intact: Kept, tmp_path: Path) -> Iterator[Bench]:
    """Return an intact repository at its place, which the catalog knows, and check it at the end."""
    shutil.copytree(intact.folder, tmp_path / "w")
    with opened(tmp_path / "w") as db, opened(tmp_path / "other") as other:
        made = Bench(intact, db, other)
        yield made
        for level in ("chain", "files", "checksums", "restore"):
            assert db.verify("c", level=level, again=True) == []
        assert made.missed == []


def cut(content: bytes) -> dict[str, bytes | None]:
    """Return truncated variants of a file."""
    return {
        "removal": None,
        "loss of the last byte": content[:-1],
        "loss of half": content[: len(content) // 2],
        "loss of all": b"",
    }


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]


TEXTS = ("repository.json", "owners/", "backups/")


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXTS)
def test_texts(bench: Bench, kind: str) -> None:
    """The marker, the owner and the manifests: the level "chain" is enough to find the damage."""
    names = bench.of_kind(kind)
    assert len(names) == (3 if kind == "backups/" else 1)
    for name in names:
        content = bench.path(name).read_bytes()
        for what, changed in cut(content).items():
            bench.try_case(what, name, changed, level="chain", publish=True)
        bench.try_case("more at the end", name, content + b"\n", level="chain", publish=True)
        places = range(0, len(content), 1 if EVERY else max(1, len(content) // 12))
        for number, at in enumerate(places):
            changed = flipped(content, at)
            publish, attach = number % (len(places) // 4) == 0, EVERY and number % ATTACHED == 0
            bench.try_case("flipped bit", name, changed, level="chain", publish=publish, attach=attach)
    print(kind, dict(bench.cases))
    assert bench.cases["removal"] == bench.cases["loss of half"] == len(names)
    assert bench.cases["flipped bit"] >= 10 * len(names)


@pytest.mark.slow
def test_manifests_that_change_places(bench: Bench) -> None:
    names = bench.of_kind("backups/")
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        bench.try_case("another's", name, bench.path(other).read_bytes(), level="chain", publish=True)
    assert bench.cases["another's"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_another_repository(bench: Bench, kind: str, tmp_path: Path) -> None:
    """They are valid, but belong to another repository."""
    with opened(tmp_path / "stranger") as db:
        stranger = keep(db, tmp_path / "stranger", tmp_path / "strange")
    assert stranger.root is not None
    theirs = [name for name in stranger.files() if name.startswith(kind)]
    for name, other in zip(bench.of_kind(kind), theirs, strict=True):
        content = (stranger.root / other).read_bytes()
        bench.try_case("a stranger's", name, content, level="chain", publish=True)
    assert bench.cases["a stranger's"] == len(theirs)


@pytest.mark.slow
def test_objects_that_are_not_whole(bench: Bench) -> None:
    """The level "files" finds it without reading them."""
    names = bench.of_kind("objects/")
    assert len(names) == 9
    for name in names:
        content = bench.path(name).read_bytes()
        for what, changed in {**cut(content), "more at the end": content + b"\0"}.items():
            bench.try_case(what, name, changed, level="files", publish=True)
    assert set(bench.cases.values()) == {9} and len(bench.cases) == 5


@pytest.mark.slow
def test_objects_that_change_places(bench: Bench) -> None:
    names = bench.of_kind("objects/")
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        bench.try_case("another's", name, bench.path(other).read_bytes(), level="checksums", publish=True)
    assert bench.cases["another's"] == 9


def places(path: Path) -> Iterator[tuple[str, int]]:
    """Yield positions of bytes of each kind in a Parquet file."""
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    yield from (("first magic", at) for at in (0, 3))
    group = pq.ParquetFile(path).metadata.row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        start = column.dictionary_page_offset or column.data_page_offset
        yield "page header", start + 1
        yield "page header", column.data_page_offset + 2
        yield "page data", start + column.total_compressed_size // 2
        yield "page data", start + column.total_compressed_size - 1
    begin = len(content) - 8 - footer
    yield from (("footer", begin + at) for at in range(0, footer, max(1, footer // 8)))
    yield from (("footer length", len(content) + at) for at in (-8, -7, -5))
    yield from (("last magic", len(content) + at) for at in (-4, -1))


PLACES = {"first magic", "page header", "page data", "footer", "footer length", "last magic"}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3 if EVERY else 1))
def test_bits_of_objects(bench: Bench, part: int) -> None:
    """A third of the objects, unless everything is tried."""
    for name in bench.of_kind("objects/")[part::3]:
        content = bench.path(name).read_bytes()
        for number, (what, at) in enumerate(places(bench.path(name))):
            publish = EVERY or number % 5 == 0
            bench.try_case(what, name, flipped(content, at), level="checksums", publish=publish)
    print(dict(bench.cases))
    assert set(bench.cases) == PLACES
    assert sum(bench.cases.values()) >= 3 * 25


def test_a_bit_of_each_kind(bench: Bench) -> None:
    """A sample, if not everything is tried."""
    name = bench.of_kind("objects/")[0]
    content = bench.path(name).read_bytes()
    for what, at in dict(places(bench.path(name))).items():
        bench.try_case(what, name, flipped(content, at), level="checksums", publish=True)
    assert set(bench.cases) == PLACES


@pytest.mark.slow
def test_an_encrypted_repository(tmp_path: Path) -> None:
    """Also its keys. The verifying process has read all files before."""
    (tmp_path / "key").write_text("ab" * 32)
    options = {"settings": {"repository_key_file": str(tmp_path / "key")}}
    with opened(tmp_path / "w", **options) as db, opened(tmp_path / "other", **options) as other:
        bench = Bench(keep(db, tmp_path / "w", tmp_path / "repository", encrypted=True), db, other)
        assert db.verify("c") == []
        for name in bench.kept.files():
            level = "checksums" if name.startswith("objects/") else "chain"
            content = bench.path(name).read_bytes()
            for what, changed in cut(content).items():
                publish = EVERY or name.startswith("keys/")
                bench.try_case(what, name, changed, level=level, publish=publish)
            for at in (0, len(content) // 2, len(content) - 1):
                bench.try_case(
                    "flipped bit", name, flipped(content, at), level=level, publish=EVERY or at == 0
                )
        for kind, level in (("objects/", "checksums"), ("backups/", "chain")):
            names = bench.of_kind(kind)
            for name, its in zip(names, [*names[1:], names[0]], strict=True):
                bench.try_case("another's", name, bench.path(its).read_bytes(), level=level, publish=True)
        assert len(bench.of_kind("keys/")) == 1
        assert bench.cases["another's"] == 12
        assert bench.cases["removal"] == len(bench.kept.files()) == 15
        assert bench.cases["flipped bit"] == 3 * 15
        assert bench.missed == []
        for level in ("chain", "files", "checksums", "restore"):
            assert db.verify("c", level=level, again=True) == []


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_damage_to_all_objects_at_once(bench: Bench, damage: str) -> None:
    contents = {name: bench.path(name).read_bytes() for name in bench.of_kind("objects/")}
    change: Callable[[Path, bytes], object] = {
        "removed": lambda path, _: path.unlink(),
        "flipped": lambda path, content: path.write_bytes(flipped(content, len(content) // 2)),
    }[damage]
    for name, content in contents.items():
        change(bench.path(name), content)
    report = bench.db.verify("c", level="files" if damage == "removed" else "checksums", again=True)
    assert len(report) == len(contents)
    assert report.newest_restorable is None
    assert all("objects/" in (backup.because or "") for backup in report.backups)
    for name, content in contents.items():
        bench.path(name).write_bytes(content)
