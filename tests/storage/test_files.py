"""Files in a folder: durability, full disks and crashes.

test_files_anywhere.py tests what holds for every store.
"""

from __future__ import annotations

import errno
import itertools
import os
import pickle
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import Corrupted, Unavailable
from strandline.storage.atomic_swap import exchange
from strandline.storage.files import LocalFiles
from tests.catalogs import Death
from tests.crash.mortal import Fate, MortalFiles


class Broken(LocalFiles):
    """Files whose ``at``-th change of the disk fails with ``error``."""

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
        # A disk may write less than it was given.
        return super()._append(descriptor, data[: max(1, len(data) // 2)])

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
    """After a crash at any point either the old folder or the new one exists."""
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


# --- links ------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(tmp_path: Path) -> LocalFiles:
    """A folder with a link to another folder with a foreign file."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").write_bytes(b"years of work")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "data").symlink_to(tmp_path / "home")
    (tmp_path / "root" / "file").symlink_to(tmp_path / "home" / "thesis")
    return LocalFiles(tmp_path / "root")


@pytest.mark.parametrize(
    "use",
    [
        lambda files: files.read("data/thesis"),
        lambda files: files.read("file"),
        lambda files: files.find("data/thesis"),
        lambda files: files.size("file"),
        lambda files: files.exists("data/thesis"),
        lambda files: files.checksum("data/thesis"),
        lambda files: files.readable("data/thesis"),
        lambda files: files.readable("file"),
        lambda files: list(files.names("data")),
        lambda files: files.remove("data/thesis"),
        lambda files: files.remove_tree("data"),
        lambda files: files.write("data/new", b"x"),
        lambda files: files.write("data/deep/new", b"x"),
        lambda files: files.write_if_absent("data/new", b"x"),
        lambda files: files.seal(["data/thesis"]),
    ],
)
def test_no_link_below_the_root_is_followed(linked: LocalFiles, use: Callable[[LocalFiles], Any]) -> None:
    with pytest.raises(Corrupted, match=r"symbolic link '(?:data|file)'"):
        use(linked)
    assert os.listdir(linked.path("data")) == ["thesis"]
    assert Path(linked.path("data/thesis")).read_bytes() == b"years of work"


def test_what_links_lead_to_is_not_listed_and_a_link_itself_may_go(linked: LocalFiles) -> None:
    linked.write("own/inner/a", b"x")
    os.symlink(linked.path("data"), linked.path("own/inner/link"))
    assert list(linked.names()) == ["file", "own/inner/a"]
    linked.remove("file")
    linked.remove_tree("own")
    assert os.listdir(linked.root) == ["data"]
    assert Path(linked.path("data/thesis")).read_bytes() == b"years of work"


def test_the_root_may_be_a_link_and_what_users_name_as_well(linked: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home")
    own = LocalFiles(tmp_path / "link")
    own.write("a/b", b"x")
    assert sorted(own.names()) == ["a/b", "thesis"] and own.read("thesis") == b"years of work"
    theirs = pickle.loads(pickle.dumps(LocalFiles(linked.root, follows=True)))
    assert theirs.read("file") == theirs.read("data/thesis") == b"years of work"
    assert sorted(theirs.names("data")) == ["data/a/b", "data/thesis"]


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    files = LocalFiles(tmp_path)
    for use in (files.read, files.find, files.size, files.checksum):
        with pytest.raises(Corrupted, match="pipe"):
            use("pipe")
    assert not files.exists("pipe")
