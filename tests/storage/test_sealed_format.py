"""Encrypted files and keys match docs/format.md and stay readable.

The reader in this module is written from that page alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import struct
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.files import LocalFiles
from strandline.storage.keyring import Ring, UserKey, create, open_ring, rotate
from tests.quick_files import QuickFiles

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "repository"
USER = bytes(range(32, 64))
MIB = 1 << 20


def derived(key: bytes, info: str) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"strandline: " + info.encode()).derive(key)


def master_of(root: Path, user: bytes) -> bytes:
    """Return the only master key."""
    (master,) = masters_of(root, user)
    return master


def masters_of(root: Path, user: bytes) -> list[bytes]:
    """Return the master keys, newest first."""
    newest = max((root / "keys").iterdir(), key=lambda path: int(path.stem))
    kept = json.loads(newest.read_bytes())
    since = [str(kept["since"])] if "since" in kept else []
    assert kept.pop("record_format") == 1 + len(since)
    order = ("generation", "key_id", "opens_with", "nonce", "wrapped")
    values = " ".join([*(str(kept[name]) for name in order), *since, ""])
    assert kept["check"] == hashlib.sha256(values.encode()).hexdigest()[:16]
    assert kept["opens_with"] == derived(user, "fingerprint of a user's key")[:8].hex()
    bound = " ".join([str(kept["generation"]), kept["key_id"], kept["opens_with"], *since]).encode()
    cipher = AESGCM(derived(user, "wrapping of a master key"))
    found = cipher.decrypt(bytes.fromhex(kept["nonce"]), bytes.fromhex(kept["wrapped"]), bound)
    masters = [found[at : at + 32] for at in range(0, len(found), 32)]
    assert kept["key_id"] == derived(masters[0], "id of a master key")[:16].hex()
    assert (len(masters) > 1) == bool(since)
    return masters


def content_of(root: Path, name: str, master: bytes) -> tuple[int, bytes]:
    """Return the generation and the content of an encrypted file."""
    data = (root / name).read_bytes()
    head, body = data[:96], data[96:]
    magic, number, generation, key_id, nonce, wrapped, check = struct.unpack(">6sHI16s12s48s8s", head)
    assert (magic, number, key_id) == (b"STRSEA", 1, derived(master, "id of a master key")[:16])
    assert check == hashlib.sha256(head[:88]).digest()[:8]
    key = AESGCM(derived(master, "wrapping of a file's key")).decrypt(
        nonce, wrapped, head[:28] + name.encode()
    )
    pieces = [body[at : at + MIB + 16] for at in range(0, len(body), MIB + 16)]
    plain = [
        AESGCM(key).decrypt(bytes(3) + struct.pack(">QB", at, at == len(pieces) - 1), piece, name.encode())
        for at, piece in enumerate(pieces)
    ]
    assert len(data) == 96 + sum(map(len, plain)) + 16 * max(1, -(-sum(map(len, plain)) // MIB))
    return generation, b"".join(plain)


def test_an_old_repository_is_read() -> None:
    files = LocalFiles(SAMPLE)
    ring = open_ring(files, UserKey(USER))
    assert EncryptedFiles(files, ring).read("objects/sample") == b"the content of a sealed file"
    name = "f2f62b8d790156bc8d1682f65cf3aac0d039dacc94f7bf6e676f8a8ad3270983"
    assert next(ring.names_of("xxh3-128:00112233445566778899aabbccddeeff")) == name
    assert content_of(SAMPLE, "objects/sample", master_of(SAMPLE, USER)) == (
        3,
        b"the content of a sealed file",
    )


def test_the_key_of_an_old_repository_can_be_changed(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    shutil.copytree(SAMPLE, root)
    rotate(QuickFiles(root), UserKey(USER), UserKey(USER[::-1]))
    assert master_of(root, USER[::-1]) == bytes(range(32))


@pytest.mark.parametrize("size", [0, 1, MIB, 2 * MIB + 7])
def test_what_is_written_is_what_the_page_says(tmp_path: Path, size: int) -> None:
    files, content = QuickFiles(tmp_path), os.urandom(size)
    ring = create(files, UserKey(USER))
    EncryptedFiles(files, ring).write("objects/ключ", content)
    master = master_of(tmp_path, USER)
    assert content_of(tmp_path, "objects/ключ", master) == (1, content)
    names = hmac.new(derived(master, "names of files"), b"xxh3-128:ff", "sha256").hexdigest()
    assert next(Ring(1, master).names_of("xxh3-128:ff")) == names
