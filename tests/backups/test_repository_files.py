"""Files of a repository: owners, manifests in effect, and what is deleted when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.backups.repository.lease import Fenced
from strandline.backups.repository.repository import TRIES, Repository, RepositoryOwner
from strandline.backups.repository.repository_writer import KEPT_SECONDS, Swept, names_in_deletion, sweep
from strandline.backups.repository.rotate_key import rotate_key
from strandline.errors import Corrupted, PathNotFound, PreconditionFailed
from strandline.settings import Settings
from strandline.storage.repository_marker import to_bytes
from tests.backups import test_records as made
from tests.quick_files import QuickFiles

GRACE = 10.0
DAY_0, DAY_1, DAY_2, DAY_2A, DAY_3 = (f"2026010{day}120000Z" for day in (1, 2, 3, 4, 5))
FULL = replace(made.FULL, name=f"{DAY_1}_full")
ONE = replace(made.ONE, name=f"{DAY_2}_incremental")
TWO = replace(made.TWO, name=f"{DAY_3}_incremental")
A, B, C = (f"objects/{letter * 2}/{letter * 32}.parquet" for letter in "abc")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    files = QuickFiles(tmp_path)
    Repository.make(files, str(tmp_path), Settings(), now=1.0, encrypted=False)
    return Repository(files, str(tmp_path))


def allowed() -> None:
    """The lease is valid."""


def lost() -> None:
    raise Fenced("it is another's by now")


def put(repository: Repository, *names: str) -> None:
    for name in names:
        repository.plain.write_if_absent(name, b"x")


def names(repository: Repository, folder: str) -> list[str]:
    return sorted(name.removeprefix(f"{folder}/") for name in repository.plain.names(folder))


def test_a_backup_is_nothing_but_what_it_is_now(repository: Repository) -> None:
    """A manifest that a rolled-back merge has left is deleted if its parent does not stay."""
    forms = ["", ".after-10", ".after-15", ".after-20", ".full"]
    put(
        repository,
        f"backups/{DAY_2}_incremental.json",
        *(f"backups/{DAY_3}_incremental{form}.json" for form in forms),
    )
    away = replace(ONE, name=f"{DAY_0}_incremental", step=11)
    merged = replace(TWO, merged=(f"{DAY_2A}_incremental",), after_step=20)
    with pytest.raises(Fenced):
        repository.forget_outdated([FULL, away, ONE, merged], lost)
    assert len(names(repository, "backups")) == 6
    repository.forget_outdated([FULL, away, ONE, merged], allowed)
    assert names(repository, "backups") == [
        f"{DAY_2}_incremental.json",
        *(f"{DAY_3}_incremental{form}.json" for form in (".after-10", ".after-20", ".full")),
    ]
    repository.forget_outdated([ONE, merged], allowed)
    assert names(repository, "backups")[1:] == [
        f"{DAY_3}_incremental.after-20.json",
        f"{DAY_3}_incremental.full.json",
    ]
    repository.forget_outdated([replace(TWO, synthetic=True)], allowed)
    assert names(repository, "backups")[1:] == [f"{DAY_3}_incremental.full.json"]


def test_what_nothing_refers_to_goes_when_its_time_is_over(repository: Repository) -> None:
    put(repository, A, B)
    with pytest.raises(Fenced):
        sweep(repository, 100.0, GRACE, lost)
    assert names(repository, "trash") == []
    both = (A, B)
    assert sweep(repository, 100.0, GRACE, allowed) == Swept((), both)
    assert names(repository, "trash") == ["00000001.json"]
    assert names_in_deletion(repository) == set(both)
    put(repository, C)
    assert sweep(repository, 109.5, GRACE, allowed) == Swept((), (*both, C))
    with pytest.raises(Fenced):
        sweep(repository, 110.0, GRACE, lost)
    assert names(repository, "objects") == [name.removeprefix("objects/") for name in (A, B, C)]
    assert sweep(repository, 110.0, GRACE, allowed) == Swept(both, (C,))
    assert names(repository, "objects") == [C.removeprefix("objects/")]
    assert names(repository, "trash") == ["00000001.json", "00000002.json"], "their names must not be used"
    assert sweep(repository, 119.5, GRACE, allowed) == Swept((C,), ())
    for now, left in ((110.0 + KEPT_SECONDS - 0.5, 2), (110.0 + KEPT_SECONDS, 1), (119.5 + KEPT_SECONDS, 0)):
        assert sweep(repository, now, GRACE, allowed) == Swept((), ())
        assert len(names(repository, "trash")) == left


def test_without_a_grace_period_it_goes_at_once(repository: Repository) -> None:
    put(repository, A)
    assert sweep(repository, 100.0, 0.0, allowed) == Swept((A,), ())
    assert names(repository, "objects") == []


def test_a_list_that_cannot_be_read_is_passed_over(repository: Repository) -> None:
    put(repository, "trash/00000007.json", "trash/00000008.json.part", A)
    assert sweep(repository, 100.0, GRACE, allowed).waiting == (A,)
    assert "00000009.json" in names(repository, "trash"), "the names of others are not free"
    assert names_in_deletion(repository) == {A}


def test_whose_it_is(repository: Repository) -> None:
    assert repository.owner() is None
    repository.check_owner("one")
    repository.own("one", 1.0)
    repository.own("one", 2.0)
    assert names(repository, "owners") == ["00000001.json"]
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse one"):
        repository.own("two", 3.0)
    repository.own("two", 3.0, take_over=True)
    assert names(repository, "owners") == ["00000001.json", "00000002.json"]
    owner = repository.owner()
    assert owner is not None
    assert (owner.warehouse, repository.check_owners().warehouse) == ("two", "two")
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse two"):
        repository.check_owner("one")
    repository.plain.remove("owners/00000001.json")
    with pytest.raises(Corrupted, match=r"has no file owners/00000001\.json"):
        repository.check_owners()


class Overtaken(QuickFiles):
    """Another warehouse becomes the owner just before the first one would."""

    def write_if_absent(self, name: str, data: bytes) -> bool:
        if name.startswith("owners/"):
            super().write_if_absent(name, to_bytes(RepositoryOwner(warehouse="fast", since=1.5)))
        return super().write_if_absent(name, data)


@pytest.mark.parametrize("take_over", [False, True])
def test_of_two_who_take_it_at_once_one_has_it(repository: Repository, take_over: bool) -> None:
    if take_over:
        repository.own("lost", 1.0)
    slow = Repository(Overtaken(Path(repository.root)), repository.root)
    with pytest.raises(PreconditionFailed, match="belongs to the warehouse fast"):
        slow.own("slow", 2.0, take_over=take_over)
    owner = repository.owner()
    assert owner is not None and owner.warehouse == "fast"


class Fleeting(QuickFiles):
    """Lists a manifest that does not exist when it is read: the backup has another one by then."""

    read_so_often = 0

    def names(self, folder: str = "") -> Iterator[str]:
        yield from super().names(folder)
        if folder == "backups":
            yield f"backups/{DAY_1}_full.json"

    def find(self, name: str) -> bytes | None:
        self.read_so_often += name == f"backups/{DAY_1}_full.json"
        return super().find(name)

    def read(self, name: str) -> bytes:
        self.read_so_often += name == f"backups/{DAY_1}_full.json"
        return super().read(name)


def test_a_manifest_that_goes_while_it_is_looked_for_is_looked_for_again(
    repository: Repository, tmp_path: Path
) -> None:
    files = Fleeting(tmp_path)
    with pytest.raises(Corrupted):
        Repository(files, repository.root).manifest(f"{DAY_1}_full")
    assert files.read_so_often == TRIES
    put(repository, f"backups/{DAY_1}_full.json")
    with pytest.raises(Corrupted):
        Repository(files, repository.root).manifest(f"{DAY_1}_full")
    assert files.read_so_often == TRIES + 1, "it is there, and damaged"


def test_what_is_not_there(repository: Repository, tmp_path: Path) -> None:
    put(repository, f"backups/{DAY_2}_incremental.json")
    with pytest.raises(PathNotFound, match=r"has no backup '\d+Z_incrementl'") as refused:
        repository.manifest(f"{DAY_2}_incrementl")
    assert f"{DAY_2}_incremental" in refused.value.hint
    with pytest.raises(PreconditionFailed, match="is not encrypted"):
        rotate_key(str(tmp_path), Settings(), Settings())
    with pytest.raises(PreconditionFailed, match="is not a backup repository"):
        rotate_key(str(tmp_path / "other"), Settings(), Settings())
    with pytest.raises(PreconditionFailed, match="is not a backup repository"):
        _ = Repository(QuickFiles(tmp_path / "other"), "other").marker
    with pytest.raises(
        PreconditionFailed, match="is not encrypted, but the ENCRYPTION of the collection says otherwise"
    ):
        Repository.make(repository.files, repository.root, Settings(), now=2.0, encrypted=True)
