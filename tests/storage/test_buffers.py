"""Direct I/O writes the same bytes, whatever the file system supports."""

from __future__ import annotations

import errno
import fcntl
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.errors import Corrupted
from strandline.storage.buffers import BLOCK, PIECE, gather, pieces
from strandline.storage.digest import checksum_of
from strandline.storage.files import LocalFiles

SIZES = [0, 1, BLOCK, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + BLOCK, 2 * PIECE + 3 * BLOCK + 7]


class Watched(LocalFiles):
    """Records the size of each write and whether it was direct I/O."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.writes: list[tuple[int, bool]] = []

    def _append(self, descriptor: int, data: memoryview) -> int:
        direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        self.writes.append((len(data), direct))
        return self._taken(descriptor, data, direct)

    def _taken(self, descriptor: int, data: memoryview, direct: bool) -> int:
        return super()._append(descriptor, data)


class Refusing(Watched):
    """A file system that refuses direct I/O only at the write."""

    def _taken(self, descriptor: int, data: memoryview, direct: bool) -> int:
        if direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return super()._taken(descriptor, data, direct)


class Greedy(Watched):
    """A disk that writes less than it was given, and partial blocks."""

    def _taken(self, descriptor: int, data: memoryview, direct: bool) -> int:
        return super()._taken(descriptor, data if direct else data[: max(1, len(data) // 3)], direct)


class Elsewhere(LocalFiles):
    """Files whose content is in buffers that are not aligned."""

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        for chunk in super().chunks(name):
            yield memoryview(b"x" + bytes(chunk))[1:]


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def takes_direct(folder: Path) -> bool:
    try:
        os.close(os.open(folder / "probe", os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        (folder / "probe").unlink(missing_ok=True)
    return True


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [Watched, Refusing, Greedy])
def test_copies_have_the_same_bytes(tmp_path: Path, kind: type[Watched], size: int) -> None:
    files, data = kind(tmp_path), content(size)
    files.write("a", data)
    assert b"".join(map(bytes, pieces(os.open(files.path("a"), os.O_RDONLY)))) == data
    assert files.copy(files, "a", "b", checksum_of(data)) == size
    assert files.read("b") == data
    assert files.copy(Elsewhere(tmp_path), "a", "c", checksum_of(data)) == size
    assert files.read("c") == data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [Watched, Refusing, Greedy])
def test_a_file_is_stored_from_pieces_of_any_size(tmp_path: Path, kind: type[Watched], size: int) -> None:
    files, data = kind(tmp_path), content(size)
    files.store_if_absent("a", (data[at : at + 1_000_003] for at in range(0, size, 1_000_003)))
    assert files.read("a") == data
    if kind is Watched and size >= 2 * PIECE and takes_direct(tmp_path):
        assert [length for length, direct in files.writes if direct][:2] == [PIECE, PIECE]


def test_files_that_are_read_by_turns_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    files, size = LocalFiles(tmp_path), 2 * PIECE + 5
    for name in "ab":
        files.write(name, content(size + ord(name)))
    for _ in range(2):  # The second time with reused buffers.
        read: dict[str, bytes] = {"a": b"", "b": b""}
        for one, other in zip(files.chunks("a"), gather(files.chunks("b")), strict=True):
            read["a"] += bytes(one)
            read["b"] += bytes(other)
        assert all(read[name] == content(size + ord(name)) for name in "ab")


def test_a_large_copy_goes_past_memory_and_its_end_does_not(tmp_path: Path) -> None:
    if not takes_direct(tmp_path):
        pytest.skip("this file system has no such thing")
    files, data = Watched(tmp_path), content(2 * PIECE + 3 * BLOCK + 7)
    files.write("a", data)
    assert not any(direct for _, direct in files.writes), "what was just written is read soon"
    files.writes.clear()
    files.copy(files, "a", "b", checksum_of(data))
    assert files.writes == [(PIECE, True), (PIECE, True), (3 * BLOCK, True), (7, False)]
    files.writes.clear()
    files.write("c", data[:PIECE])
    files.copy(files, "c", "d", checksum_of(data[:PIECE]))
    assert files.writes[1:] == [(PIECE, True)]


@pytest.mark.parametrize("size", [PIECE - 1, 2 * PIECE + 7])
def test_a_copy_of_other_bytes_leaves_no_file(tmp_path: Path, size: int) -> None:
    files = LocalFiles(tmp_path)
    files.write("a", content(size))
    with pytest.raises(Corrupted):
        files.copy(files, "a", "b", checksum_of(b"others"))
    assert list(files.names()) == ["a"]
