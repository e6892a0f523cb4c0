"""Files in a folder: what is durable when, and what a full disk or a death leaves. What holds for files
anywhere is in test_files_anywhere.py."""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from strandline.errors import Unavailable
from strandline.storage.exchange import exchange
from strandline.storage.files import LocalFiles
from tests.crash.mortal import Fate, MortalFiles
from tests.world import Death


class Broken(LocalFiles):
    """Whatever first changes the disk for the ``at``-th time fails with ``error``."""

    def __init__(self, root: Path, at: int, error: BaseException, forever: bool = False) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        self._at, self._error, self._forever = at, error, forever

    def _count(self, what: str) -> None:
        self.calls.append(what)
        if len(self.calls) == self._at or (self._forever and len(self.calls) > self._at):
            raise self._error

    def _mkdir(self, path: str) -> None:
        self._count("mkdir")
        super()._mkdir(path)

    def _create(self, path: str) -> int:
        self._count("create")
        return super()._create(path)

    def _append(self, descriptor: int, data: memoryview) -> int:
        self._count("append")
        return super()._append(
            descriptor, data[: max(1, len(data) // 2)]
        )  # a disk may take less than it was given

    def _flush(self, descriptor: int) -> None:
        self._count("flush")
        super()._flush(descriptor)

    def _sync(self, path: str) -> None:
        self._count("sync " + os.path.relpath(path, self.root))
        super()._sync(path)

    def _unlink(self, path: str) -> None:
        self._count("unlink")
        super()._unlink(path)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "warehouse")


def test_a_new_file_is_made_durable_with_every_folder_that_leads_to_it(tmp_path: Path) -> None:
    files = Broken(tmp_path, at=0, error=OSError())
    files.write("a/b/c", b"x")
    assert files.calls == ["mkdir", "mkdir", "create", "append", "flush", "sync a/b", "sync a", "sync ."]
    files.calls.clear()
    files.write("a/b/d", b"x")
    assert files.calls == ["create", "append", "flush", "sync a/b"]


@pytest.mark.parametrize("at", range(1, 11))
def test_a_full_disk_leaves_no_file(tmp_path: Path, at: int) -> None:
    files = Broken(tmp_path, at, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(Unavailable, match=f"at {tmp_path}: No space left on device") as caught:
        files.write("a/b", b"0123456789abcdef")
    assert "Free some space there" in caught.value.hint, "there may be several disks"
    assert list(files.names()) == []
    files.write("a/b", b"0123456789abcdef")
    assert files.read("a/b") == b"0123456789abcdef"


def test_a_disk_that_takes_nothing_is_full(tmp_path: Path) -> None:
    class Stuck(LocalFiles):
        def _append(self, descriptor: int, data: memoryview) -> int:
            return 0

    files = Stuck(tmp_path)
    with pytest.raises(Unavailable):
        files.write("a", b"x")
    assert not files.exists("a")


@pytest.mark.parametrize("at", range(1, 11))
def test_a_process_can_be_killed_before_any_change_of_the_disk(tmp_path: Path, at: int) -> None:
    class Killed(BaseException):
        pass

    files = Broken(tmp_path, at, Killed(), forever=True)
    with pytest.raises(Killed):
        files.write("a/b", b"0123456789abcdef")
    left = [(tmp_path / name).read_bytes() for name in files.names()]
    assert all(b"0123456789abcdef".startswith(content) for content in left)
    assert bool(left) == (at > 2)


def test_a_folder_that_cannot_be_made_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable):
        LocalFiles(tmp_path / "file").write("a", b"x")


def test_seal_syncs_files_and_the_folders_above_them(tmp_path: Path) -> None:
    files = Broken(tmp_path, at=0, error=OSError())
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(b"1")
    (tmp_path / "a" / "y").write_bytes(b"2")
    files.seal(["a/b/x", "a/y"])
    assert files.calls == ["sync a/b/x", "sync a/y", "sync a/b", "sync a", "sync ."]


def test_remove_tree_removes_only_what_is_below(files: LocalFiles, tmp_path: Path) -> None:
    for name in ("a/1", "a/c/0", "ab/3"):
        files.write(name, b"")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"")
    os.symlink(outside, files.path("a/link"))
    files.remove_tree("a")
    files.remove_tree("a")
    assert list(files.names()) == ["ab/3"]
    assert not os.path.exists(files.path("a"))
    assert (outside / "kept").exists()


def test_a_folder_is_replaced_in_one_step(tmp_path: Path) -> None:
    """Whenever the process dies, the old one is there or the new one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    if not exchange(str(tmp_path / "a"), str(tmp_path / "b")):
        pytest.skip("the file system cannot let folders change places")
    for at in itertools.count(1):
        root, fate = tmp_path / str(at), Fate(at)
        for name in ("folder/old", "ready/new"):
            LocalFiles(root).write(name, b"")
        with suppress(Death):
            MortalFiles(root, fate).move_folder("ready", "folder", replace=True)
        assert os.listdir(root / "folder") in (["old"], ["new"]), fate.place
        if not fate.dead:
            break
    assert fate.trail == ["exchange", "sync", "unlink", "rmdir"]
    assert list(LocalFiles(root).names()) == ["folder/new"]


@pytest.mark.parametrize("fails", [False, True])
def test_where_folders_cannot_change_places_the_old_one_is_kept_beside(tmp_path: Path, fails: bool) -> None:
    class Plain(LocalFiles):
        def _exchange(self, path: str, name: str) -> bool:
            return False

        def _rename(self, path: str, name: str) -> None:
            if fails and path.endswith("ready"):
                raise OSError(errno.EACCES, "no")
            super()._rename(path, name)

    files = Plain(tmp_path)
    for name in ("folder/old", "ready/new"):
        files.write(name, b"")
    with pytest.raises(Unavailable) if fails else nullcontext():
        files.move_folder("ready", "folder", replace=True)
    assert sorted(files.names()) == (["folder/old", "ready/new"] if fails else ["folder/new"])
