"""Properties of files in every store: folder, S3 server, the client's own stores; plain and encrypted."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import Corrupted, Internal, InvalidArgument, Unsupported
from strandline.storage.digest import checksum_of
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.files import Files, LocalFiles
from strandline.storage.keyring import Ring
from strandline.storage.location import files_at
from strandline.storage.objects import ObjectFiles
from tests.azure import Azure
from tests.effort import EVERY
from tests.s3 import S3


class OtherObjects(ObjectFiles):
    """Objects in a store of the client's, as a second implementation of store semantics."""

    def __init__(self, store: Any) -> None:
        super().__init__("s3://other")
        self._other = store

    def _store(self, retries: int | None = None) -> Any:
        return self._other


RING = Ring(1, os.urandom(32))


KINDS = [
    "folder",
    pytest.param("s3", marks=pytest.mark.slow),
    pytest.param("azure", marks=pytest.mark.slow),
    "memory",
    "objects in a folder",
    "sealed in a folder",
    pytest.param("sealed on s3", marks=pytest.mark.slow),
]


@pytest.fixture(params=KINDS)
def new(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Files]:
    """Return a function that creates an empty store."""
    if request.param.endswith("s3"):
        s3: S3 = request.getfixturevalue("s3")

        def make_in_bucket() -> Files:
            files = files_at(f"s3://{s3.new_bucket()}/some/where", s3.settings())
            return files if request.param == "s3" else EncryptedFiles(files, RING)

        return make_in_bucket

    if request.param == "azure":
        azure: Azure = request.getfixturevalue("azure")
        return lambda: files_at(f"az://{azure.new_container()}/some/where", azure.settings())

    def make() -> Files:
        if request.param == "folder":
            return files_at(tmp_path / os.urandom(8).hex())
        if request.param == "sealed in a folder":
            return EncryptedFiles(LocalFiles(tmp_path / os.urandom(8).hex()), RING)
        from obstore.store import LocalStore, MemoryStore

        folder = LocalStore(tmp_path / os.urandom(8).hex(), mkdir=True)
        return OtherObjects(MemoryStore() if request.param == "memory" else folder)

    return make


@pytest.fixture
def files(new: Callable[[], Files]) -> Files:
    return new()


def test_what_is_written_can_be_read(files: Files) -> None:
    files.write("data/7/a.parquet", b"some bytes")
    assert files.read("data/7/a.parquet") == files.find("data/7/a.parquet") == b"some bytes"
    assert files.size("data/7/a.parquet") == 10
    assert files.exists("data/7/a.parquet")
    assert not files.exists("data/7")
    assert files.checksum("data/7/a.parquet") == checksum_of(b"some bytes")
    assert b"".join(map(bytes, files.chunks("data/7/a.parquet"))) == b"some bytes"
    files.seal(["data/7/a.parquet"])


def test_an_empty_file_is_a_file(files: Files) -> None:
    files.write("empty", b"")
    assert files.exists("empty")
    assert files.read("empty") == b""
    assert files.checksum("empty") == checksum_of(b"")


@pytest.mark.parametrize("size", [(8 << 20) + 1, (16 << 20) + 1, *([40 << 20] if EVERY else [])])
def test_a_large_file_is_whole(files: Files, size: int) -> None:
    content = os.urandom(1 << 20) * (size >> 20) + b"x" * (size % (1 << 20))
    files.write("large", content)
    assert files.size("large") == size
    assert files.read("large") == content
    assert files.checksum("large") == checksum_of(content)
    with pytest.raises(Internal, match="large exists already"):
        files.write("large", content[:-1] + b"?")


def test_names_may_hold_quotes_spaces_and_any_letter(files: Files) -> None:
    name = "a 'b'/\"c\"/ключ 鍵 \\n %20+.parquet"
    if files.location.startswith("az:"):
        name = name.replace("\\", "")  # Azure takes it for a slash; our names do not contain it.
    files.write(name, b"1")
    assert list(files.names()) == [name]
    assert files.read(name) == b"1"
    files.remove(name)
    assert list(files.names()) == []


def test_a_file_is_never_written_twice(files: Files) -> None:
    files.write("a", b"first")
    with pytest.raises(Internal, match="a exists already"):
        files.write("a", b"second")
    assert files.read("a") == b"first"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "./a", "a/", "a\0b"])
def test_a_name_does_not_lead_out_of_the_folder(files: Files, name: str) -> None:
    acts = (files.path, files.read, files.find, files.size, files.exists, files.remove, files.checksum)
    for act in (*acts, lambda n: files.write(n, b"x"), lambda n: files.write_if_absent(n, b"x")):
        with pytest.raises(InvalidArgument):
            act(name)


def test_a_missing_file_is_damage_and_named(files: Files) -> None:
    for read in (files.read, files.size, files.checksum, lambda name: files.seal([name])):
        with pytest.raises(Corrupted, match="data/gone is missing"):
            read("data/gone")
    assert not files.exists("data/gone")
    assert files.find("data/gone") is None


def test_one_of_many_is_the_first(files: Files) -> None:
    files.make_root()
    contents = [str(i).encode() for i in range(6)]
    first: list[bytes] = []
    start = threading.Barrier(len(contents))

    def write(content: bytes) -> None:
        start.wait()
        if files.write_if_absent("marker", content):
            first.append(content)

    _at_once(write, contents)
    assert first == [files.read("marker")]
    assert list(files.names()) == ["marker"]


def test_names_lists_what_is_below_a_folder(files: Files) -> None:
    for name in ("b/2", "a/1", "a/c/0", "ab/3"):
        files.write(name, b"1")
    assert sorted(files.names()) == ["a/1", "a/c/0", "ab/3", "b/2"]
    assert sorted(files.names("a")) == sorted(files.names("a/")) == ["a/1", "a/c/0"]
    assert list(files.names("nothing")) == []


@pytest.mark.slow
@pytest.mark.parametrize("new", KINDS if EVERY else KINDS[:-1], indirect=True)
def test_a_long_list_is_whole(files: Files) -> None:
    """Encrypted files use the list of the underlying store."""
    names = {f"data/{i % 7}/{i:05}" for i in range(1100)}
    for name in names:
        files.write(name, b"1")
    assert set(files.names("data")) == names
    files.remove_tree("data")
    assert list(files.names()) == []


def test_remove_can_be_repeated(files: Files) -> None:
    files.write("a/b", b"1")
    files.remove("a/b")
    files.remove("a/b")
    files.remove("a/b/c")
    assert list(files.names()) == []


def test_remove_tree_removes_only_what_is_below(files: Files) -> None:
    for name in ("a/1", "a/c/0", "ab/3"):
        files.write(name, b"1")
    files.remove_tree("a")
    files.remove_tree("a/")
    assert list(files.names()) == ["ab/3"]


@pytest.mark.parametrize("size", [3_000_000, 20_000_000 if EVERY else 9_000_000])
def test_copy_checks_what_it_copies(new: Callable[[], Files], tmp_path: Path, size: int) -> None:
    files, content = new(), os.urandom(size)
    files.write("a", content)
    for other in (new(), LocalFiles(tmp_path / "repository")):
        assert other.copy(files, "a", "x/y", checksum_of(content)) == len(content)
        assert other.read("x/y") == content
        with pytest.raises(Corrupted, match="a does not have the checksum"):
            other.copy(files, "a", "z", checksum_of(b"something else"))
        with pytest.raises(Corrupted, match="gone is missing"):
            other.copy(files, "gone", "z", checksum_of(b""))
        assert list(other.names()) == ["x/y"]
    files.copy(LocalFiles(tmp_path / "repository"), "x/y", "back", checksum_of(content))
    assert files.read("back") == content


@pytest.mark.parametrize("count", [0, 1, 40 if EVERY else 12])
def test_pieces_of_any_size_make_a_file(files: Files, count: int) -> None:
    pieces = [os.urandom(size) for size in (700_000, 1, 0, (1 << 20) - 1, 300_000)[: count or None] * count]
    content = b"".join(pieces)
    assert files.store("a/b", iter(pieces)) == len(content) == files.size("a/b")
    assert files.read("a/b") == content
    with pytest.raises(Internal, match="a/b exists already"):
        files.store("a/b", iter((*pieces, b"?")))
    assert files.read("a/b") == content


@pytest.mark.parametrize("count", [0, 1, 20])
def test_pieces_that_fail_leave_no_file(files: Files, count: int) -> None:
    def coming() -> Iterator[bytes]:
        yield from (bytes(1 << 20) for _ in range(count))
        raise Corrupted("the rest is missing")

    with pytest.raises(Corrupted, match="the rest is missing"):
        files.store("a", coming())
    assert list(files.names()) == []


def test_arrow_reads_any_part_of_a_file(files: Files) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"k": range(200_000), "v": [os.urandom(8).hex() for _ in range(200_000)]})
    pq.write_table(table, sink, row_group_size=20_000)
    files.write("t.parquet", sink.getvalue().to_pybytes())
    with pq.ParquetFile(files.readable("t.parquet")) as file:
        assert file.metadata.num_rows == 200_000
        assert file.read_row_group(7, ["k"]).column("k").to_pylist() == list(range(140_000, 160_000))
        assert file.read() == table
    with pq.ParquetFile(files.readable("t.parquet"), pre_buffer=True) as file:
        assert (
            file.read_row_groups([0, 9], ["v"]).column("v").to_pylist()[-1] == table.column("v")[-1].as_py()
        )


def test_many_writers_may_share_new_folders(files: Files) -> None:
    _at_once(lambda i: files.write(f"deep/er/{i % 3}/{i}", str(i).encode()), range(24))
    assert len(list(files.names("deep"))) == 24


def test_another_process_gets_the_same_files(files: Files) -> None:
    if isinstance(files, OtherObjects):
        pytest.skip("what the client brings along is of this process")
    files.write("a", b"1")
    there = pickle.loads(pickle.dumps(files))
    assert there.read("a") == b"1"
    assert there.location == files.location
    if isinstance(files, EncryptedFiles):
        with pytest.raises(Unsupported, match="Spark cannot read the file a, which is encrypted"):
            there.path("a")
    else:
        assert there.path("a") == files.path("a")


def _at_once(act: Callable[[Any], None], values: Any) -> None:
    failures: list[BaseException] = []

    def run(value: Any) -> None:
        try:
            act(value)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
