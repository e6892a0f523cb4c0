"""Check where a new warehouse may be created.

The folder must be missing or empty, and outside of repositories and of the data of other warehouses. So a
typo in a name never puts files into a foreign folder. In this module "folder" includes URLs of object stores.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from strandline.errors import PathNotFound, PreconditionFailed, StrandlineError
from strandline.names import DATA, MARKER, REPOSITORY, did_you_mean
from strandline.settings import Settings
from strandline.storage.files import Files
from strandline.storage.location import files_at, is_url

_OURS = re.compile(rf"{re.escape(MARKER)}\.[0-9a-f]{{32}}|strandline\.toml|lost\+found")
"""Names that are allowed in the folder: temporary markers left by a crash, configuration, ``lost+found``."""
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal", "-reserve", "-queue")
_IS_REPOSITORY = (
    "It is a backup repository. To restore from it, create a warehouse in another folder, and attach the "
    "repository: ATTACH BACKUP COLLECTION name FROM 'url'."
)
NEIGHBOURS = 1000
"""Maximum number of neighbour folders that are searched for a warehouse to suggest."""


def check_place(files: Files, folder: str, catalog_file: str | None, settings: Settings) -> None:
    """Refuse a folder with foreign files, or inside a repository or the data of another warehouse.

    A process that dies while it creates a warehouse leaves the catalog without a marker. The next process
    completes the creation.

    Args:
        files: access to the folder.
        folder: the name of the folder, for messages.
        catalog_file: the name of the catalog file. None: the catalog is not in the folder.
        settings: settings for access to the folders above.
    """
    own = {f"{catalog_file}{suffix}" for suffix in _SQLITE_SUFFIXES} if catalog_file else set()
    foreign = _foreign_name(files, own)
    if foreign is not None and files.find(MARKER) is None:  # Another process may just have created it.
        raise PreconditionFailed(
            f"{folder} is not a warehouse, and not an empty folder to create one in: it holds {foreign}",
            _IS_REPOSITORY
            if _has(files, REPOSITORY)
            else _suggestion(folder) or "Name the folder of a warehouse, or a new or empty folder.",
        )
    for above, inner in _folders_above(files.location):
        outer = files_at(above, settings)
        if _has(outer, REPOSITORY):
            raise PreconditionFailed(
                f"{folder} lies inside the backup repository {above}", "Choose a folder outside of it."
            )
        if inner == DATA and _has(outer, MARKER):
            raise PreconditionFailed(
                f"{folder} lies among the data files of the warehouse {above}",
                "Choose a folder outside of it.",
            )


def not_a_warehouse(files: Files, folder: str, catalog_file: str, settings: Settings) -> PathNotFound:
    """Build the error of a missing warehouse. The hint tells how to create it, if the folder allows that."""
    try:
        check_place(files, folder, catalog_file, settings)
        create = f"Create it with: strandline init -w {shlex.quote(folder)}"
    except StrandlineError:
        create = "Name the folder of a warehouse, or create one in a new folder with strandline init."
    return PathNotFound(f"{folder} is not a warehouse", " ".join(filter(None, (_suggestion(folder), create))))


def _foreign_name(files: Files, own: Collection[str]) -> str | None:
    """Return the name of a file in the folder that is neither allowed nor in ``own``. None: no such file."""
    names: Iterator[str]
    if is_url(files.location):
        names = files.names()
    else:
        try:
            with os.scandir(files.location) as entries:
                names = iter(sorted(entry.name for entry in entries))
        except OSError:
            return None  # The folder is missing, or the next step reports the error.
    return next((name for name in names if name not in own and not _OURS.fullmatch(name)), None)


def _folders_above(location: str) -> Iterator[tuple[str, str]]:
    """Yield the folders above a location, each with the next name on the path to the location."""
    scheme, mark, path = location.rpartition("://")
    names = path.split("/")
    for number, name in enumerate(names[1:], start=1):
        yield f"{scheme}{mark}{'/'.join(names[:number]) or '/'}", name


def _has(files: Files, name: str) -> bool:
    with suppress(StrandlineError):  # A folder that cannot be read counts as one without the file.
        return files.exists(name)
    return False


def _suggestion(folder: str) -> str | None:
    """Return a hint if a subfolder, or a neighbouring folder with a similar name, is a warehouse."""
    if is_url(folder):
        return None
    here = Path(folder)
    inner = _warehouses(here)
    if len(inner) == 1:
        return f"Did you mean {str(inner[0])!r}?"
    return did_you_mean(here.name, [found.name for found in _warehouses(here.parent)])


def _warehouses(folder: Path) -> list[Path]:
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(NEIGHBOURS), entries, strict=False):
            if os.path.exists(os.path.join(entry.path, MARKER)):
                found.append(Path(entry.path))
    return found
