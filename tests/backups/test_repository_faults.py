"""Faults of a repository: each request fails in turn, in each possible way.

The process survives the fault or dies of it. A backup that was reported as done can be restored, needed files
exist, unneeded ones are deleted, and the next try succeeds.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline import Database
from strandline.backups.repository.repository import Repository
from strandline.errors import PreconditionFailed, StrandlineError
from tests.backups.reading import (
    HERE,
    TABLE,
    State,
    backups,
    collection,
    contents,
    hurry,
    last,
    leaks,
    open_at,
    records,
)
from tests.backups.test_repository import load
from tests.backups.test_repository_garbage import DAY, files
from tests.backups.unreliable import READS, WAYS, Line, go_through, ways_of
from tests.catalogs import Death, ManualClock
from tests.crash.mortal import Fate, bury
from tests.crash.mortal import connect as mortal_connect
from tests.effort import EVERY
from tests.tables.examples import NoSpark, content

PRUNE = "PRUNE c KEEP LAST 1 FULL CONFIRM"
ATTACH = "ATTACH BACKUP COLLECTION c FROM '{repository}' WITH (ENCRYPTION = 'false')"
STATEMENTS = {
    "full": ("BACKUP c", 47),
    "increment": ("BACKUP c INCREMENTAL", 45),
    "prune": (PRUNE, 58),
    "compact": ("COMPACT c", 38),
    "merge": ("COMPACT c INCREMENTS", 71),
    "verify": ("VERIFY c WITH (AGAIN = 'true')", 47),
    "attach": (ATTACH, 17),
    "take over": (f"{ATTACH.removesuffix(')')}, TAKE_OVER = 'true')", 16),
    "new repository": ("BACKUP c", 41),
}
"""Statement, and the distance between failing requests if not all are tried."""
FATAL = ("refused", "cut", "unanswered", "delayed")
"""One of the ways that are equal for a process that dies."""
KINDS = [(way, dies) for way in WAYS for dies in (False, True) if not dies or way in FATAL]

LONG = 5
"""Maximum number of backups in a chain before a new one begins."""


def cases(stride: int) -> Generator[tuple[int, str, bool], str, None]:
    """Yield which request fails, in which way, and whether the process dies.

    Expects the kind of the request.
    """
    for number in itertools.count():
        if EVERY:
            asked = yield 1 + number, *KINDS[0]
            ways, changes = ways_of(asked), asked not in READS
            # A death while reading is equal to a death before the next change.
            yield from (
                (1 + number, way, dies) for way, dies in KINDS[1:] if way in ways and (changes or not dies)
            )
        else:
            # Another way for each place, and for each statement another one than the last time.
            yield (1 + number * stride, *KINDS[(number * 2 + stride) % len(KINDS)])


class Story:
    """A warehouse with a table and a repository, and an empty warehouse."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.folder, self.repository, self.other = folder / "w", folder / "r", folder / "other"
        (folder / "key").write_text("ab" * 32)
        self.settings = replace(HERE, repository_key_file=str(folder / "key"))
        self.number = 0
        self.db = self.living(self.folder)
        self.db.sql(f"{TABLE}; {collection(self.repository)}")
        self.elsewhere = self.living(self.other)
        self.held: dict[str, dict[str, State]] = {}

    def living(self, folder: Path) -> Database:
        key = self.settings.repository_key_file
        db = open_at(folder, clock=self.clock, settings={"repository_key_file": key})
        go_through(db, Line(self.clock))
        return db

    def mortal(self, folder: Path, line: Line) -> Database:
        fate, spark = Fate(0), NoSpark()
        db = mortal_connect(folder, None, fate, self.settings, spark, clock=self.clock)
        hurry(db)
        line.fate = fate
        go_through(db, line)
        return db

    def begin(self, what: str) -> None:
        """Create as many backups as the statement needs."""
        statement = STATEMENTS[what][0]
        self.clock.sleep(DAY)
        self.elsewhere.sql("DROP BACKUP COLLECTION IF EXISTS c")
        self.change()
        for operation in self.db.operations():
            self.db.forget(operation.id)
        is_long = len(backups(self.db)) > LONG
        if what == "new repository":
            self.begin_again()
        elif statement.startswith(("PRUNE", "COMPACT")) or is_long:
            # A new chain, so that later iterations do not take longer.
            if is_long:
                self.db.sql(PRUNE)
            self.db.sql("BACKUP c")
            for _ in range(2 if statement.endswith("INCREMENTS") else 1):
                self.change()
                self.db.sql("BACKUP c INCREMENTAL")
        if statement.startswith("PRUNE"):
            self.change()
            self.db.sql("BACKUP c")
        self.change()
        self.held = {
            name: self.held.get(name) or contents(self.db, name)  # The content of a backup never changes.
            for name in backups(self.db)
        }

    def begin_again(self) -> None:
        """Begin a new, encrypted repository at another place.

        It needs all writes of an unencrypted one, and keys.
        """
        self.db.sql("DROP BACKUP COLLECTION c")
        shutil.rmtree(self.repository)
        self.repository = self.repository.with_name(f"r{self.number}")
        self.db.sql(f"{collection(self.repository).removesuffix(')')}, ENCRYPTION = 'true')")

    def change(self) -> None:
        self.number += 1
        load(self.db, self.number % 20, 3)
        self.db.sql(f"DELETE FROM t WHERE k = {self.number % 7}")

    def carry_out(self, statement: str, line: Line, *, dies: bool) -> bool:
        """Run a statement with faults, and return whether it reported success.

        Only errors with a code are raised.
        """
        folder = self.other if statement.startswith("ATTACH") else self.folder
        living = self.elsewhere if statement.startswith("ATTACH") else self.db
        text = statement.format(repository=self.repository)
        if not dies:
            go_through(living, line)
            try:
                return self._well(living.sql(text), statement)
            except StrandlineError as error:
                assert error.code not in ("INTERNAL", "CORRUPTED"), error
                return False
            finally:
                go_through(living, Line(self.clock))
        living.close()
        mortal = self.mortal(folder, line)
        try:
            is_done = self._well(mortal.sql(text), statement)
            mortal.close()
        except Death:
            is_done = False
            bury(mortal, folder, None)
        again = self.living(folder)
        again.resume()
        line.arrive()
        if folder == self.other:
            self.elsewhere = again
        else:
            self.db = again
        return is_done

    @staticmethod
    def _well(result: Any, statement: str) -> bool:
        if statement.startswith("VERIFY"):
            at = result.columns.index("problems")
            assert all(row[at] == 0 for row in result.rows()), "a fault is no damage"
        return True

    def survive(self, statement: str, *, is_done: bool) -> None:
        """Check the state after the fault, and after the next try."""
        assert all(operation.is_over for operation in self.db.operations())
        if statement.startswith("BACKUP") and is_done:
            assert records(self.db)[-1].stored and backups(self.db)[-1] not in self.held
        self.assert_kept()
        if not statement.startswith("ATTACH") or not is_done:
            self.carry_out_again(statement)
        if "TAKE_OVER" in statement:
            self.change_places()
        if statement.startswith("BACKUP"):
            self.assert_up_to_date()
        self.assert_kept()

    def settle(self) -> None:
        """Take a backup, which succeeds, and prune until nothing is left of the faults."""
        self.db.sql("BACKUP c INCREMENTAL OR FULL")
        self.assert_up_to_date()
        for _ in range(2):
            self.clock.sleep(2 * DAY)
            self.db.sql(PRUNE)
        assert all(record.stored for record in records(self.db))
        self.assert_kept()
        self.assert_no_orphans()
        assert self.db.verify("c") == []
        self.db.collect()
        assert leaks(self.db) == []
        if EVERY:
            self.attach()

    def change_places(self) -> None:
        """The warehouse that took over the repository continues with it, and the other one is refused."""
        for refused in ("BACKUP c", f"DROP BACKUP c '{backups(self.db)[-1]}' CONFIRM"):
            with pytest.raises(PreconditionFailed, match="belongs to the warehouse"):
                self.db.sql(refused)
        self.db.sql("DROP BACKUP COLLECTION c; DROP TABLE t")
        self.db.collect()
        assert leaks(self.db) == []
        self.db, self.elsewhere = self.elsewhere, self.db
        self.folder, self.other = self.other, self.folder
        self.assert_kept()
        before = backups(self.db)[-1]
        self.db.sql("RESTORE c")
        self.change()
        self.db.sql("BACKUP c INCREMENTAL")
        assert (last(self.db).kind, last(self.db).parent) == ("incremental", before)

    def assert_up_to_date(self) -> None:
        assert sorted(contents(self.db)["/t"].values()) == sorted(content(self.db, "t"))

    def assert_no_orphans(self) -> None:
        """Assert that the repository has what its backups need, and nothing else."""
        assert files(self.repository, "objects") == self.needed(), "no orphan survives"
        assert {name.partition(".")[0] for name in files(self.repository, "backups")} == {
            f"backups/{name}" for name in backups(self.db)
        }
        assert len(files(self.repository, "leases")) == 1
        for folder in ("owners", "trash"):
            assert all(name.endswith(".json") for name in files(self.repository, folder))

    def needed(self) -> set[str]:
        root = str(self.repository)
        there = Repository(self.db._runtime.files.at(root), root)
        return {name for backup in there.backups() for name in there.manifest(backup).objects()}

    def carry_out_again(self, statement: str) -> None:
        assert self.carry_out(statement, Line(self.clock), dies=False), "the next try succeeds"

    def assert_kept(self) -> None:
        """Assert that every backup holds what it held, and that its repository has all of it."""
        for name in backups(self.db):
            found = contents(self.db, name)
            assert found == self.held.get(name, found)
        if self.held:
            assert self.needed() <= files(self.repository, "objects")

    def attach(self) -> None:
        """Attach the repository to the empty warehouse, and compare all backups."""
        self.elsewhere.sql("DROP BACKUP COLLECTION IF EXISTS c")
        encrypted = str((self.repository / "keys").exists()).lower()
        self.elsewhere.sql(ATTACH.format(repository=self.repository).replace("'false'", f"'{encrypted}'"))
        assert backups(self.elsewhere) == backups(self.db)
        for name in backups(self.db):
            assert contents(self.elsewhere, name) == contents(self.db, name)
        self.elsewhere.sql("DROP BACKUP COLLECTION c")
        self.elsewhere.collect()
        assert leaks(self.elsewhere) == []

    def close(self) -> None:
        self.db.close()
        self.elsewhere.close()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One story for all statements: each leaves it intact."""
    made = Story(tmp_path_factory.mktemp("faults"))
    made.begin("prune")
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("what", STATEMENTS)
def test_every_request_fails_in_every_way(story: Story, what: str) -> None:
    statement, stride = STATEMENTS[what]
    each, asked = cases(stride), None
    while True:
        at, way, dies = each.send(asked)  # type: ignore[arg-type]
        story.begin(what)
        line = Line(story.clock, at, way)
        try:
            is_done = story.carry_out(statement, line, dies=dies)
            if (asked := line.failed) is None:
                assert is_done and at > 3
                break
            story.survive(statement, is_done=is_done)
            if EVERY and (way, dies) == KINDS[-1]:
                story.settle()
        except BaseException as error:
            raise AssertionError(f"request {at} ({line.failed}) {way}{', death' * dies}") from error
    print(f"{what}: {len(line.trail)} requests")
    if "TAKE_OVER" in statement:
        story.change_places()
    story.settle()
    story.attach()
