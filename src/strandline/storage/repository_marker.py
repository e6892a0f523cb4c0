"""The repository's marker ``repository.json``, and opening a repository.

The marker is not encrypted, even in an encrypted repository: it says whether a key is needed. Each text file
of a repository ends with a checksum of all text before it, so that every changed byte is detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline import records
from strandline.errors import Corrupted, PreconditionFailed
from strandline.names import REPOSITORY as MARKER
from strandline.records import R, Record, later
from strandline.settings import Settings
from strandline.storage.digest import checksum_of
from strandline.storage.files import Files

if TYPE_CHECKING:
    from strandline.storage.keyring import Ring

__all__ = [
    "MARKER",
    "Expected",
    "Marker",
    "NotExpected",
    "from_bytes",
    "open_repository_files",
    "plain",
    "read_marker",
    "text_of",
    "to_bytes",
]

_END = ', "checksum": "'


@dataclass(frozen=True, kw_only=True)
class Marker(Record):
    """Content of the marker.

    Args:
        id: the id of the repository.
        created: the time of creation, in seconds since 1970.
        engine: the version of Strandline that created the repository.
        encrypted: whether the repository is encrypted.
    """

    id: str
    created: float
    engine: str
    encrypted: bool = later(False)


def to_bytes(record: Record) -> bytes:
    """Return the text of a record, with its checksum at the end."""
    body = records.to_text(record)[:-1]
    return f'{body}{_END}{checksum_of(body.encode())}"}}\n'.encode()


def from_bytes(kind: type[R], data: bytes, what: str) -> R:
    """Parse a text file of a repository; raise CORRUPTED if its checksum does not match."""
    return records.from_text(kind, text_of(data, what), what)


def text_of(data: bytes, what: str) -> str:
    """Return the text without its checksum; raise CORRUPTED if the checksum does not match."""
    body, mark, _ = data.rpartition(_END.encode())
    if not mark or data != f'{body.decode(errors="replace")}{_END}{checksum_of(body)}"}}\n'.encode():
        raise Corrupted(
            f"{what} does not match the checksum at its end",
            "It was truncated or changed. Restore it from a copy of the repository.",
        )
    try:
        return body.decode() + "}"
    except UnicodeDecodeError:
        raise Corrupted(f"{what} is not text in UTF-8", "Restore it from a copy of the repository.") from None


def read_marker(files: Files) -> Marker | None:
    """Return the marker; None if the place is not a repository."""
    data = files.find(MARKER)
    return None if data is None else from_bytes(Marker, data, f"the file {MARKER} of {files.location}")


class NotExpected(PreconditionFailed):
    """Error: the repository at a location has another id or another encryption than expected."""


@dataclass(frozen=True)
class Expected:
    """Properties of a repository that are known before it is opened.

    The marker itself proves nothing: an attacker with write access could have replaced it.

    Args:
        encrypted: whether the repository is encrypted. None: unknown. If it is unknown to the catalog and to
            the caller, and the settings have a key for repositories, an unencrypted repository is refused.
        id: the id of the repository. None: unknown.
    """

    encrypted: bool | None = None
    id: str | None = None


def _check(marker: Marker, place: str, settings: Settings, expected: Sequence[Expected]) -> None:
    """Raise NotExpected if the repository at ``place`` contradicts one of ``expected``."""
    for each in expected:
        if each.id not in (None, marker.id):
            raise NotExpected(
                f"the repository at {place} has the id {marker.id}, but {each.id} was expected",
                "Another repository is in its place: find out why. To use it anyway, drop the collection, "
                "which does not change repositories, and attach the repository by its own id.",
            )
        if each.encrypted not in (None, marker.encrypted):
            is_, wanted = ("", "not ") if marker.encrypted else ("not ", "")
            raise NotExpected(
                f"the repository at {place} is {is_}encrypted, and it is expected {wanted}to be",
                "Find out whether another repository was put in its place. If it is the right one, set "
                "ENCRYPTION to what it is: in ATTACH and COPY BACKUP, or of its collection.",
            )
    is_said = any(each.encrypted is not None for each in expected)
    if settings.has_repository_key and not marker.encrypted and not is_said:
        raise NotExpected(
            f"the repository at {place} is not encrypted, and a key for repositories is configured",
            "A forged one may be in its place. If it is not meant to be encrypted, say so: WITH "
            "(ENCRYPTION = 'false'), or --no-encryption.",
        )


def open_repository_files(files: Files, settings: Settings, *expected: Expected) -> tuple[Files, bool]:
    """Return the files of a repository, decrypted if needed, and whether the repository exists.

    Raises NotExpected if the repository contradicts one of ``expected``.
    """
    marker = read_marker(files)
    if marker is not None:
        _check(marker, files.location, settings, expected)
    if marker is None or not marker.encrypted:
        return files, marker is not None
    # Imported late: only encrypted repositories need these libraries.
    from strandline.storage.encrypted_files import EncryptedFiles
    from strandline.storage.keyring import open_ring
    from strandline.storage.user_key import user_key

    def open_keys() -> Ring:
        return open_ring(files, user_key(settings))

    return EncryptedFiles(files, open_keys(), open_keys), True


def plain(files: Files) -> Files:
    """Return the files of a repository without decryption."""
    from strandline.storage.encrypted_files import EncryptedFiles

    return files.plain if isinstance(files, EncryptedFiles) else files
