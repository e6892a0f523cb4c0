"""The keys of an encrypted repository: creation, reading and rotation.

Each file in the repository has its own key, wrapped with a random *master key*. Master keys are stored in the
repository itself, in ``keys/<generation>.json``, encrypted ("wrapped") with the *user's key*, which the user
keeps elsewhere.

``rotate`` changes the user's key: it writes the next generation; no data is rewritten. By default the new
generation holds the same master keys, wrapped with the new user's key. With ``new_master`` it also holds a
new master key, which encrypts all new files. The older master keys stay in it for existing files: the header
of an encrypted file names the master key that it needs. Only the newest generation is valid.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from strandline import records
from strandline.errors import Conflict, Corrupted, InvalidArgument, PreconditionFailed, StrandlineError
from strandline.records import Record, later
from strandline.storage.files import Files

__all__ = [
    "KEY_BYTES",
    "Ring",
    "Rotated",
    "UserKey",
    "WrongKey",
    "aead",
    "create",
    "newest",
    "open_ring",
    "rotate",
]

KEY_BYTES = 32
NONCE_BYTES = 12
FOLDER = "keys"
_NAME = re.compile(r"keys/([1-9][0-9]*)\.json(\..+)?", re.ASCII)
"""A suffix marks a temporary file left by a crashed writer."""
_DAMAGED = "Restore the repository's folder keys from a copy."


class WrongKey(PreconditionFailed):
    """Error: the user's key is valid, but does not open this repository."""


@dataclass(frozen=True)
class UserKey:
    """The key that the user keeps. Only its fingerprint may be shown, stored or logged, never the key."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise InvalidArgument(
                f"a repository's key has {KEY_BYTES} bytes, and this one has {len(self.secret)}",
                "Make one with: openssl rand -base64 32.",
            )

    @property
    def fingerprint(self) -> str:
        """Short id of the key, which reveals nothing about the key."""
        return derive_key(self.secret, "fingerprint of a user's key")[:8].hex()

    @property
    def wrapping(self) -> Any:
        return aead(derive_key(self.secret, "wrapping of a master key"))


@dataclass(frozen=True)
class Ring:
    """The opened keys of one repository.

    A pickle holds the master keys: it is meant for executors, and must not be stored.

    Args:
        generation: the generation of the user's key that opened the ring.
        master: the master key that encrypts new files.
        older: the earlier master keys, newest first, for files that were encrypted with them.
        since: the generation that introduced ``master``; 0 if the repository was created with it.
        opens_with: the fingerprint of the user's key.
    """

    generation: int
    master: bytes = field(repr=False)
    older: tuple[bytes, ...] = field(default=(), repr=False)
    since: int = 0
    opens_with: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return Ring, (self.generation, self.master, self.older, self.since, self.opens_with)

    @cached_property
    def id(self) -> bytes:
        """Id of the master key that encrypts new files."""
        return _id_of(self.master)

    @cached_property
    def wrapping(self) -> Any:
        """Cipher that wraps the keys of new files."""
        return self.wrapping_of(self.id)

    def wrapping_of(self, key_id: bytes) -> Any:
        """Return the cipher of the master key with this id; None if the ring does not have this key."""
        return self._wrappings.get(key_id)

    @cached_property
    def _wrappings(self) -> dict[bytes, Any]:
        masters = (self.master, *self.older)
        return {_id_of(master): aead(derive_key(master, "wrapping of a file's key")) for master in masters}

    def next(self, *, new_master: bool) -> Ring:
        """Return the ring of the next generation, optionally with a new master key."""
        generation = self.generation + 1
        if not new_master:
            return replace(self, generation=generation)
        older = (self.master, *self.older)
        return Ring(generation, os.urandom(KEY_BYTES), older, since=generation)

    def names_of(self, checksum: str) -> Iterator[str]:
        """Yield the name of content with this checksum under each master key, newest key first.

        A name has 64 hex digits. Without the master key it reveals nothing about the content.
        """
        return (hmac.digest(key, checksum.encode(), "sha256").hex() for key in self._names)

    @cached_property
    def _names(self) -> list[bytes]:
        return [derive_key(master, "names of files") for master in (self.master, *self.older)]


@dataclass(frozen=True, kw_only=True)
class Wrapped(Record):
    """Stored form of the master keys.

    Args:
        key_id: the id of the newest master key, which encrypts new files.
        opens_with: the fingerprint of the user's key that opens the record.
        wrapped: all master keys, newest first, encrypted with the user's key.
        since: the generation that introduced the newest master key; 0 if the repository was created with it.
        check: a checksum, which distinguishes damage from a wrong key.
    """

    FORMAT: ClassVar[int] = 2

    generation: int
    key_id: str
    opens_with: str
    nonce: str
    wrapped: str
    since: int = later(0)
    check: str = ""

    def authenticated_fields(self) -> bytes:
        """Return the fields that are authenticated together with the master keys."""
        return " ".join([str(self.generation), self.key_id, self.opens_with, *self._since()]).encode()

    def with_checksum(self) -> Wrapped:
        values = (str(self.generation), self.key_id, self.opens_with, self.nonce, self.wrapped)
        text = " ".join([*values, *self._since(), ""])
        return replace(self, check=hashlib.sha256(text.encode()).hexdigest()[:16])

    def _since(self) -> list[str]:
        return [str(self.since)] if self.since else []


class FirstWrapped(Wrapped):
    """Stored form of a single master key, which every version of Strandline can read."""

    FORMAT: ClassVar[int] = 1


@dataclass(frozen=True)
class Rotated:
    """Result of a rotation.

    Args:
        generation: the generation that is valid from now on.
        left: the names of older key files that could not be deleted. The repository does not accept them any
            more, but the older user's key still decrypts the master keys in them.
    """

    generation: int
    left: tuple[str, ...]


def create(files: Files, user: UserKey) -> Ring:
    """Return the keys of a repository; create them if it has no keys. Can be repeated after a crash."""
    if not newest(files):
        files.write_if_absent(_name(1), _text(Ring(1, os.urandom(KEY_BYTES)), user))
    return open_ring(files, user)  # If another process was faster, its keys are valid.


def open_ring(files: Files, user: UserKey) -> Ring:
    """Return the keys of a repository. Raises WrongKey if the user's key does not open the newest ones."""
    return _open_ring(_newest_record(files), user, files)


def newest(files: Files) -> int:
    """Return the newest generation of keys; 0 if the repository has no keys."""
    return max((number for number, _, is_whole in _list_generations(files) if is_whole), default=0)


def rotate(
    files: Files,
    old: UserKey,
    new: UserKey,
    *,
    new_master: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Rotated:
    """Replace the user's key without rewriting data.

    After a crash at any point the repository opens with exactly one of the two keys, and the rotation can be
    repeated.

    Args:
        new_master: encrypt new files with a new master key, which the old user's key has never opened.
        check: called before the new keys are written; raises if this process must not write them.
    """
    if old == new:
        raise InvalidArgument("the new key of the repository is the old one", "Create another key.")

    def is_done(record: Wrapped) -> bool:
        is_new = record.since == record.generation or not new_master
        return is_new and record.opens_with == new.fingerprint

    record = _newest_record(files)
    if not is_done(record):  # Otherwise an earlier attempt has written the new keys.
        ring = _open_ring(record, new if record.opens_with == new.fingerprint else old, files)
        ring = ring.next(new_master=new_master)
        check()
        files.write_if_absent(_name(ring.generation), _text(ring, new))
        # The stored file, not the result of the write, decides which rotation came first.
        record = _newest_record(files)
        if not is_done(record):
            raise Conflict(
                f"another process changed the key of the repository at {files.location} at the same time",
                "Find out which key is valid now, and repeat the change with that key.",
            )
    _open_ring(record, new, files)  # Check that the new key works before anything is deleted.
    return Rotated(record.generation, tuple(_remove_older(files, record.generation)))


def derive_key(key: bytes, purpose: str) -> bytes:
    """Derive the key for one purpose from another key."""
    try:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise _missing() from None
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"strandline: {purpose}".encode()).derive(key)


def aead(key: bytes) -> Any:
    """Return the AES-256-GCM cipher of a key."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise _missing() from None
    return AESGCM(key)


def _id_of(master: bytes) -> bytes:
    return derive_key(master, "id of a master key")[:16]


def _missing() -> PreconditionFailed:
    return PreconditionFailed(
        "an encrypted repository needs the package cryptography, which is not installed",
        "Install it with: pip install 'strandline[encryption]'.",
    )


def _name(generation: int) -> str:
    return f"{FOLDER}/{generation}.json"


def _list_generations(files: Files) -> Iterator[tuple[int, str, bool]]:
    """Yield for each key file its generation, its name, and whether it is complete.

    A file is not complete if it is a temporary file that a crashed writer left.
    """
    for name in files.names(FOLDER):
        if found := _NAME.fullmatch(name):
            yield int(found[1]), name, found[2] is None


def _text(ring: Ring, user: UserKey) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    kind = Wrapped if ring.since else FirstWrapped
    record = kind(
        generation=ring.generation,
        key_id=ring.id.hex(),
        opens_with=user.fingerprint,
        nonce=nonce.hex(),
        wrapped="",
        since=ring.since,
    )
    wrapped = user.wrapping.encrypt(
        nonce, b"".join((ring.master, *ring.older)), record.authenticated_fields()
    )
    return records.to_text(replace(record, wrapped=wrapped.hex()).with_checksum()).encode()


def _newest_record(files: Files) -> Wrapped:
    for _ in range(10):
        if not (generation := newest(files)):
            raise Corrupted(f"the repository at {files.location} has no keys", _DAMAGED)
        if (data := files.find(_name(generation))) is not None:
            return _read(data, generation)
        # A rotation deleted this key file meanwhile, so a newer key file exists.
    raise Conflict(f"the keys of the repository at {files.location} keep changing")


def _read(data: bytes, generation: int) -> Wrapped:
    what = f"the file {_name(generation)}"
    try:
        record = records.from_text(Wrapped, data.decode(), what)
    except UnicodeDecodeError:
        raise Corrupted(f"{what} is damaged: it is not text", _DAMAGED) from None
    except Corrupted as error:
        raise Corrupted(error.message, _DAMAGED) from None
    if record.with_checksum() != record:
        raise Corrupted(f"{what} is damaged: it does not match its checksum", _DAMAGED)
    if record.generation != generation:
        raise Corrupted(f"{what} was renamed: it has generation {record.generation}", _DAMAGED)
    return record


def _open_ring(record: Wrapped, user: UserKey, files: Files) -> Ring:
    from cryptography.exceptions import InvalidTag

    if record.opens_with != user.fingerprint:
        raise WrongKey(
            f"the key does not open the repository at {files.location}: its fingerprint is "
            f"{user.fingerprint}, but it must be {record.opens_with}",
            "Use the key with which the repository was created, or the latest key if it was changed since.",
        )
    what = f"the file {_name(record.generation)}"
    try:
        nonce, wrapped = bytes.fromhex(record.nonce), bytes.fromhex(record.wrapped)
        found = user.wrapping.decrypt(nonce, wrapped, record.authenticated_fields())
    except (InvalidTag, ValueError):
        raise Corrupted(f"{what} was changed: the right key does not open it", _DAMAGED) from None
    masters = tuple(found[at : at + KEY_BYTES] for at in range(0, len(found), KEY_BYTES))
    is_whole = masters and len(found) % KEY_BYTES == 0 and bool(masters[1:]) == bool(record.since)
    if not is_whole or _id_of(masters[0]).hex() != record.key_id:
        raise Corrupted(f"{what} does not hold the key that it names", _DAMAGED)
    return Ring(record.generation, masters[0], masters[1:], record.since, record.opens_with)


def _remove_older(files: Files, generation: int) -> Iterator[str]:
    """Delete older key files; yield the names of those that could not be deleted."""
    for number, name, is_whole in list(_list_generations(files)):
        if number < generation or (number == generation and not is_whole):
            try:
                files.remove(name)
            except StrandlineError:
                yield name  # A bucket may refuse to delete. The file is not valid any more in any case.
