"""Names of objects in a repository.

Text that was read (a manifest, a trash list, a folder listing, the catalog) becomes an object's name only
through ``ObjectName``, which refuses everything else. So no text leads to a file outside of ``objects/``.
"""

from __future__ import annotations

import re

from strandline import records
from strandline.errors import Corrupted
from strandline.model import object_of

__all__ = ["OBJECTS", "ObjectName", "is_object_or_part", "place_of"]

OBJECTS = "objects"
_FORM = r"objects/([0-9a-f]{2})/(\1[0-9a-f]{30}(?:[0-9a-f]{32})?)(?:-(?:[2-9]|[1-9][0-9]{1,8}))?\.parquet"
_OBJECT = re.compile(_FORM, re.ASCII)
_PART = re.compile(rf"{_FORM}\.[0-9a-f]{{32}}", re.ASCII)


class ObjectName(str):
    """The name of an object. Raises CORRUPTED for a text that does not have the form of such a name.

    The form is ``objects/<first two digits>/<32 or 64 hex digits>.parquet``, optionally with ``-2``, ``-3``,
    ... after the digits.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> ObjectName:
        if _OBJECT.fullmatch(text) is None:
            raise Corrupted(
                f"{text[:120]!r} is not the name of an object in a repository",
                "The file that names it was changed. Restore that file from a copy.",
            )
        return super().__new__(cls, text)

    @property
    def digits(self) -> str:
        """The hex digits that are derived from the content."""
        return self.rpartition("/")[2].partition(".")[0].partition("-")[0]


def is_object_or_part(name: str) -> bool:
    """Return True if a file is an object, or a partly written object that a crashed writer left."""
    return (_OBJECT.fullmatch(name) or _PART.fullmatch(name)) is not None


def place_of(file: str) -> tuple[str, ObjectName]:
    """Return the repository of a segment's file outside the warehouse, and the object's name there.

    Raises CORRUPTED if the object's name has the wrong form, or the repository's path contains ``..``.
    """
    root, _, rest = file.rpartition(f"/{OBJECTS}/")
    name = ObjectName(f"{OBJECTS}/{object_of(rest)}")
    if ".." in root.split("/"):
        raise Corrupted(
            f"{file[:120]!r} leads out of its repository",
            "Drop the collection, and attach its repository again.",
        )
    return root or "/", name


def _read(value: object) -> ObjectName:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not of type str")
    return ObjectName(value)


records.keep(ObjectName, write=str, read=_read)
