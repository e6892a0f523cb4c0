"""Looks at many files, and their removal, cost a few batches of requests and not one after the other."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from strandline.errors import Corrupted, StrandlineError, Unavailable
from strandline.settings import Settings
from strandline.storage import objects
from strandline.storage.file_router import FileRouter
from strandline.storage.files import FEW, THREADS, LocalFiles, MissingFile
from strandline.storage.objects import REQUESTS, ObjectFiles
from tests.quick_files import QuickFiles

SECONDS = 120.0
"""A request that waits for others gives up after this time."""


class Store:
    """Objects in a folder. Counts requests; each waits until ``together`` of them are under way."""

    def __init__(self, folder: Path, together: int = 1) -> None:
        self._there = LocalStore(folder)
        self.counts = Counter[str]()
        self._meeting = threading.Barrier(together)

    def head(self, name: str) -> Any:
        self.counts["head"] += 1
        self._meeting.wait(SECONDS)
        return self._there.head(name)

    def delete(self, names: str | list[str]) -> None:
        self.counts["delete" if isinstance(names, list) else "delete of one"] += 1
        self._there.delete(names)


class Bucket(ObjectFiles):
    """A bucket whose objects are in a folder."""

    def __init__(self, store: Store) -> None:
        super().__init__("s3://bucket/warehouse", Settings(storage_retries=0))
        self.store_ = store

    def _store(self, retries: int | None = None) -> Any:
        return self.store_


def fill(folder: Path, count: int) -> list[str]:
    (folder / "data").mkdir()
    names = [f"data/{n}" for n in range(count)]
    for n, name in enumerate(names):
        (folder / name).write_bytes(b"x" * (n + 1))
    return names


def test_objects_are_looked_at_many_at_a_time(tmp_path: Path) -> None:
    """Each request waits for all others of its batch: one after the other, none would come to an end."""
    names = fill(tmp_path, 4 * REQUESTS * FEW)
    store = Store(tmp_path, together=REQUESTS)
    assert Bucket(store).sizes(names) == [n + 1 for n in range(len(names))]
    assert store.counts == {"head": len(names)}


def test_objects_are_removed_by_one_request(tmp_path: Path) -> None:
    names = fill(tmp_path, 50)
    store = Store(tmp_path)
    Bucket(store).remove_all(names[:40])
    assert store.counts == {"delete": 1}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {str(n) for n in range(40, 50)}
    Bucket(store).remove_all([])
    assert store.counts == {"delete": 1}


def test_objects_that_are_gone_already_do_not_keep_the_others(tmp_path: Path) -> None:
    """Some stores answer with an error if one of the objects is missing."""
    names = fill(tmp_path, 20)
    (tmp_path / names[0]).unlink()
    Bucket(Store(tmp_path)).remove_all(names)
    assert list((tmp_path / "data").iterdir()) == []


def test_local_files_are_looked_at_on_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = fill(tmp_path, THREADS * FEW)
    meeting, size = threading.Barrier(THREADS), LocalFiles.size

    def look(self: LocalFiles, name: str) -> int:
        meeting.wait(SECONDS)
        return size(self, name)

    monkeypatch.setattr(LocalFiles, "size", look)
    assert LocalFiles(tmp_path).sizes(names) == [n + 1 for n in range(len(names))]


@pytest.mark.parametrize("count", [0, 1, FEW, 3 * FEW + 1, 100])
def test_each_file_has_its_own_answer(tmp_path: Path, count: int) -> None:
    names = fill(tmp_path, count)
    for name in names[::3]:
        (tmp_path / name).unlink()
    found = FileRouter(LocalFiles(tmp_path), Settings()).sizes(names)
    assert len(found) == count
    for n, size in enumerate(found):
        if n % 3:
            assert size == n + 1
        else:
            assert isinstance(size, MissingFile)
            assert f"data/{n} " in str(size)


def test_a_repository_that_cannot_be_opened_is_the_answer_for_its_files(tmp_path: Path) -> None:
    names = fill(tmp_path, 3)
    router = FileRouter(LocalFiles(tmp_path), Settings())

    def fail(root: str) -> Any:
        raise Unavailable(f"{root} is away")

    router.opener = fail
    there = [f"/far/objects/{digit * 2}/{digit * 32}.parquet" for digit in "ab"]
    found = router.sizes([there[0], names[2], "/far/objects/nothing", there[1], names[0]])
    answers = [size if isinstance(size, int) else type(size) for size in found]
    assert answers == [Unavailable, 3, Corrupted, Unavailable, 1]


def test_a_tree_of_local_files_is_removed_on_several_threads(tmp_path: Path) -> None:
    meeting = threading.Barrier(THREADS)

    class Meeting(QuickFiles):
        def _unlink(self, path: str) -> None:
            meeting.wait(SECONDS)
            super()._unlink(path)

    fill(tmp_path, THREADS * FEW)
    Meeting(tmp_path).remove_tree("data")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    class Stubborn(QuickFiles):
        def _unlink(self, path: str) -> None:
            if path.endswith("/1"):
                raise PermissionError(13, "no", path)
            super()._unlink(path)

    names = fill(tmp_path, 5 * FEW)
    with pytest.raises(StrandlineError, match="cannot remove the file data/1 "):
        Stubborn(tmp_path).remove_all(names)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["1"]


def test_a_missing_object_fails_what_makes_objects_durable(tmp_path: Path) -> None:
    names = fill(tmp_path, 2 * objects.REQUESTS)
    (tmp_path / names[5]).unlink()
    with pytest.raises(Corrupted, match="data/5"):
        Bucket(Store(tmp_path)).seal(names)
