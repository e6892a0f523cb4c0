"""The bytes of a sealed file: a header, then the content in chunks of 1 MiB, each encrypted and authenticated
by itself, so that any part can be read without the rest.

Each file has a random key of its own, which the header holds, wrapped. The name of the file is authenticated
with all of it, and with a chunk its place and whether it is the last. So nothing can be changed, moved,
exchanged or cut off without being noticed by who reads it.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from strandline.errors import Corrupted, PreconditionFailed
from strandline.storage.files import CHUNK
from strandline.storage.keyring import KEY_BYTES, NONCE_BYTES, Ring, aead
from strandline.storage.pieces import PIECE, borrowed

__all__ = ["HEADER_BYTES", "SEALED_BYTES", "Opener", "OtherMaster", "opened", "plain_size", "sealed"]

MAGIC = b"STRSEA"
FORMAT = 1
TAG_BYTES = 16
SEALED_BYTES = CHUNK + TAG_BYTES
"""How long a sealed chunk is; only the last one may be shorter."""
_OPEN = struct.Struct(">6sHI16s")
"""What everybody can read: magic, format, generation of the user's key, id of the master key."""
_CHECK_BYTES = 8
_WRAPPED_AT = _OPEN.size + NONCE_BYTES
_CHECK_AT = _WRAPPED_AT + KEY_BYTES + TAG_BYTES
HEADER_BYTES = _CHECK_AT + _CHECK_BYTES

Piece: TypeAlias = "bytes | bytearray | memoryview"


def sealed(ring: Ring, name: str, chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the sealed file of a content, which has this name. What is taken and what is given may be gone
    when the next comes."""
    key, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
    head = _OPEN.pack(MAGIC, FORMAT, ring.generation, ring.id)
    head += nonce + ring.wrapping.encrypt(nonce, key, head + name.encode())
    yield head + _check(head)
    cipher, where = aead(key), name.encode()
    with borrowed() as place:
        for number, (piece, last) in enumerate(_pieces(chunks, CHUNK)):
            room = place[: len(piece) + TAG_BYTES]
            yield _into(cipher, "encrypt", room, _nonce(number, last), piece, where)


def opened(
    opener_of: Callable[[bytes], Opener], chunks: Iterable[bytes | memoryview]
) -> Iterator[memoryview]:
    """Yield the content of a sealed file, some chunks at a time, which are right when they come.
    ``opener_of`` is given the header. What is taken and what is given may be gone when the next comes."""
    coming, head, rest = iter(chunks), b"", memoryview(b"")
    while len(head) < HEADER_BYTES and (chunk := next(coming, None)) is not None:
        rest = memoryview(chunk)[HEADER_BYTES - len(head) :]
        head += bytes(chunk[: HEADER_BYTES - len(head)])
    opener = opener_of(head)
    with borrowed() as place:
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
    """Return how long the content is of a sealed file with so many bytes."""
    count = max(1, -(-(size - HEADER_BYTES) // SEALED_BYTES))
    plain = size - HEADER_BYTES - count * TAG_BYTES
    if plain < (count - 1) * CHUNK + (count > 1):  # Only the one chunk of an empty file is empty.
        raise _cut(name)
    return plain


class OtherMaster(Corrupted):
    """A sealed file names a master key that is not in the ring: a file of another repository is in its place,
    or older keys are in the place of the newest ones."""


class Opener:
    """The key of one sealed file. May be used from any thread."""

    def __init__(self, ring: Ring, name: str, head: bytes) -> None:
        from cryptography.exceptions import InvalidTag

        if len(head) < HEADER_BYTES:
            raise _cut(name)
        magic, number, self.generation, key_id = _OPEN.unpack_from(head)
        if magic != MAGIC:
            raise Corrupted(f"the file {name} is not a sealed file, or its beginning is damaged")
        if _check(head[:_CHECK_AT]) != head[_CHECK_AT:]:
            raise Corrupted(f"the header of the file {name} is damaged")
        if number > FORMAT:
            raise PreconditionFailed(
                f"the file {name} was sealed by a newer version: it has format {number}, and this version "
                f"knows formats up to {FORMAT}",
                "Use the version that wrote it, or a later one.",
            )
        wrapping = ring.wrapping_of(key_id)
        if wrapping is None:
            raise OtherMaster(
                f"the key of this repository does not open the file {name}, which was sealed with another",
                "It is from another repository, or older keys were put back: bring the file, or the folder "
                "keys, back from a copy of the repository.",
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
        """Return the content of a chunk; ``room``: it may be put there."""
        if len(data) < TAG_BYTES:
            raise _cut(self._name)
        if (content := self._try(number, data, last, room)) is not None:
            return content
        if self._try(number, data, not last) is not None:
            # It is in its place, but the end is not.
            raise _cut(self._name) if last else Corrupted(f"the file {self._name} goes on after its end")
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
    """Return what a cipher makes, in room that is used again: new memory for each chunk costs as much as the
    work. Not every version of the library can do that."""
    if room is None or not hasattr(cipher, f"{work}_into"):
        return memoryview(getattr(cipher, work)(*given))
    getattr(cipher, f"{work}_into")(*given, room)
    return room


def _cut(name: str) -> Corrupted:
    return Corrupted(f"the file {name} is cut off: its end is missing")


def _check(head: bytes) -> bytes:
    """So that damage is told from a file of another repository. It keeps nobody from changing a header; the
    wrapped key does."""
    return hashlib.sha256(head).digest()[:_CHECK_BYTES]


def _nonce(number: int, last: bool) -> bytes:
    """Of a chunk: its place. No two chunks have the same one with the same key, since no two files have the
    same key."""
    return struct.pack(">3xQ?", number, last)


def _pieces(chunks: Iterable[bytes | memoryview], size: int) -> Iterator[tuple[memoryview, bool]]:
    """Yield the content in pieces of one size, and with each whether it is the last. That one may be shorter,
    and if there is nothing it is all there is. What is taken and what is given may be gone when the next
    comes."""
    with borrowed() as place:
        # For what is put together from two chunks, for what has to wait, and a spare one.
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
