"""Format of encrypted files: a header, then the content in encrypted chunks of ``CHUNK`` bytes.

Each chunk is authenticated by itself, so that any range can be read without the rest.

Each file has its own random key. The header holds this key, wrapped (encrypted) with the master key. The
authenticated data of a chunk are the name of the file, the number of the chunk and whether it is the last
one. So a reader detects every change: damaged bytes, moved or exchanged chunks, a renamed file, a truncated
file.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from strandline.errors import Corrupted, PreconditionFailed
from strandline.storage.buffers import PIECE, borrow_buffer
from strandline.storage.files import CHUNK
from strandline.storage.keyring import KEY_BYTES, NONCE_BYTES, Ring, aead

__all__ = ["HEADER_BYTES", "SEALED_BYTES", "Opener", "OtherMaster", "decrypt", "encrypt", "plain_size"]

MAGIC = b"STRSEA"
FORMAT = 1
TAG_BYTES = 16
SEALED_BYTES = CHUNK + TAG_BYTES
"""Length of an encrypted chunk. Only the last chunk may be shorter."""
_OPEN = struct.Struct(">6sHI16s")
"""Unencrypted start of the header: magic, format, generation of the user's key, id of the master key."""
_CHECK_BYTES = 8
_WRAPPED_AT = _OPEN.size + NONCE_BYTES
_CHECK_AT = _WRAPPED_AT + KEY_BYTES + TAG_BYTES
HEADER_BYTES = _CHECK_AT + _CHECK_BYTES

Piece: TypeAlias = "bytes | bytearray | memoryview"


def encrypt(ring: Ring, name: str, chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the content, encrypted as the file ``name``.

    Both an input chunk and a yielded piece are valid only until the next one is requested.
    """
    key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
    head = _OPEN.pack(MAGIC, FORMAT, ring.generation, ring.id)
    head += nonce + ring.wrapping.encrypt(nonce, key, head + name.encode())
    yield head + _check(head)
    cipher, where = aead(key), name.encode()
    with borrow_buffer() as place:
        for number, (piece, last) in enumerate(_pieces(chunks, CHUNK)):
            room = place[: len(piece) + TAG_BYTES]
            yield _into(cipher, "encrypt", room, _nonce(number, last), piece, where)


def decrypt(
    opener_of: Callable[[bytes], Opener], chunks: Iterable[bytes | memoryview]
) -> Iterator[memoryview]:
    """Yield the decrypted content of an encrypted file.

    Each yielded piece is already authenticated. Both an input chunk and a yielded piece are valid only until
    the next one is requested.

    Args:
        opener_of: returns the file's opener for its header.
        chunks: the bytes of the encrypted file.
    """
    coming, head, rest = iter(chunks), b"", memoryview(b"")
    while len(head) < HEADER_BYTES and (chunk := next(coming, None)) is not None:
        rest = memoryview(chunk)[HEADER_BYTES - len(head) :]
        head += bytes(chunk[: HEADER_BYTES - len(head)])
    opener = opener_of(head)
    with borrow_buffer() as place:
        filled = 0
        for number, (piece, last) in enumerate(_pieces(chain((rest,), coming), SEALED_BYTES)):
            room = place[filled : filled + CHUNK]
            content = opener.chunk(number, piece, last=last, room=room)
            if content.obj is not place.obj:
                room[: len(content)] = content
            filled += len(content)
            if filled == PIECE:
                yield place
                filled = 0
        if filled:
            yield place[:filled]


def plain_size(name: str, size: int) -> int:
    """Return the length of the content of an encrypted file that has ``size`` bytes."""
    count = max(1, -(-(size - HEADER_BYTES) // SEALED_BYTES))
    plain = size - HEADER_BYTES - count * TAG_BYTES
    if plain < (count - 1) * CHUNK + (count > 1):  # Only an empty file has an empty chunk.
        raise _cut(name)
    return plain


class OtherMaster(Corrupted):
    """Error: the master key that encrypted the file is not in the key ring.

    The file comes from another repository, or an older copy of the key files replaced the newest one.
    """


class Opener:
    """Decrypts the chunks of one file. Thread-safe."""

    def __init__(self, ring: Ring, name: str, head: bytes) -> None:
        from cryptography.exceptions import InvalidTag

        if len(head) < HEADER_BYTES:
            raise _cut(name)
        magic, number, self.generation, key_id = _OPEN.unpack_from(head)
        if magic != MAGIC:
            raise Corrupted(f"the file {name} is not encrypted, or its header is damaged")
        if _check(head[:_CHECK_AT]) != head[_CHECK_AT:]:
            raise Corrupted(f"the header of the file {name} is damaged")
        if number > FORMAT:
            raise PreconditionFailed(
                f"the file {name} was encrypted by a newer version: it has format {number}, and this version "
                f"knows formats up to {FORMAT}",
                "Use the version that wrote it, or a later one.",
            )
        wrapping = ring.wrapping_of(key_id)
        if wrapping is None:
            raise OtherMaster(
                f"the file {name} is encrypted with a key that this repository does not have",
                "It comes from another repository, or older key files were restored. Restore the file, or "
                "the folder keys, from a copy of the repository.",
            )
        try:
            key = wrapping.decrypt(
                head[_OPEN.size : _WRAPPED_AT],
                head[_WRAPPED_AT:_CHECK_AT],
                head[: _OPEN.size] + name.encode(),
            )
        except InvalidTag:
            raise Corrupted(
                f"the file {name} is not the one that was written under this name, or its header was changed"
            ) from None
        self._name, self._cipher = name, aead(key)

    def chunk(self, number: int, data: Piece, *, last: bool, room: memoryview | None = None) -> memoryview:
        """Decrypt a chunk and return its content; raise CORRUPTED if the chunk is not authentic.

        Args:
            number: the number of the chunk in the file, from 0.
            last: the chunk is the last one of the file.
            room: buffer for the content. It is used if this version of the library can decrypt into a buffer.
        """
        if len(data) < TAG_BYTES:
            raise _cut(self._name)
        if (content := self._try(number, data, last, room)) is not None:
            return content
        if self._try(number, data, not last) is not None:
            # The chunk is authentic, but the file should end after another chunk.
            raise _cut(self._name) if last else Corrupted(f"the file {self._name} has data after its end")
        which = f"chunk {number + 1} of the file {self._name}"
        if last:
            raise Corrupted(f"{which}, its last one, is damaged or cut off")
        raise Corrupted(f"{which} is damaged, or not the one that was written there")

    def _try(self, number: int, data: Piece, last: bool, room: memoryview | None = None) -> memoryview | None:
        from cryptography.exceptions import InvalidTag

        given = _nonce(number, last), data, self._name.encode()
        into = None if room is None else room[: len(data) - TAG_BYTES]
        try:
            return _into(self._cipher, "decrypt", into, *given)
        except InvalidTag:
            return None


def _into(cipher: Any, work: str, room: memoryview | None, *given: Any) -> memoryview:
    """Run the cipher; write the result into ``room`` if this version of the library supports it.

    Allocating new memory for each chunk takes as long as the encryption.
    """
    if room is None or not hasattr(cipher, f"{work}_into"):
        return memoryview(getattr(cipher, work)(*given))
    getattr(cipher, f"{work}_into")(*given, room)
    return room


def _cut(name: str) -> Corrupted:
    return Corrupted(f"the file {name} is cut off: its end is missing")


def _check(head: bytes) -> bytes:
    """Return the check bytes of a header. They distinguish a damaged file from a file of another repository.

    The check bytes do not detect a deliberate change of the header; the authenticated wrapped key does.
    """
    return hashlib.sha256(head).digest()[:_CHECK_BYTES]


def _nonce(number: int, last: bool) -> bytes:
    """Return the nonce of a chunk: its number and whether it is the last one.

    A nonce never repeats under one key, because each file has its own key.
    """
    return struct.pack(">3xQ?", number, last)


def _pieces(chunks: Iterable[bytes | memoryview], size: int) -> Iterator[tuple[memoryview, bool]]:
    """Split the content into pieces of ``size`` bytes; yield each with a flag that marks the last one.

    The last piece may be shorter. Empty content gives one empty last piece. Both an input chunk and a yielded
    piece are valid only until the next one is requested.
    """
    with borrow_buffer() as place:
        # Buffers: one to join two chunks, one for the piece that waits for its flag, and a spare one.
        rooms = [place[size * n : size * (n + 1)] for n in range(3)]
        part, filled, full = rooms.pop(), 0, None
        for chunk in chunks:
            left = memoryview(chunk)
            while left:
                if not filled and len(left) >= size:
                    piece, left = left[:size], left[size:]
                else:
                    took = min(size - filled, len(left))
                    part[filled : filled + took] = left[:took]
                    left, filled = left[took:], filled + took
                    if filled < size:
                        continue
                    piece, part, filled = part, rooms.pop(), 0
                if full is not None:
                    yield full, False
                    if full.obj is place.obj:
                        rooms.append(full)
                full = piece
            if full is not None and full.obj is not place.obj:
                room = rooms.pop()
                room[:] = full
                full = room
        if full is None or filled:
            if full is not None:
                yield full, False
            full = part[:filled]
        yield full, True
