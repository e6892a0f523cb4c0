"""What a repository says about itself, and how it is opened.

``repository.json`` lies open also where all else is encrypted: it says whether a key is needed. A text in a
repository ends with a checksum of all that is before it, so that a byte that has changed is found whatever it
means.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline import records
from strandline.errors import Corrupted
from strandline.records import R, Record, later
from strandline.settings import Settings
from strandline.storage.digest import checksum_of
from strandline.storage.files import Files

__all__ = ["MARKER", "Marker", "from_bytes", "opened", "plain", "read_marker", "to_bytes"]

MARKER = "repository.json"
_END = ', "checksum": "'


@dataclass(frozen=True, kw_only=True)
class Marker(Record):
    """What a repository is. ``engine``: the version that made it."""

    id: str
    created: float
    engine: str
    encrypted: bool = later(False)


def to_bytes(record: Record) -> bytes:
    """Return the text of a record with its checksum at the end."""
    body = records.to_text(record)[:-1]
    return f'{body}{_END}{checksum_of(body.encode())}"}}\n'.encode()


def from_bytes(kind: type[R], data: bytes, what: str) -> R:
    """Return the record that a text of a repository holds; CORRUPTED if a byte of it has changed."""
    body, mark, _ = data.rpartition(_END.encode())
    if not mark or data != f'{body.decode(errors="replace")}{_END}{checksum_of(body)}"}}\n'.encode():
        raise Corrupted(
            f"{what} does not have the checksum at its end that belongs to it",
            "It was cut or changed. Bring it back from a copy of the repository.",
        )
    return records.from_text(kind, body.decode() + "}", what)


def read_marker(files: Files) -> Marker | None:
    """Return what is there; None if it is no repository."""
    data = files.find(MARKER)
    return None if data is None else from_bytes(Marker, data, f"the file {MARKER} of {files.location}")


def opened(files: Files, settings: Settings) -> tuple[Files, bool]:
    """Return the files of a repository as their content is to be read, and whether there is a repository."""
    marker = read_marker(files)
    if marker is None or not marker.encrypted:
        return files, marker is not None
    # What encryption needs is loaded by those who need it.
    from strandline.storage.keyring import open_ring
    from strandline.storage.sealed import SealedFiles
    from strandline.storage.user_key import user_key

    return SealedFiles(files, open_ring(files, user_key(settings))), True


def plain(files: Files) -> Files:
    """Return the files of a repository as they lie there."""
    from strandline.storage.sealed import SealedFiles

    return files.plain if isinstance(files, SealedFiles) else files
