"""Find external files: paths, patterns, folders, URLs, pipes and stdin."""

from __future__ import annotations

import glob
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import Corrupted, InvalidArgument, Unavailable, Unsupported
from strandline.settings import Settings
from strandline.storage.files import Files, LocalFiles
from strandline.storage.location import SCHEMES, files_at, is_url

if TYPE_CHECKING:
    from strandline.storage.objects import ObjectFiles

__all__ = [
    "MANIFEST",
    "File",
    "NoFile",
    "bare",
    "endings",
    "find",
    "is_folder",
    "is_web",
    "place_of",
    "read_failures",
]


class NoFile(Unavailable):
    """A file that the caller named does not exist."""


PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
STDIN = "-"
MANIFEST = "_manifest.json"
"""Name of the file that lists the files of an export in an object store."""


def is_web(place: str) -> bool:
    """Return True for the URL of a file on a web server."""
    return place.lower().startswith(("http://", "https://"))


def bare(url: str) -> str:
    """Return a URL without user, query and fragment, which may be secret."""
    scheme, _, rest = url.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


@dataclass(frozen=True)
class File:
    """An external file.

    Args:
        name: the name that the user gave.
        keeps: an object that must live as long as the file is read.
        start: position of the first byte to read. 0 unless the file is read in parts.
        end: position after the last byte to read. None: the end of the file.
        lines: number of lines before ``start``.
    """

    name: str
    files: Files
    at: str
    _: KW_ONLY
    keeps: object = None
    start: int = 0
    end: int | None = None
    lines: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "keeps": None}

    @property
    def codec(self) -> str | None:
        """The compression, chosen by the extension of the name. None: not compressed."""
        return PACKED.get(os.path.splitext(self.name)[1].lower())

    def open(self) -> pa.NativeFile:
        """Open the content as a stream, decompressed if the name has the extension of a compressed file."""
        with read_failures(self.name):
            raw = self.whole()
            if self.codec is not None:
                return pa.CompressedInputStream(raw, self.codec)
            if self.end is None:
                return raw
            return pa.PythonFile(_Between(raw, self.start, self.end), mode="r")

    def whole(self) -> pa.NativeFile:
        """Open the content for random access, without decompression."""
        with read_failures(self.name):
            readable: Any = self.files.readable(self.at)
            return (
                pa.OSFile(readable, "rb") if isinstance(readable, str) else pa.PythonFile(readable, mode="r")
            )

    @property
    def size(self) -> int:
        with read_failures(self.name):
            return self.files.size(self.at)


class _Between(io.RawIOBase):
    """The bytes of a stream between two positions."""

    def __init__(self, stream: pa.NativeFile, start: int, end: int) -> None:
        self._stream = stream
        self._left = end - start
        stream.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


@contextmanager
def read_failures(name: str) -> Iterator[None]:
    """Translate errors into Unavailable, because CORRUPTED means damage of the warehouse or a repository."""
    try:
        yield
    except Corrupted:
        raise NoFile(f"there is no file {name}", "Check its name.") from None
    except OSError as error:
        raise Unavailable(
            f"the file {name} cannot be read: {error.strerror or error}",
            "Check its name, its permissions, and that it is complete.",
        ) from None


def endings(name: str) -> str:
    """Return the extension of a name, in lower case.

    The extension of a compression does not count: for ``a.csv.gz`` the result is ``.csv``.
    """
    stem, ending = os.path.splitext(name.rstrip("/"))
    return os.path.splitext(stem)[1].lower() if ending.lower() in PACKED else ending.lower()


def place_of(location: str, settings: Settings) -> tuple[LocalFiles | ObjectFiles, str]:
    """Return the store of a path or a URL, and the name of the file or folder in this store."""
    if "\0" in location:
        raise InvalidArgument("a place has the character NUL in its name", "Leave it out.")
    if not is_url(location):
        path = os.path.abspath(os.path.expanduser(location.removeprefix("file://")))
        return files_at(os.path.dirname(path), settings, follows=True), os.path.basename(path)
    scheme, _, rest = location.partition("://")
    if scheme not in SCHEMES:
        raise InvalidArgument(
            f"{scheme}:// is not a supported kind of location",
            f"Name a file or a folder, or a URL that begins with {'://, '.join(SCHEMES)}://.",
        )
    if re.search(r"[?#].*=", rest) or "@" in rest.partition("/")[0]:
        raise InvalidArgument(
            f"a {scheme}:// URL may contain only a bucket and a path, and this one has more",
            "Remove user, password and query; put credentials into the environment or into "
            "Settings.storage_options.",
        )
    parent, _, name = rest.rstrip("/").rpartition("/")
    if not parent:
        raise InvalidArgument(
            f"{location} names a bucket and no file in it", "Name a file or a folder in it."
        )
    return files_at(f"{scheme}://{parent}", settings), name


def is_folder(location: str, settings: Settings, inside: str = "") -> bool:
    """Return True if a location is a folder with an entry whose name starts with ``inside``."""
    files, name = place_of(location, settings)
    with read_failures(location):
        return next(iter(files.names(f"{name}/{inside}".rstrip("/"))), None) is not None


def find(places: Sequence[str], settings: Settings) -> list[File]:
    """Return the files that paths, patterns, folders, URLs and ``-`` denote, in the order of the places."""
    return [file for place in places for file in _at(place, settings)]


def _at(place: str, settings: Settings) -> list[File]:
    if place == STDIN:
        return [_stdin()]
    if is_web(place):
        from strandline.storage.external.web import download  # Imported late: only few imports need it.

        return [download(place)]
    if any(sign in place for sign in "*?[") and not (not is_url(place) and os.path.exists(place)):
        return _match(place, settings)
    if _passes_by(place):
        with read_failures(place), open(place, "rb") as coming:
            return [_spool(place, coming)]
    files, name = place_of(place, settings)
    with read_failures(place):
        if files.exists(name):
            return [File(place, files, name)]
        below = _exported_files(files, name) or sorted(
            n for n in files.names(name) if not _is_hidden(n.removeprefix(name))
        )
    if not below:
        raise NoFile(f"there is no file {place}", "Check its name.")
    if parted := [n for n in below if "=" in os.path.dirname(n.removeprefix(name))]:
        raise Unsupported(
            f"{place} has folders whose names hold values, such as {os.path.dirname(parted[0])}",
            "Read it with Spark, and give the DataFrame to db.table(...).upsert.",
        )
    return [File(f"{place.rstrip('/')}{n.removeprefix(name)}", files, n) for n in below]


def _exported_files(files: Files, name: str) -> list[str]:
    """Return the files that an export's manifest lists. A failed export may have left other files."""
    try:
        said = json.loads(files.find(f"{name}/{MANIFEST}") or b"{}")
    except ValueError:
        return []
    named = said.get("files") if isinstance(said, dict) else None
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        return []
    return [f"{name}/{each}" for each in named]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(("_", ".")) for part in name.split("/") if part)


def _match(pattern: str, settings: Settings) -> list[File]:
    if not is_url(pattern):
        found = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
        files = [File(name, *place_of(name, settings)) for name in found if os.path.isfile(name)]
    else:
        fixed = pattern[: min(pattern.index(sign) for sign in "*?[" if sign in pattern)].rpartition("/")[0]
        place, folder = place_of(f"{fixed}/-", settings)[0], fixed
        rest = pattern.removeprefix(f"{folder}/")
        with read_failures(pattern):
            names = sorted(
                n for n in place.names() if fnmatchcase(n, rest) and n.count("/") == rest.count("/")
            )
        files = [File(f"{folder}/{n}", place, n) for n in names]
    if not files:
        raise Unavailable(f"no file matches {pattern}", "Check the pattern.")
    return files


def _stdin() -> File:
    return _spool("stdin", sys.stdin.buffer)


def _passes_by(place: str) -> bool:
    """Return True if the place is a pipe (``<(command)`` of a shell) or a device (``/dev/stdin``)."""
    try:
        mode = os.stat(place).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _spool(name: str, coming: IO[bytes]) -> File:
    """Copy a stream to a temporary file, because import reads files more than once."""
    folder = tempfile.TemporaryDirectory(prefix="strandline-stream-")
    with open(os.path.join(folder.name, "stream"), "wb") as file:
        shutil.copyfileobj(coming, file)
    return File(name, files_at(folder.name), "stream", keeps=folder)
