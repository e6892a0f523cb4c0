"""The keys of an encrypted repository.

Everything in it is sealed with keys that come from one random *master key*. That lies in the repository
itself, as ``keys/<generation>.json``, wrapped by the *user's key*, which the user keeps elsewhere. So the
user's key can be changed (``rotate``) and no data has to be written again: the next generation holds the same
master key in another wrapping. The newest generation alone counts, whatever else lies beside it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any

from strandline import records
from strandline.errors import Conflict, Corrupted, InvalidArgument, PreconditionFailed, StrandlineError
from strandline.records import Record
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
"""With something behind it, what a process left that died while it made one."""
_DAMAGED = "Bring back the folder keys of the repository as it was, from a copy of it."


class WrongKey(PreconditionFailed):
    """A key that is in order, but is not the one that opens this."""


@dataclass(frozen=True)
class UserKey:
    """What the user keeps. It is never shown, written or logged; its fingerprint may be."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise InvalidArgument(
                f"a repository's key has {KEY_BYTES} bytes, and this one has {len(self.secret)}",
                "Make one with: openssl rand -base64 32.",
            )

    @property
    def fingerprint(self) -> str:
        """What tells one key from another, and nothing about either."""
        return derived(self.secret, "fingerprint of a user's key")[:8].hex()

    @property
    def wrapping(self) -> Any:
        return aead(derived(self.secret, "wrapping of a master key"))


@dataclass(frozen=True)
class Ring:
    """The keys of one repository, opened. A pickle of it holds the master key: it is meant for executors, and
    for nothing that lasts. ``generation``: of the newest user's key when it was opened."""

    generation: int
    master: bytes = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ring, (self.generation, self.master)

    @cached_property
    def id(self) -> bytes:
        """What tells the repository's master key from that of another one."""
        return derived(self.master, "id of a master key")[:16]

    @cached_property
    def wrapping(self) -> Any:
        """What the keys of single files are wrapped with."""
        return aead(derived(self.master, "wrapping of a file's key"))

    def name_of(self, checksum: str) -> str:
        """Return 64 hex digits that name a content by its checksum, and tell nobody without the key which
        content it is."""
        return hmac.digest(self._names, checksum.encode(), "sha256").hex()

    @cached_property
    def _names(self) -> bytes:
        return derived(self.master, "names of files")


@dataclass(frozen=True, kw_only=True)
class Wrapped(Record):
    """The master key as it lies in the repository. ``opens_with``: the fingerprint of the user's key that
    opens it. ``check``: so that damage is told from a wrong key."""

    generation: int
    key_id: str
    opens_with: str
    nonce: str
    wrapped: str
    check: str = ""

    def bound(self) -> bytes:
        """Return what cannot be changed without being noticed by who opens it."""
        return f"{self.generation} {self.key_id} {self.opens_with}".encode()

    def checked(self) -> Wrapped:
        fields = " ".join(map(str, astuple(replace(self, check=""))))
        return replace(self, check=hashlib.sha256(fields.encode()).hexdigest()[:16])


@dataclass(frozen=True)
class Rotated:
    """The generation that counts from now on, and the names of older ones that could not be removed. Those
    open nothing here; but who has both such a file and the older key has the master key."""

    generation: int
    left: tuple[str, ...]


def create(files: Files, user: UserKey) -> Ring:
    """Return the keys of a repository, new ones if it has none. May be repeated after a death at any
    point."""
    if not newest(files):
        files.write_if_absent(_name(1), _text(Ring(1, os.urandom(KEY_BYTES)), user))
    return open_ring(files, user)  # Also if another was faster: his are those of the repository.


def open_ring(files: Files, user: UserKey) -> Ring:
    """Return the keys of a repository; WrongKey if the newest of them is not for this user's key."""
    return _opened(_newest_record(files), user, files)


def newest(files: Files) -> int:
    """Return the newest generation that is there, 0 if there is none."""
    return max((number for number, _, is_whole in _listed(files) if is_whole), default=0)


def rotate(files: Files, old: UserKey, new: UserKey) -> Rotated:
    """Let the new key open the repository, and the old one no more. No data is written again. May be repeated
    after a death at any point, which leaves a repository that opens with one of the two."""
    if old == new:
        raise InvalidArgument("the new key of the repository is the old one", "Make another one.")
    record = _newest_record(files)
    if record.opens_with != new.fingerprint:  # Else an earlier try has come so far.
        ring = _opened(record, old, files)
        ring = replace(ring, generation=ring.generation + 1)
        files.write_if_absent(_name(ring.generation), _text(ring, new))
        # Whatever the answer was, what lies there says who was first.
        record = _newest_record(files)
        if record.opens_with != new.fingerprint:
            raise Conflict(
                f"another has changed the key of the repository at {files.location} at the same moment",
                "Find out which key holds now, and repeat it with that one.",
            )
    _opened(record, new, files)  # Nothing is removed before the new one is known to work.
    return Rotated(record.generation, tuple(_remove_older(files, record.generation)))


def derived(key: bytes, purpose: str) -> bytes:
    """Return the key for one purpose that comes from another key."""
    try:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise _missing() from None
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=f"strandline: {purpose}".encode()).derive(key)


def aead(key: bytes) -> Any:
    """Return AES-256-GCM with a key."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise _missing() from None
    return AESGCM(key)


def _missing() -> PreconditionFailed:
    return PreconditionFailed(
        "an encrypted repository needs the package cryptography, which is not installed",
        "Install it with: pip install 'strandline[encryption]'.",
    )


def _name(generation: int) -> str:
    return f"{FOLDER}/{generation}.json"


def _listed(files: Files) -> Iterator[tuple[int, str, bool]]:
    """Yield the generations of what lies in the folder, with the names, and whether it is more than a
    leftover."""
    for name in files.names(FOLDER):
        if found := _NAME.fullmatch(name):
            yield int(found[1]), name, found[2] is None


def _text(ring: Ring, user: UserKey) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    record = Wrapped(
        generation=ring.generation,
        key_id=ring.id.hex(),
        opens_with=user.fingerprint,
        nonce=nonce.hex(),
        wrapped="",
    )
    wrapped = user.wrapping.encrypt(nonce, ring.master, record.bound())
    return records.to_text(replace(record, wrapped=wrapped.hex()).checked()).encode()


def _newest_record(files: Files) -> Wrapped:
    for _ in range(10):
        if not (generation := newest(files)):
            raise Corrupted(f"the repository at {files.location} has no keys", _DAMAGED)
        if (data := files.find(_name(generation))) is not None:
            return _read(data, generation)
        # A rotation has removed it since we looked, and so there is a newer one.
    raise Conflict(f"the keys of the repository at {files.location} change all the time")


def _read(data: bytes, generation: int) -> Wrapped:
    what = f"the file {_name(generation)}"
    try:
        record = records.from_text(Wrapped, data.decode(), what)
    except UnicodeDecodeError:
        raise Corrupted(f"{what} is damaged: it is not text", _DAMAGED) from None
    except Corrupted as error:
        raise Corrupted(error.message, _DAMAGED) from None
    if record.checked() != record:
        raise Corrupted(f"{what} is damaged: it does not match its checksum", _DAMAGED)
    if record.generation != generation:
        raise Corrupted(
            f"{what} is of generation {record.generation}, and was put there under another name", _DAMAGED
        )
    return record


def _opened(record: Wrapped, user: UserKey, files: Files) -> Ring:
    from cryptography.exceptions import InvalidTag

    if record.opens_with != user.fingerprint:
        raise WrongKey(
            f"the key does not open the repository at {files.location}: its fingerprint is "
            f"{user.fingerprint}, and that of the one that opens it is {record.opens_with}",
            "Give the key that the repository was made with, or the newest one if it was changed since.",
        )
    what = f"the file {_name(record.generation)}"
    try:
        nonce, wrapped = bytes.fromhex(record.nonce), bytes.fromhex(record.wrapped)
        ring = Ring(record.generation, user.wrapping.decrypt(nonce, wrapped, record.bound()))
    except (InvalidTag, ValueError):
        raise Corrupted(f"{what} was changed: the right key does not open it", _DAMAGED) from None
    if ring.id.hex() != record.key_id:
        raise Corrupted(f"{what} does not hold the key that it names", _DAMAGED)
    return ring


def _remove_older(files: Files, generation: int) -> Iterator[str]:
    """Remove what is older than a generation, and yield the names that could not be removed."""
    for number, name, is_whole in list(_listed(files)):
        if number < generation or (number == generation and not is_whole):
            try:
                files.remove(name)
            except StrandlineError:
                yield name  # A bucket may keep what it has. It counts no more in any case.
