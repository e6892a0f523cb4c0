"""Encrypted files: encrypt on write, decrypt and authenticate on read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import xxhash

from strandline.errors import Corrupted, StrandlineError, Unsupported
from strandline.storage import keyring
from strandline.storage.block_reader import BlockReader
from strandline.storage.encrypted_format import (
    HEADER_BYTES,
    SEALED_BYTES,
    Opener,
    OtherMaster,
    decrypt,
    encrypt,
    plain_size,
)
from strandline.storage.files import (
    CHUNK,
    PREFIX,
    Files,
    Source,
    act_on_all,
    check_name,
    fault,
    read_checked,
)
from strandline.storage.keyring import Ring

__all__ = ["EncryptedFiles"]


class EncryptedFiles:
    """Encrypted files of a repository, read and written with the repository's keys.

    Sizes, checksums and pieces are those of the decrypted content; names are not encrypted. A pickle holds
    the master keys.

    Args:
        renew: opens the keys again. Called when the repository has a newer generation of keys than ``ring``.
            Not part of a pickle.
    """

    def __init__(self, files: Files, ring: Ring, renew: Callable[[], Ring] | None = None) -> None:
        self._files, self._ring, self._renew = files, ring, renew
        self._generation = ring.generation

    def __reduce__(self) -> tuple[Any, ...]:
        return EncryptedFiles, (self._files, self._ring)

    def __repr__(self) -> str:
        return f"EncryptedFiles({self.location!r})"

    @property
    def plain(self) -> Files:
        """The files without decryption."""
        return self._files

    def names_of(self, checksum: str) -> Iterator[str]:
        """Yield the name of content with this checksum under each master key, newest key first."""
        return self._ring.names_of(checksum)

    @property
    def ring(self) -> Ring:
        """The keys that were opened last."""
        return self._ring

    def renew(self) -> bool:
        """Open the keys again if the repository has another generation of keys; return True if it has.

        Raises CORRUPTED if the repository now has older keys or no keys. Raises WrongKey if the user's key
        does not open the keys.
        """
        if self._renew is None or keyring.newest(self._files) == self._ring.generation:
            return False
        ring = self._renew()
        if ring.generation < self._ring.generation:
            raise Corrupted(
                f"the keys of the repository at {self.location} have generation {ring.generation}, but had "
                f"generation {self._ring.generation} before",
                "Older key files were restored. Restore the newest file of the folder keys.",
            )
        self._ring, self._generation = ring, max(ring.generation, self._generation)
        return True

    @property
    def location(self) -> str:
        return self._files.location

    def path(self, name: str) -> str:
        check_name(name)
        raise Unsupported(
            f"Spark cannot read the file {name}, which is encrypted",
            "Restore the backup that it belongs to, and read the table.",
        )

    def readable(self, name: str) -> Any:
        return SealedReader(self, name)

    def spark_options(self) -> Mapping[str, str]:
        return self._files.spark_options()

    def write(self, name: str, data: bytes) -> None:
        self.store(name, (data,))

    def make_root(self) -> None:
        self._files.make_root()

    def write_if_absent(self, name: str, data: bytes) -> bool:
        check_name(name)
        return self._files.write_if_absent(name, b"".join(map(bytes, encrypt(self._ring, name, (data,)))))

    def store(self, name: str, chunks: Iterable[bytes | memoryview]) -> int:
        check_name(name)
        return plain_size(name, self._files.store(name, encrypt(self._ring, name, chunks)))

    def store_if_absent(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        check_name(name)
        self._files.store_if_absent(name, encrypt(self._ring, name, chunks))

    def copy(self, source: Source, source_name: str, name: str, checksum: str) -> int:
        return self.store(name, read_checked(source, source_name, checksum))

    def copy_if_absent(self, source: Source, source_name: str, name: str, checksum: str) -> None:
        self.store_if_absent(name, read_checked(source, source_name, checksum))

    def replace(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        check_name(name)
        self._files.replace(name, encrypt(self._ring, name, chunks))

    def seal(self, names: Iterable[str]) -> None:
        self._files.seal(names)

    def names(self, folder: str = "") -> Iterator[str]:
        return self._files.names(folder)

    def remove(self, name: str) -> None:
        self._files.remove(name)

    def remove_all(self, names: Sequence[str]) -> None:
        self._files.remove_all(names)

    def remove_tree(self, folder: str) -> None:
        self._files.remove_tree(folder)

    def exists(self, name: str) -> bool:
        return self._files.exists(name)

    def size(self, name: str) -> int:
        return plain_size(name, self._files.size(name))

    def sizes(self, names: Sequence[str]) -> list[int | StrandlineError]:
        found = dict(zip(names, self._files.sizes(names), strict=True))

        def size_in_plain(name: str) -> int:
            if isinstance(size := found[name], StrandlineError):
                raise size
            return plain_size(name, size)

        return act_on_all(size_in_plain, names, 1)

    def read(self, name: str) -> bytes:
        return b"".join(map(bytes, self._decrypt(name, self._files.chunks(name))))

    def find(self, name: str) -> bytes | None:
        data = self._files.find(name)
        return None if data is None else b"".join(map(bytes, self._decrypt(name, (data,))))

    def chunks(self, name: str) -> Iterator[memoryview]:
        return self._decrypt(name, self._files.chunks(name))

    def checksum(self, name: str) -> str:
        hasher = xxhash.xxh3_128()
        for chunk in self.chunks(name):
            hasher.update(chunk)
        return PREFIX + hasher.hexdigest()

    def opener(self, name: str, head: bytes) -> Opener:
        """Return the object that decrypts the chunks of the file with this header."""
        try:
            opener = Opener(self._ring, name, head)
        except OtherMaster:
            if not self.renew():
                raise
            opener = Opener(self._ring, name, head)
        self._admit(name, opener.generation)
        return opener

    def source(self, name: str) -> Any:
        """Return the encrypted file, open for random access."""
        found = self._files.readable(name)
        try:
            return open(found, "rb", buffering=0) if isinstance(found, str) else found
        except OSError as error:
            raise fault("read", name, error) from error

    def _decrypt(self, name: str, chunks: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
        return decrypt(lambda head: self.opener(name, head), chunks)

    def _admit(self, name: str, generation: int) -> None:
        """Raise CORRUPTED if the repository's newest keys are older than the keys that encrypted a file.

        This detects that an older copy of the key files replaced the newest one.

        Args:
            generation: the generation of keys in the header of the file.
        """
        if generation <= self._generation:
            return
        there = keyring.newest(self._files)
        if there < generation:
            raise Corrupted(
                f"the keys of the repository at {self.location} are older than the file {name}: the newest "
                f"has generation {there}, the file has generation {generation}",
                f"Older key files were restored. Restore keys/{generation}.json or a later one.",
            )
        self._generation = there  # The key was changed after this process opened the repository.


class SealedReader(BlockReader):
    """Decrypts an encrypted file for Arrow, which reads it at random positions."""

    def __init__(self, files: EncryptedFiles, name: str) -> None:
        self._name = name
        self._source = files.source(name)
        self._length = self._source.seek(0, os.SEEK_END)
        super().__init__(plain_size(name, self._length))
        self._opener = files.opener(name, self._read_encrypted(0, HEADER_BYTES))
        if not self._size:
            self._chunks(0, 0)  # An empty file is never read: check its end now.

    def close(self) -> None:
        with suppress(AttributeError):  # The file was never opened.
            self._source.close()
        super().close()

    def _fetch(self, start: int, end: int) -> tuple[int, bytes]:
        first, last = start // CHUNK, (end - 1) // CHUNK
        return first * CHUNK, self._chunks(first, last)

    def _chunks(self, first: int, last: int) -> bytes:
        """Return the content of several consecutive chunks, fetched in one request."""
        end = min(self._length, HEADER_BYTES + (last + 1) * SEALED_BYTES)
        data = memoryview(self._read_encrypted(HEADER_BYTES + first * SEALED_BYTES, end))
        parts = (data[at : at + SEALED_BYTES] for at in range(0, len(data), SEALED_BYTES))
        return b"".join(
            self._opener.chunk(number, part, last=number == max(0, self._size - 1) // CHUNK)
            for number, part in enumerate(parts, first)
        )

    def _read_encrypted(self, start: int, end: int) -> bytes:
        """Return the bytes of the encrypted file from ``start`` to ``end``.

        Returns fewer bytes only if the file was truncated meanwhile.
        """
        data = b""
        try:
            self._source.seek(start)
            while len(data) < end - start and (more := self._source.read(end - start - len(data))):
                data = data + more if data else more
        except OSError as error:
            raise fault("read", self._name, error) from error
        return data
