"""Connect to a warehouse: check the folder or URL, and open the catalog."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from strandline.api.database import Database
from strandline.api.new_warehouse import not_a_warehouse
from strandline.api.warehouse_identity import join, read_marker
from strandline.catalog.connection import Catalog
from strandline.catalog.engines import sqlite_url
from strandline.catalog.warehouse_settings import raise_settings, settings_at
from strandline.clock import Clock, SystemClock
from strandline.errors import InvalidArgument, PreconditionFailed, StrandlineError, Unavailable
from strandline.runtime import Runtime
from strandline.settings import Settings
from strandline.storage.files import Files
from strandline.storage.location import SCHEMES, bucket_of, files_at, is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("strandline")

CATALOG_FILE = "catalog.sqlite"


def connect(
    warehouse: str | os.PathLike[str] = "warehouse",
    *,
    catalog: str | None = None,
    spark: SparkSession | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
    create: bool = True,
    adopt: bool = False,
    token: str | None = None,
) -> Database:
    """Open a warehouse; with ``create``, create it if the folder is missing or empty.

    Args:
        warehouse: a folder, or a URL such as ``s3://bucket/folder``. A folder with other files, or inside a
            backup repository, is refused. With ``token``: the URL of a service (``strandline serve``), such
            as ``https://host:8080``.
        catalog: a URL such as ``postgresql+psycopg://user@host/database`` (default: a SQLite file in the
            folder). A catalog belongs to one folder and refuses another one, except with ``adopt``.
        spark: your Spark session (default: the first statement that needs Spark starts one).
        settings: settings of this process.
        clock: the clock (default: the system clock).
        files: access to the files (default: chosen by the kind of location).
        create: create the warehouse if the folder is missing or empty.
        adopt: accept this folder for the catalog of another folder, whose files were moved to this one.
        token: a token of the service. The result is then a ``RemoteDatabase``.
    """
    if token is not None or (isinstance(warehouse, str) and warehouse.startswith(("http://", "https://"))):
        from strandline.api.remote import RemoteDatabase

        # It has the methods of a database that a service offers.
        return cast(Database, RemoteDatabase(str(warehouse), token))
    if settings is not None and not isinstance(settings, Settings):
        raise InvalidArgument(
            f"settings must be Settings, not {type(settings).__name__}", "Pass strandline.Settings(...)."
        )
    where = place_of(warehouse)
    _check_catalog(where, catalog)
    the_clock = clock or SystemClock()
    the_settings = settings or Settings()
    the_files = files or files_at(where, the_settings)
    if not (create or adopt) and read_marker(the_files) is None:
        raise not_a_warehouse(the_files, where, CATALOG_FILE, the_settings)
    with _make_folder(where, the_files):
        opened = Catalog(
            catalog or sqlite_url(Path(where) / CATALOG_FILE), the_clock, the_settings.catalog_wait_seconds
        )
        try:
            join(opened, the_files, where, the_settings, create=create, adopt=adopt)
            held = _agree(opened, the_settings)
        except BaseException:
            opened.close()
            raise
    if spark is not None:
        _let_know(spark)
    database = Database(Runtime(opened, the_files, held, the_clock, spark))
    database._operations.note_orphans()
    return database


def _agree(catalog: Catalog, settings: Settings) -> Settings:
    """Raise stored settings of the warehouse to the requested values; return the effective settings."""
    with catalog.read() as conn:
        present = asdict(settings_at(conn, catalog.clock.now()))
    if any(value > present[name] for name, value in settings.shared.items()):
        try:
            with catalog.write() as tx:
                raised = raise_settings(tx, settings.shared)
        except Unavailable as error:
            log.warning("the settings of the warehouse could not be raised: %s", error.message)
            raised = {}
        for name, value in raised.items():
            log.info("%s of the warehouse is now %g, as requested by this process", name, value)
        present |= raised
    return replace(settings, **present)


def _let_know(spark: SparkSession) -> None:
    """Register ``format("strandline")`` with a session of the caller; log a warning if that fails."""
    from strandline.api.source.register import register_once

    if type(spark).__module__.startswith("pyspark."):
        try:
            register_once(spark)
        except StrandlineError as error:
            log.warning("the format strandline could not be registered with the session: %s", error.message)


def place_of(warehouse: str | os.PathLike[str]) -> str:
    """Return a folder as an absolute path, or an object store URL in normal form; refuse other names."""
    if isinstance(warehouse, str) and is_url(warehouse):
        return bucket_of(warehouse).url
    return str(folder_of(warehouse))


def _check_catalog(where: str, catalog: str | None) -> None:
    scheme, _, rest = catalog.partition("://") if isinstance(catalog, str) else ("", "", "")
    if (
        scheme in SCHEMES
        or (scheme.startswith("sqlite") and "://" in rest)
        or (not catalog and is_url(where))
    ):
        raise PreconditionFailed(
            "a catalog cannot be in an object store, which has no transactions",
            "Use another catalog, such as postgresql+psycopg://user@host/database or "
            "sqlite:////folder/catalog.sqlite (connect(..., catalog=URL), --catalog URL).",
        )


def folder_of(warehouse: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, which may be missing; refuse names that cannot be folders."""
    text = os.fspath(warehouse) if isinstance(warehouse, os.PathLike) else warehouse
    if isinstance(text, str):
        text = _path_of_url(text) if text.startswith("file:") else _in_home(text)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"{warehouse!r} is not a folder name", "Name the folder of the warehouse.")
    try:
        folder = Path(text).absolute()
        (str(folder) + os.path.realpath(folder)).encode()
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise InvalidArgument(f"{folder} is a file, not a folder", "Name the folder of the warehouse.")
    except UnicodeError:
        # The catalog, Arrow and Spark take names as text.
        raise InvalidArgument(
            f"{text!r} is not text in UTF-8", "Choose a folder whose full path is UTF-8."
        ) from None
    except FileNotFoundError as error:
        if error.filename is None:
            raise Unavailable(
                "the current folder has been removed",
                "Change to another one, or name the warehouse by its full path.",
            ) from None
    except NotADirectoryError:
        raise InvalidArgument(
            f"{folder} would be inside a file", "Choose a path without a file in it."
        ) from None
    except OSError as error:
        raise _fault(text, error) from None
    return folder


def _path_of_url(url: str) -> str:
    path = url[len("file:") :]
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidArgument(
                f"{url!r} names no folder of this machine", "Write it as file:///folder, with three slashes."
            )
        path = slash + path
    return unquote(path, errors="surrogateescape")


def _in_home(text: str) -> str:
    try:
        found = os.path.expanduser(text)
    except ValueError:  # The user name has invalid characters.
        found = text
    if found.startswith("~"):
        user = text.split("/", 1)[0]
        raise InvalidArgument(
            f"there is no user for the home folder {user!r}",
            f"Name another folder. If the folder has this name, write ./{user}.",
        )
    return found


def _fault(folder: str, error: OSError) -> StrandlineError:
    if error.errno == errno.ENAMETOOLONG:
        return InvalidArgument(f"the folder name {folder[:40]!r}... is too long", "Choose a shorter one.")
    return Unavailable(
        f"the folder {folder} cannot be used: {error.strerror}",
        "Choose a folder that you may read and write.",
    )


@contextlib.contextmanager
def _make_folder(where: str, files: Files) -> Iterator[None]:
    """Create a folder; remove it again if the block fails and the folder is empty."""
    folder = Path(where)
    missing = (
        [] if is_url(where) else [path for path in (folder, *folder.parents) if not os.path.exists(path)]
    )
    try:
        files.make_root()
    except OSError as error:
        _remove_empty(missing)
        raise _fault(where, error) from None
    try:
        yield
    except BaseException:
        _remove_empty(missing)
        raise


def _remove_empty(folders: Sequence[Path]) -> None:
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()
