"""Encrypted files: unreadable without the key, and every change is detected.

test_files_anywhere.py tests that they behave like other files.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import Corrupted, PreconditionFailed
from strandline.storage.digest import checksum_of
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.encrypted_format import HEADER_BYTES, SEALED_BYTES, TAG_BYTES, OtherMaster
from strandline.storage.files import CHUNK, LocalFiles
from strandline.storage.keyring import Ring
from tests.quick_files import QuickFiles

RING = Ring(1, os.urandom(32))
READS: dict[str, Callable[[EncryptedFiles], object]] = {
    "read": lambda files: files.read("a"),
    "find": lambda files: files.find("a"),
    "chunks": lambda files: list(files.chunks("a")),
    "checksum": lambda files: files.checksum("a"),
    "readable": lambda files: files.readable("a").read(),
    "copy": lambda files: QuickFiles(files.location + "/../copies").copy(files, "a", "a", "unknown"),
}


@pytest.fixture
def plain(tmp_path: Path) -> LocalFiles:
    return QuickFiles(tmp_path / "repository")


@pytest.fixture
def files(plain: LocalFiles) -> EncryptedFiles:
    return EncryptedFiles(plain, RING)


def put(files: LocalFiles, name: str, data: bytes) -> None:
    """Replace the bytes of a file."""
    files.remove(name)
    files.write(name, data)


def said(files: EncryptedFiles) -> set[str]:
    """Read a damaged file in every way and return the error messages.

    Each read must report damage, and no copy of the content may stay.
    """
    messages = set()
    for read in READS.values():
        with pytest.raises(Corrupted) as caught:
            read(files)
        messages.add(caught.value.message)
    assert list(QuickFiles(files.location + "/../copies").names()) == []
    return messages


def test_nothing_of_the_content_is_in_the_file(plain: LocalFiles, files: EncryptedFiles) -> None:
    files.write("a", b"a secret " * 300_000)
    files.write("b", b"a secret " * 300_000)
    assert b"secret" not in plain.read("a")
    assert plain.read("a")[HEADER_BYTES:] != plain.read("b")[HEADER_BYTES:]
    assert RING.master not in plain.read("a")


@pytest.mark.parametrize(
    "size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 5 * CHUNK // 2]
)
def test_any_part_of_any_size_is_what_was_written(
    plain: LocalFiles, files: EncryptedFiles, size: int
) -> None:
    content = os.urandom(size)
    files.write("a", content)
    assert files.size("a") == size
    assert plain.size("a") == HEADER_BYTES + size + TAG_BYTES * max(1, -(-size // CHUNK))
    assert files.read("a") == files.find("a") == content
    with files.readable("a") as file:
        assert file.size() == size
        for start in (0, 1, CHUNK - 1, CHUNK, 2 * CHUNK - 1, 2 * CHUNK, size - 1, size, size + 5):
            for length in (0, 1, 2, 300_000, CHUNK, CHUNK + 1, 3 * CHUNK):
                file.seek(max(0, start))
                assert file.read(length) == content[max(0, start) :][:length]
        assert file.seek(-1, os.SEEK_END) == size - 1
    assert file._source.closed


def test_what_is_read_of_a_part_is_that_part(plain: LocalFiles, files: EncryptedFiles) -> None:
    """Damage outside the part is not reported, damage in it is."""
    files.write("a", os.urandom(4 * CHUNK))
    put(plain, "a", flipped(plain.read("a"), HEADER_BYTES + 2 * SEALED_BYTES + 7))
    with files.readable("a") as file:
        assert len(file.read(2 * CHUNK)) == 2 * CHUNK
        file.seek(3 * CHUNK)
        assert len(file.read()) == CHUNK
        file.seek(2 * CHUNK)
        with pytest.raises(Corrupted, match="chunk 3 of the file a is damaged"):
            file.read(1)


def flipped(data: bytes, at: int, bit: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_any_flipped_bit_is_damage(plain: LocalFiles, files: EncryptedFiles, bit: int) -> None:
    """Flips each byte of a small file: of the header, of the chunk and of its tag."""
    files.write("a", b"some content")
    whole = plain.read("a")
    assert len(whole) == HEADER_BYTES + 12 + TAG_BYTES
    for at in range(len(whole)):
        put(plain, "a", flipped(whole, at, bit))
        (message,) = said(files)
        if at < 6:
            assert message == "the file a is not encrypted, or its header is damaged"
        elif at < HEADER_BYTES:
            assert message == "the header of the file a is damaged"
        else:
            assert message == "chunk 1 of the file a, its last one, is damaged or cut off"
    put(plain, "a", whole)
    assert files.read("a") == b"some content"


def test_a_flipped_bit_in_any_chunk_is_damage_and_named(plain: LocalFiles, files: EncryptedFiles) -> None:
    files.write("a", os.urandom(2 * CHUNK + 5))
    whole = plain.read("a")
    places = [
        HEADER_BYTES + n * SEALED_BYTES + at
        for n in (0, 1)
        for at in (0, CHUNK // 2, CHUNK, SEALED_BYTES - 1)
    ]
    for place in places:
        put(plain, "a", flipped(whole, place))
        number = (place - HEADER_BYTES) // SEALED_BYTES + 1
        assert said(files) == {
            f"chunk {number} of the file a is damaged, or not the one that was written there"
        }
    for place in range(HEADER_BYTES + 2 * SEALED_BYTES, len(whole)):
        put(plain, "a", flipped(whole, place))
        assert said(files) == {"chunk 3 of the file a, its last one, is damaged or cut off"}


@pytest.mark.parametrize("size", [0, 12, 2 * CHUNK, 2 * CHUNK + 5])
def test_a_file_that_was_cut_is_damage(plain: LocalFiles, files: EncryptedFiles, size: int) -> None:
    files.write("a", os.urandom(size))
    whole = plain.read("a")
    ends = {0, 1, HEADER_BYTES, len(whole)}
    ends |= {HEADER_BYTES + n * SEALED_BYTES for n in range(3)}
    ends |= {HEADER_BYTES + n * SEALED_BYTES + TAG_BYTES for n in range(3)}
    for end in sorted({end + off for end in ends for off in (-1, 0, 1)}):
        if not 0 <= end < len(whole):
            continue
        put(plain, "a", whole[:end])
        messages = said(files)
        assert all("cut off" in message for message in messages), (end, messages)
        if (end - HEADER_BYTES) % SEALED_BYTES == 0:
            assert messages == {"the file a is cut off: its end is missing"}


def test_bytes_after_the_end_are_damage(plain: LocalFiles, files: EncryptedFiles) -> None:
    for size in (0, 12, CHUNK, CHUNK + 5):
        files.remove("a")
        files.write("a", os.urandom(size))
        whole = plain.read("a")
        for more in (b"x", bytes(TAG_BYTES), whole[HEADER_BYTES:], bytes(SEALED_BYTES)):
            put(plain, "a", whole + more)
            said(files)
    files.write("b", os.urandom(CHUNK))
    put(plain, "a", plain.read("b"))
    files.remove("b")
    files.remove("a")
    files.write("a", os.urandom(CHUNK))
    put(plain, "a", plain.read("a") + bytes(SEALED_BYTES))
    assert "the file a has data after its end" in said(files)


def test_a_file_that_was_exchanged_for_another_is_damage(plain: LocalFiles, files: EncryptedFiles) -> None:
    files.write("a", b"one")
    files.write("folder/a", b"two")
    put(plain, "a", plain.read("folder/a"))
    assert said(files) == {
        "the file a is not the one that was written under this name, or its header was changed"
    }


def test_an_older_file_of_the_same_name_does_not_take_a_chunk_of_a_newer(
    plain: LocalFiles, files: EncryptedFiles
) -> None:
    files.write("a", os.urandom(2 * CHUNK))
    old = plain.read("a")
    files.remove("a")
    files.write("a", os.urandom(2 * CHUNK))
    new = plain.read("a")
    put(plain, "a", old[: HEADER_BYTES + SEALED_BYTES] + new[HEADER_BYTES + SEALED_BYTES :])
    assert said(files) == {"chunk 2 of the file a, its last one, is damaged or cut off"}


def test_chunks_that_changed_places_are_damage(plain: LocalFiles, files: EncryptedFiles) -> None:
    files.write("a", os.urandom(3 * CHUNK))
    whole = plain.read("a")
    head, first, second, third = (
        whole[:HEADER_BYTES],
        *(whole[HEADER_BYTES + n * SEALED_BYTES :][:SEALED_BYTES] for n in range(3)),
    )
    put(plain, "a", head + second + first + third)
    assert said(files) == {"chunk 1 of the file a is damaged, or not the one that was written there"}
    put(plain, "a", head + first + third + second)
    assert said(files) == {"chunk 2 of the file a is damaged, or not the one that was written there"}
    put(plain, "a", head + first + third)
    assert said(files) == {"chunk 2 of the file a, its last one, is damaged or cut off"}


def test_a_plain_file_is_not_taken_for_a_sealed_one(plain: LocalFiles, files: EncryptedFiles) -> None:
    plain.write("a", os.urandom(10_000))
    assert said(files) == {"the file a is not encrypted, or its header is damaged"}


def test_a_file_of_another_repository_is_named(plain: LocalFiles, files: EncryptedFiles) -> None:
    files.write("a", os.urandom(CHUNK + 1))
    other = EncryptedFiles(plain, Ring(1, os.urandom(32)))
    for read in READS.values():
        with pytest.raises(
            OtherMaster, match="the file a is encrypted with a key that this repository does not"
        ) as caught:
            read(other)
        assert caught.value.code == "CORRUPTED"


def test_a_newer_format_is_refused_and_named(
    plain: LocalFiles, files: EncryptedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr("strandline.storage.encrypted_format.FORMAT", 2)
        files.write("a", b"1")
    with pytest.raises(PreconditionFailed, match="a was encrypted by a newer version: it has format 2"):
        files.read("a")


def test_content_goes_in_and_out_by_copies(tmp_path: Path, plain: LocalFiles, files: EncryptedFiles) -> None:
    content = os.urandom(9 * CHUNK + 17)
    outside, checksum = QuickFiles(tmp_path / "outside"), checksum_of(content)
    outside.write("x", content)
    assert files.copy(outside, "x", "objects/x", checksum) == len(content)
    other = EncryptedFiles(QuickFiles(tmp_path / "other"), Ring(4, os.urandom(32)))
    assert other.copy(files, "objects/x", "y", checksum) == len(content)
    assert outside.copy(other, "y", "back", checksum) == len(content)
    assert outside.read("back") == content
    with pytest.raises(Corrupted, match="x does not have the checksum"):
        files.copy(outside, "x", "objects/z", checksum_of(b""))
    assert list(plain.names()) == ["objects/x"]


@pytest.mark.slow
def test_arrow_reads_few_chunks_of_a_large_file(
    files: EncryptedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"k": range(1_000_000), "v": [os.urandom(8) for _ in range(1_000_000)]})
    pq.write_table(table, sink, row_group_size=50_000, use_dictionary=False, compression="none")
    files.write("t.parquet", sink.getvalue().to_pybytes())
    opened: list[int] = []
    chunk = "strandline.storage.encrypted_format.Opener.chunk"
    original = __import__("strandline.storage.encrypted_format", fromlist=["Opener"]).Opener.chunk

    def counted(self: object, number: int, data: bytes, *, last: bool) -> bytes:
        opened.append(number)
        return original(self, number, data, last=last)

    monkeypatch.setattr(chunk, counted)
    with pq.ParquetFile(files.readable("t.parquet")) as file:
        assert file.read_row_group(11, ["k"]).column("k").to_pylist() == list(range(550_000, 600_000))
    assert files.size("t.parquet") > 15 * CHUNK
    assert len(opened) <= 6


def test_a_pickle_opens_what_the_original_opens_and_shows_nothing(files: EncryptedFiles) -> None:
    files.write("a", b"1")
    there = pickle.loads(pickle.dumps(files))
    there.write("b", b"2")
    assert (there.read("a"), files.read("b")) == (b"1", b"2")
    shown = repr(files) + repr(RING) + str(vars(RING.__class__))
    assert RING.master.hex() not in shown
    assert repr(RING.master) not in shown


def test_cryptography_is_loaded_only_for_what_is_sealed(tmp_path: Path) -> None:
    script = (
        "import sys, strandline, strandline.storage.encrypted_files, strandline.storage.user_key\n"
        "strandline.connect(sys.argv[1]).close(); print('cryptography' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert done.stdout.strip() == "False"


def test_without_cryptography_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, files: EncryptedFiles
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(PreconditionFailed, match="needs the package cryptography") as caught:
        EncryptedFiles(files, Ring(1, os.urandom(32))).write("a", b"1")
    assert "strandline[encryption]" in caught.value.hint
