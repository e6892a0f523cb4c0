"""Which folder and which catalog belong together. If the wrong ones came together, each would miss the
other's files. A URL of an object store counts as a folder here.

The catalog records where its warehouse is, and a marker in the folder says which warehouse it is. A folder
without the marker joins a catalog that exists only when the record names this very folder, when the catalog
lies in it, or when it is asked to. A folder with the marker may have been moved, copied or mounted elsewhere:
it is the right one if the files are there.
"""

from __future__ import annotations

import json
import logging
import os

from strandline.api.new_warehouse import check_place
from strandline.catalog import warehouse
from strandline.catalog.connection import Catalog
from strandline.catalog.warehouse import Warehouse
from strandline.errors import Corrupted, PreconditionFailed
from strandline.names import MARKER
from strandline.settings import Settings
from strandline.storage.files import Files

log = logging.getLogger("strandline")

FORMAT = 1


def join(
    catalog: Catalog, files: Files, folder: str, settings: Settings, *, create: bool, adopt: bool
) -> None:
    """Open the catalog for a folder that exists, as the user calls it; refuses those that do not belong
    together, and then changes neither."""
    marked = read_marker(files)
    here = files.location
    is_embedded = catalog.is_inside(here)

    def admit(found: Warehouse | None) -> None:
        if marked is not None and (found is None or marked != found.id):
            raise PreconditionFailed(
                f"the folder {folder} belongs to another catalog: it is the warehouse {marked}, and "
                f"{catalog.address} {_holds(found)}",
                "Open it with the catalog URL that it was created with.",
            )
        if found is None:
            if not create:
                raise PreconditionFailed(
                    f"the catalog {catalog.address} holds no warehouse", "Create one with strandline init."
                )
            check_place(files, folder, catalog.file_name if is_embedded else None, settings)
            return
        is_recorded = _is_same(found.location, here)
        if is_embedded or (is_recorded and marked is not None):
            return
        if marked is None and not is_recorded and not adopt:
            raise PreconditionFailed(
                f"the folder {folder} is not a warehouse, and the catalog {catalog.address} {_holds(found)}",
                "Open that folder, or give this one a catalog of its own. If the warehouse's files are in "
                "this folder now, say so with"
                " connect(..., adopt=True) or strandline init --adopt.",
            )
        _check_files(catalog, files, folder, found)

    joined = catalog.open(here, admit, settings.shared)
    if not _is_same(joined.location, here) and not catalog.is_read_only:
        with catalog.write() as tx:
            warehouse.move(tx, here)
    if marked is None:
        # After the catalog: if we die here, its record lets this folder in again.
        marker = json.dumps({"format": FORMAT, "warehouse": joined.id}).encode() + b"\n"
        if files.write_if_absent(MARKER, marker):
            log.info("%s is now the folder of the warehouse %s", folder, joined.id)
        marked = read_marker(files)
        admit(joined)  # Another process may have made it the warehouse of another catalog.


def read_marker(files: Files) -> str | None:
    """Return the id of the warehouse that a folder is; None if it is none."""
    text = files.find(MARKER)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("format"), int)
        or not isinstance(found.get("warehouse"), str)
    ):
        raise Corrupted(
            f"the file {MARKER} in {files.location} is damaged", "Restore it from a copy of the warehouse."
        )
    if found["format"] > FORMAT:
        raise PreconditionFailed(
            f"the warehouse has format {found['format']}, this version of Strandline knows {FORMAT}",
            "Install a newer Strandline.",
        )
    return str(found["warehouse"])


def _check_files(catalog: Catalog, files: Files, folder: str, found: Warehouse) -> None:
    missing = {name for name in _some_files(catalog) if not files.exists(name)}
    if missing:
        missing &= _some_files(
            catalog
        )  # A file may have been collected just now; the catalog forgets it before that.
    if missing:
        raise PreconditionFailed(
            f"the catalog {catalog.address} {_holds(found)}, and {folder} lacks files of it, such as "
            f"{min(missing)}",
            "Open the folder that holds them, or bring all of them here first.",
        )


def _some_files(catalog: Catalog) -> set[str]:
    with catalog.read() as conn:
        return warehouse.some_files(conn)


def _holds(found: Warehouse | None) -> str:
    if found is None:
        return "holds no warehouse"
    return f"holds the warehouse {found.id} at {found.location or 'a folder that it has not recorded'}"


def _is_same(location: str | None, here: str) -> bool:
    """One folder may have two real paths: a bind mount, a file system that ignores case."""
    if location is None or location == here:
        return location == here
    try:
        return os.path.samefile(location, here)
    except OSError:
        return False
