"""Files on web servers, downloaded to a temporary file.

Import reads files more than once and at random positions, which many servers do not support. The temporary
file is deleted when no ``File`` refers to it any more.
"""

from __future__ import annotations

import http.client
import os
import re
import tempfile
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from strandline.cancellation import check, phase
from strandline.errors import InvalidArgument, Unavailable
from strandline.storage.external.locations import File, bare
from strandline.storage.location import files_at
from strandline.version import VERSION

__all__ = ["download"]

SILENT_SECONDS = 30.0
"""Maximum time without a response from the server."""
_CHUNK = 1 << 20
_FILE = "file"
_INSTEAD = "Or fetch it with another program: curl URL | strandline load TABLE - --format FORMAT."


def download(url: str) -> File:
    """Download the file at a URL to a temporary file."""
    name = bare(url)
    host, _, path = name.partition("://")[2].partition("/")
    if "@" in re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]:
        raise InvalidArgument(f"the address {name} is given with a user or a password", _INSTEAD)
    if not host or not path or "*" in path:
        raise InvalidArgument(
            f"{name} is not the address of one file",
            "Name each file: files on a web server cannot be listed.",
        )
    folder = tempfile.TemporaryDirectory(prefix="strandline-web-")
    try:
        _fetch(url, name, os.path.join(folder.name, _FILE))
    except HTTPError as error:
        raise Unavailable(
            f"{name} cannot be read: the server says {error.code} {error.reason}",
            "Check the address." if error.code in (404, 410) else f"Check address and rights. {_INSTEAD}",
        ) from None
    except http.client.IncompleteRead as error:
        raise Unavailable(f"{name} ended {error.expected} bytes too early", "Try again.") from None
    except TimeoutError:
        raise _silent(name) from None
    except (URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise _silent(name) from None
        said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise Unavailable(f"{name} cannot be read: {said}", f"Check the address. {_INSTEAD}") from None
    return File(name, files_at(folder.name), _FILE, keeps=folder)


def _fetch(url: str, name: str, path: str) -> None:
    # A URL may contain characters that must be percent-encoded.
    asked = Request(quote(url, safe="%/:?#[]@!$&'()*+,;=~"), headers={"User-Agent": f"strandline/{VERSION}"})
    with urlopen(asked, timeout=SILENT_SECONDS) as response, open(path, "wb") as file:
        total, size = int(response.headers.get("Content-Length") or 0), 0
        with phase(f"fetching {name}", total, "bytes") as fetching:
            while chunk := response.read(_CHUNK):
                check()
                size += file.write(chunk)
                fetching.advance(len(chunk))
    if size < total:
        raise http.client.IncompleteRead(b"", total - size)


def _silent(name: str) -> Unavailable:
    return Unavailable(f"{name} cannot be read: no answer for {SILENT_SECONDS:.0f} seconds", _INSTEAD)
