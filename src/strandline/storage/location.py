"""Where files are: a folder, or a URL of an object store."""

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
    """Return the files at an absolute path or a URL. They can be pickled, and then work on another machine if
    that reaches the place. ``follows``: symbolic links below a folder are followed."""
    if not isinstance(location, str) or not is_url(location):
        return LocalFiles(location, follows=follows)
    from strandline.storage.objects import ObjectFiles  # It loads what only URLs need.

    return ObjectFiles(location, settings)


def is_inside(place: str, other: str) -> bool:
    """Return whether an absolute path or a URL is another one, or a part of it."""
    inner, outer = (at if is_url(at) else os.path.realpath(at) for at in (place, other))
    return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")
