"""Check that a folder and a catalog belong to the same warehouse.

The catalog records the location of its warehouse. A marker file in the folder has the id of the warehouse. In
this module "folder" includes URLs of object stores.

- A folder without a marker is accepted for an existing catalog only if the catalog records this location, if
  the catalog is a file in this folder, or with ``adopt``.
- A folder with a matching marker may have been moved, copied or mounted elsewhere. It is accepted if a sample
  of the catalog's files exists in it.
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
    """Open the catalog for an existing folder.

    A folder and a catalog that do not belong together are refused, and both stay unchanged.

    Args:
        catalog: the catalog.
        files: access to the folder.
        folder: the name of the folder, for messages.
        settings: the settings of this process.
        create: create a warehouse if the catalog holds none.
        adopt: accept a folder without a marker for the catalog of another folder.
    """
    marked = read_marker(files)
    here = files.location
    is_embedded, address = catalog.database.is_inside(here), catalog.database.address

    def admit(found: Warehouse | None) -> None:
        if marked is not None and (found is None or marked != found.id):
            raise PreconditionFailed(
                f"the folder {folder} belongs to another catalog: it is the warehouse {marked}, and "
                f"{address} {_holds(found)}",
                "Open it with the catalog URL that it was created with.",
            )
        if found is None:
            if not create:
                raise PreconditionFailed(
                    f"the catalog {address} holds no warehouse",
                    "Create one with strandline init.",
                )
            check_place(files, folder, catalog.database.file_name if is_embedded else None, settings)
            return
        is_recorded = _is_same(found.location, here)
        if is_embedded or (is_recorded and marked is not None):
            return
        if marked is None and not is_recorded and not adopt:
            raise PreconditionFailed(
                f"the folder {folder} is not a warehouse, and the catalog {address} {_holds(found)}",
                "Open that folder, or give this one its own catalog. If the warehouse's files were moved to "
                "this folder, use connect(..., adopt=True) or strandline init --adopt.",
            )
        _check_files(catalog, files, folder, found)

    joined = catalog.open(here, admit, settings.shared)
    if not _is_same(joined.location, here) and not catalog.database.is_read_only:
        with catalog.write() as tx:
            warehouse.move(tx, here)
    if marked is None:
        # Write the marker last. If the process dies before, the next process accepts the folder, because
        # the catalog records its location.
        marker = json.dumps({"format": FORMAT, "warehouse": joined.id}).encode() + b"\n"
        if files.write_if_absent(MARKER, marker):
            log.info("%s is now the folder of the warehouse %s", folder, joined.id)
        marked = read_marker(files)
        admit(joined)  # Another process may have marked the folder for another catalog.


def read_marker(files: Files) -> str | None:
    """Return the id of the warehouse in a folder; None if the folder is not a warehouse."""
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
    address = catalog.database.address
    missing = {name for name in _some_files(catalog) if not files.exists(name)}
    if missing:
        # Check again: the garbage collector removes files from the catalog before it deletes them.
        missing &= _some_files(catalog)
    if missing:
        raise PreconditionFailed(
            f"the catalog {address} {_holds(found)}, but {folder} lacks files of it, such as {min(missing)}",
            "Open the folder with all files, or copy the missing files here first.",
        )


def _some_files(catalog: Catalog) -> set[str]:
    with catalog.read() as conn:
        return warehouse.some_files(conn)


def _holds(found: Warehouse | None) -> str:
    if found is None:
        return "holds no warehouse"
    return f"holds the warehouse {found.id} at {found.location or 'a folder that it has not recorded'}"


def _is_same(location: str | None, here: str) -> bool:
    """Return whether two locations are the same folder.

    Bind mounts and case-insensitive file systems give one folder several paths.
    """
    if location is None or location == here:
        return location == here
    try:
        return os.path.samefile(location, here)
    except OSError:
        return False
