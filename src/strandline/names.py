"""Names and paths: valid names, the canonical form of a path, and reserved directories."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

from strandline.errors import InvalidArgument
from strandline.model import RESERVED_PREFIXES

MAX_NAME = 255
BACKUPS = "/.backups"
"""The directory that only backups may use."""
COLLECTIONS = f"{BACKUPS}/collections"
"""The directory of backup collections."""
REPLACED = "/.replaced"
"""The directory for tables that a restore has replaced."""
BIN = "/.bin"
"""The node that keeps dropped paths for ``bin_seconds``. No path of a statement leads to it."""
_NO_NAMES = frozenset({"", ".", ".."})
MARKER = "strandline.json"
"""The file that identifies a warehouse folder."""
REPOSITORY = "repository.json"
"""The file that identifies a backup repository."""
DATA = "data"
"""The folder of a warehouse with the files of its tables."""


def split(path: str) -> tuple[str, ...]:
    """Return the components of a path. A leading slash is optional; the root has no components."""
    if not isinstance(path, str):
        raise InvalidArgument(
            f"a path must be text, not {type(path).__name__}", "Pass a path such as '/dir/table'."
        )
    stripped = path[1:] if path.startswith("/") else path
    if stripped.endswith("/") and stripped != "/":
        stripped = stripped[:-1]
    parts = tuple(stripped.split("/")) if stripped else ()
    if not (_is_plain(stripped) and _NO_NAMES.isdisjoint(parts)):
        for part in parts:
            check_name(part, path)
    return parts


def normalize(path: str) -> str:
    """Return the absolute form of a path: ``dir/t`` and ``/dir/t`` are the same."""
    return join(split(path))


def join(parts: Iterable[str]) -> str:
    return "/" + "/".join(parts)


def above(path: str) -> list[str]:
    """Return the directories above a path from the top, without the root."""
    parts = split(path)
    return [join(parts[:depth]) for depth in range(1, len(parts))]


def _is_plain(text: str) -> bool:
    """Return whether a text is short printable ASCII. Most names are, and need no further checks."""
    return len(text) <= MAX_NAME and text.isascii() and text.isprintable()


def check_text(name: str) -> None:
    """Refuse a name that is not text."""
    if not isinstance(name, str):
        raise InvalidArgument(
            f"a name must be text, not {type(name).__name__}", "Pass a name such as 'orders'."
        )


def check_name(name: str, path: str | None = None) -> None:
    if isinstance(name, str) and _is_plain(name) and "/" not in name and name not in _NO_NAMES:
        return
    check_text(name)
    where = f" in the path {path!r}" if path is not None and path != name else ""
    if not name:
        raise InvalidArgument(f"a name is empty{where}", "Give every component between slashes a name.")
    if name in (".", ".."):
        raise InvalidArgument(
            f"{name!r} is not a name{where}", "Paths are absolute; there are no relative components."
        )
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME:
        raise InvalidArgument(
            f"the name {name[:40]!r}... is longer than {MAX_NAME} bytes", "Choose a shorter name."
        )
    # Printable text has no such characters; checking each one is slower.
    odd = not name.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs") for c in name)
    if odd or "/" in name:
        raise InvalidArgument(
            f"the name {name!r} has a control character or a slash in it", "Leave these characters out."
        )


def collection_name(text: str) -> str:
    """Return the name of a backup collection that is given by its name or by its absolute path.

    A path is ``/.backups/collections/NAME``. A database in front of it, as YDB writes paths, is ignored.
    """
    if "/" in text:
        parts = split(text)
        if len(parts) < 3 or parts[-3:-1] != split(COLLECTIONS):
            raise InvalidArgument(
                f"{text!r} is not the name of a backup collection",
                f"Collections are in {COLLECTIONS}: write the name alone, or {COLLECTIONS}/NAME.",
            )
        text = parts[-1]
    check_name(text)
    return text


def is_backup(path: str) -> bool:
    """Return whether a path is in the directory for backups."""
    return path == BACKUPS or path.startswith(f"{BACKUPS}/")


def check_no_backup(path: str) -> None:
    """Refuse a path for a user's table in the directory for backups."""
    if is_backup(path):
        raise InvalidArgument(
            f"{path} is inside {BACKUPS}, where only backups live", "Choose a path outside it."
        )


def is_replaced(path: str) -> bool:
    """Return whether a path is in the directory for replaced tables."""
    return path == REPLACED or path.startswith(f"{REPLACED}/")


def is_binned(path: str) -> bool:
    """Return whether a path is in the recycle bin."""
    return path == BIN or path.startswith(f"{BIN}/")


def check_place(path: str) -> None:
    """Refuse a path for a user's table in a directory of backups, replaced tables or dropped paths."""
    check_no_backup(path)
    if is_binned(path):
        raise InvalidArgument(
            f"{path} is inside {BIN}, where only dropped paths are kept", "Choose a path outside it."
        )
    if is_replaced(path):
        raise InvalidArgument(
            f"{path} is inside {REPLACED}, where tables are kept that a restore has replaced",
            "These can be read and dropped, and nothing else. Choose a path outside it.",
        )


def quote_spark(name: str) -> str:
    """Return a name in backticks for Spark, where a backslash has no special meaning."""
    return "`" + name.replace("`", "``") + "`"


def check_not_reserved(name: str, what: str) -> None:
    if name.lower().startswith(RESERVED_PREFIXES):
        raise InvalidArgument(
            f"the {what} name {name!r} is reserved",
            f"Names that start with {' or '.join(RESERVED_PREFIXES)} are Strandline's own.",
        )


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the existing name that is most similar to a name, or None."""
    found = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint with the closest existing name, or None."""
    close = closest(name, candidates)
    return f"Did you mean {close!r}?" if close else None


def count(number: int, thing: str, many: str | None = None) -> str:
    """Return a number with its noun, such as ``1 row`` or ``2,000 rows``."""
    return f"{number:,} {thing if number == 1 else many or thing + 's'}"


def with_article(type_: str) -> str:
    """Return the type of a path with an article: ``an index``, ``a backup collection``."""
    return f"{'an' if type_[0] in 'aeiou' else 'a'} {type_.replace('_', ' ')}"


def column(name: str, columns: Sequence[str], path: str) -> str:
    """Return the exact name of a column of the table at ``path``; SQL ignores the case of column names."""
    if name in columns:
        return name
    for candidate in columns:
        if candidate.lower() == name.lower():
            return candidate
    raise InvalidArgument(
        f"{path} has no column {name!r}",
        did_you_mean(name, columns) or f"Its columns are {', '.join(columns)}.",
    )
