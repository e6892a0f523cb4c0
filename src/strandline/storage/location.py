"""Choose the file implementation for a location: a folder or the URL of an object store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from strandline.settings import Settings
from strandline.storage.bucket import SCHEMES, bucket_of, is_url
from strandline.storage.files import LocalFiles

if TYPE_CHECKING:
    from strandline.storage.objects import ObjectFiles

__all__ = ["SCHEMES", "bucket_of", "files_at", "is_inside", "is_url"]


def files_at(
    location: str | os.PathLike[str], settings: Settings | None = None, *, follows: bool = False
) -> LocalFiles | ObjectFiles:
    """Return the files at an absolute path or a URL. The result can be pickled for use on another machine.

    Args:
        location: the absolute path or the URL.
        settings: the settings for a URL. None: the defaults.
        follows: follow symbolic links below a folder.
    """
    if not isinstance(location, str) or not is_url(location):
        return LocalFiles(location, follows=follows)
    # Imported late: it loads libraries that only URLs need.
    from strandline.storage.objects import ObjectFiles

    return ObjectFiles(location, settings)


def is_inside(place: str, other: str) -> bool:
    """Return True if a location (absolute path or URL) equals another one or is inside it."""
    inner, outer = (at if is_url(at) else os.path.realpath(at) for at in (place, other))
    return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")
