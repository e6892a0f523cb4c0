"""The way to a warehouse: its folder, its catalog, and the marker that says that the two belong together."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.catalog.engine import Catalog, sqlite_url
from strandline.clock import Clock, SystemClock
from strandline.database.database import Database
from strandline.errors import Corrupted, InvalidArgument, PreconditionFailed, Unavailable
from strandline.operations.context import Context
from strandline.settings import Settings
from strandline.storage.files import Files, LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKER = "strandline.json"
CATALOG_FILE = "catalog.sqlite"
FORMAT = 1


def connect(
    warehouse: str | os.PathLike[str] = "warehouse",
    *,
    catalog: str | None = None,
    spark: SparkSession | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
    create: bool = True,
) -> Database:
    """Open a warehouse; with ``create``, make it if it is not there.

    ``warehouse`` is a folder. ``catalog`` is a URL such as ``postgresql+psycopg://user@host/database``; without it the catalog is a SQLite
    file in the folder. ``spark`` is a session of yours; without it one is started by the first statement that needs Spark."""
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidArgument(f"settings must be Settings, not {type(settings).__name__}", "Pass strandline.Settings(...).")
    folder = _folder(warehouse)
    if not create and not (folder / MARKER).exists():
        raise Unavailable(f"{folder} is not a warehouse", "Create one with strandline init, or name another folder.")
    the_clock = clock or SystemClock()
    the_settings = settings or Settings()
    with _made(folder):
        opened = Catalog(catalog or sqlite_url(folder / CATALOG_FILE), the_clock, the_settings.catalog_wait_seconds)
        try:
            _check_marker(folder, opened.open())
        except BaseException:
            opened.close()
            raise
    return Database(Context(opened, files or LocalFiles(str(folder)), the_settings, the_clock, spark))


def _folder(warehouse: str | os.PathLike[str]) -> Path:
    text = os.fspath(warehouse) if isinstance(warehouse, os.PathLike) else warehouse
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"{text!r} is not a folder name", "Name the folder of the warehouse.")
    if text.startswith("file://"):
        text = text[len("file://") :]
    elif "://" in text:
        raise InvalidArgument(f"a warehouse cannot live at {text!r} yet", "Use a folder on a disk or a mounted file system.")
    folder = Path(text).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is a file, not a folder", "Name the folder of the warehouse.")
    return folder


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder, and take it away again if the block fails and has put nothing into it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_empty(missing)
        raise Unavailable(f"the warehouse {folder} cannot be created: {error.strerror}", "Choose a folder that you may write to.") from None
    try:
        yield
    except BaseException:
        _remove_empty(missing)
        raise


def _remove_empty(folders: Sequence[Path]) -> None:
    with contextlib.suppress(OSError):
        for path in folders:
            path.rmdir()


def _check_marker(folder: Path, warehouse_id: str) -> None:
    """A folder and a catalog that do not belong together would mix two warehouses' files."""
    marker = folder / MARKER
    try:
        if not marker.exists():
            temporary = marker.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps({"format": FORMAT, "warehouse": warehouse_id}) + "\n")
            os.replace(temporary, marker)
        found = json.loads(marker.read_text())
    except (OSError, ValueError) as error:
        raise Unavailable(f"the file {marker} cannot be used: {error}", "Check the folder's rights and free space.") from None
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise Corrupted(f"the file {marker} is damaged", "Restore it from a copy of the warehouse.")
    if found["format"] > FORMAT:
        raise PreconditionFailed(
            f"the warehouse has format {found['format']}, this version of Strandline knows {FORMAT}", "Install a newer Strandline."
        )
    if found.get("warehouse") != warehouse_id:
        raise PreconditionFailed(
            f"the folder {folder} belongs to another catalog", "Open it with the catalog URL that it was created with."
        )
