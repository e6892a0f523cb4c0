"""Checks of a manifest before it is used.

Anyone who can write to a repository can write a manifest with a valid checksum. ``check_manifest`` is called
where manifests are read (``Repository.manifest_at``) and nowhere else. It refuses a manifest that Strandline
would not have written: names of another form, numbers out of range, a description that contradicts itself.
``docs/repository.md`` lists the rules. Properties that need the objects are checked when these are read
(``storage/bounds.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite

from strandline import names
from strandline.backups.collection import (
    MINIMUM,
    PROVED_WITHIN,
    RETENTION,
    RPO,
    CollectionSettings,
    check_value,
)
from strandline.backups.record import (
    BackupRecord,
    IndexRecord,
    SliceRecord,
    TableRecord,
    check_sum,
    is_backup_name,
    is_stream_name,
    time_of,
)
from strandline.backups.repository.manifest import Contents, Manifest, ObjectRecord
from strandline.catalog import paths
from strandline.errors import Corrupted, InvalidArgument
from strandline.model import Column, Digest, IndexDef, Key, TableSchema, order
from strandline.storage.feed import FORMATS, MODES
from strandline.storage.file_router import digits_of
from strandline.storage.files import PREFIX, Files
from strandline.types import coerce

MOST = 2**53
"""Maximum of steps, row counts and sizes. All JSON readers support whole numbers up to this."""
LAST_YEAR = 2999
"""Maximum year in a backup name: the next backup must still get a name with a later time."""
VERSIONS_PER_STEP = 1024
"""Maximum growth of a path's version per step. Each change of the path's description adds one."""
_CHECKSUM = re.compile(rf"{PREFIX}[0-9a-f]{{32}}", re.ASCII)
_SUFFIX = re.compile(r"~[0-9]{1,10}$", re.ASCII)
_HINT = "Bring back the right manifest from a copy of the repository, or restore another backup."


def check_manifest(manifest: Manifest, files: Files, what: str) -> None:
    """Refuse a manifest that Strandline cannot have written.

    Args:
        files: Files of its repository.
        what: Name of the manifest in the error.
    """
    try:
        _check_collection(manifest)
        _check_backup(manifest.backup)
        _check_tables(manifest)
        _check_names_of_objects(manifest, files)
    except InvalidArgument as error:
        raise Corrupted(f"{what} cannot be true: {error.message}", _HINT) from error


def _refuse(reason: str) -> None:
    raise InvalidArgument(reason)


def _require(is_right: bool, reason: str) -> None:
    if not is_right:
        _refuse(reason)


def _require_range(what: str, value: int, least: int = 0, most: int = MOST) -> None:
    if not least <= value <= most:
        _refuse(f"{what} is {value if abs(value) <= 2**64 else 'a number'} and not from {least} to {most}")


# --- the collection and the backup -------------------------------------------------------------------------


def _check_collection(manifest: Manifest) -> None:
    names.check_name(manifest.collection)
    names.check_not_reserved(manifest.collection, "collection")
    for text in (manifest.engine, manifest.warehouse):
        names.check_name(text)
    for path in manifest.tables or ():
        _check_path(path)
    _require_unique("the collection names a table", manifest.tables or ())
    _check_settings(manifest.settings)


def _check_settings(settings: CollectionSettings) -> None:
    given = {
        MINIMUM: (settings.minimum, settings.max_chain),
        RETENTION: (settings.retention,),
        RPO: (settings.rpo,),
        PROVED_WITHIN: (settings.proved_within,),
    }
    for name, values in given.items():
        for value in values:
            if value is not None:
                check_value(name, value)


def _check_backup(backup: BackupRecord) -> None:
    _require(backup == backup.for_a_repository(), "it sets fields that only a catalog may set")
    _require_name(backup.name)
    _require_range("the step", backup.step, 1)
    _require(isfinite(backup.time) and 0 <= backup.time <= MOST, f"it was taken at the time {backup.time}")
    if backup.stream is not None:
        _require(is_stream_name(backup.stream), f"{backup.stream[:80]!r} is not the name of its streams")
    was_increment = backup.name.endswith("_incremental")
    _require(
        was_increment == (backup.kind == "incremental" or backup.synthetic)
        and not (backup.synthetic and backup.kind != "full"),
        f"{backup.name} is not the name of such a backup",
    )
    for name in backup.merged:
        _require_name(name)
    _require(
        all(a < b for a, b in pairwise((*backup.merged, backup.name)))
        and (was_increment or not backup.merged),
        "the backups merged into it are not earlier increments",
    )
    if backup.kind == "full":
        _require(
            backup.parent is None and backup.after_step == 0, "it is a full backup, but builds on another one"
        )
        return
    if backup.parent is None:
        raise InvalidArgument("it is an increment, but builds on no backup")
    _require_name(backup.parent)
    # Backup names sort by time, so this check also ensures that no backup is its own ancestor.
    first = min((*backup.merged, backup.name))
    _require(backup.parent < first, f"it builds on {backup.parent}, which is not earlier")
    _require(
        0 < backup.after_step < backup.step,
        f"it begins after step {backup.after_step} and ends at {backup.step}",
    )


def _require_name(name: str) -> None:
    if not is_backup_name(name):
        _refuse(f"{name[:80]!r} is not the name of a backup")
    _require(time_of(name).year <= LAST_YEAR, f"{name} is named after a year later than {LAST_YEAR}")


# --- tables ------------------------------------------------------------------------------------------------


def _check_path(path: str) -> None:
    _require(names.normalize(path) == path and path != "/", f"{path[:80]!r} is not the path of a table")
    names.check_place(path)
    for component in names.split(path):
        paths.check_own_name(component, "table")


def _require_unique(what: str, found: Iterable[str]) -> None:
    listed = list(found)
    _require(len(set(listed)) == len(listed), f"{what} twice")


def _check_tables(manifest: Manifest) -> None:
    tables, contents = manifest.backup.tables, manifest.contents
    _require(tables.keys() == contents.keys(), "its contents are not those of its tables")
    for path, table in tables.items():
        _check_path(path)
        above = next((each for each in names.above(path) if each in tables), None)
        _require(above is None, f"the table {path} is below the table {above}")
        _check_table(manifest.backup, path, table, contents[path])
    _check_same_objects(manifest)


def _check_table(backup: BackupRecord, path: str, table: TableRecord, contents: Contents) -> None:
    _check_schema(path, table.schema)
    if table.was is not None:
        _check_path(table.was)
        _require(backup.kind == "incremental", f"{path} is in a full backup, but has a former name")
    _require_unique(f"{path} has an index", (index.definition.name for index in table.indexes))
    own = [index.definition.name for index in table.indexes] + [feed.name for feed in table.changefeeds]
    _require_unique(f"{path} has an index or a changefeed", own)
    for feed in table.changefeeds:
        paths.check_own_name(feed.name, "changefeed")
        _require(
            feed.mode in MODES and feed.format in FORMATS,
            f"the changefeed {feed.name} of {path} has an unknown mode or format",
        )
    _check_slice(backup, path, table.schema, table.slice, contents.table)
    with_data = {index.definition.name for index in table.indexes if index.slice is not None}
    _require(contents.indexes.keys() == with_data, f"the contents of {path} are not those of its indexes")
    for index in table.indexes:
        _check_index(table.schema, path, index)
        if index.slice is not None:
            schema = index.definition.impl_schema(table.schema)
            name = index.definition.name
            _check_slice(backup, f"{path}/{name}", schema, index.slice, contents.indexes[name])
        _check_version(backup, f"{path}/{index.definition.name}", index.version)


def _check_schema(path: str, schema: TableSchema) -> None:
    _require(bool(schema.columns) and bool(schema.key), f"{path} has no columns or no primary key")
    for column in schema.columns:
        _check_column(schema, column)
    _require_unique(f"{path} has a column", (c.name.lower() for c in schema.columns))
    _require_unique(f"{path} has a physical column", (c.physical.lower() for c in schema.columns))
    _require(
        len({c.id for c in schema.columns}) == len(schema.columns), f"two columns of {path} have the same id"
    )
    # A table that has used few physical column names cannot have used many column ids.
    _require_range(f"the next column id of {path}", schema.next_id, 1, 2 * len(schema.used) + 16)
    _require_unique(f"the key of {path} has a column", schema.key)
    for name in schema.key:
        _require(
            name in schema and schema[name].type.orderable, f"{name[:80]!r} cannot be in the key of {path}"
        )
    for bound in schema.bounds:
        _check_key(schema, bound, f"a bound of {path}", is_prefix=True)
    if any(not order(low) < order(high) for low, high in pairwise(schema.bounds)):
        _refuse(f"the bounds of {path} do not ascend")


def _check_column(schema: TableSchema, column: Column) -> None:
    names.check_name(column.name)
    names.check_not_reserved(column.name, "column")
    _check_physical(column.physical)
    _require_range("the id of a column", column.id, 1, max(1, schema.next_id - 1))
    _require(
        column.physical.lower() in schema.used, f"the physical column {column.physical!r} was never given out"
    )


def _check_physical(name: str) -> None:
    names.check_name(_SUFFIX.sub("", name) or name)
    names.check_not_reserved(name, "physical column")


def _check_index(table: TableSchema, path: str, index: IndexRecord) -> None:
    definition = index.definition
    paths.check_own_name(definition.name, "index")
    _require(
        (index.holds == "data") == (index.slice is not None),
        f"{path}/{definition.name} contradicts its slice",
    )
    _require(not definition.unique or definition.is_sync, f"{path}/{definition.name} cannot be unique")
    _require(bool(definition.columns), f"{path}/{definition.name} has no columns")
    for group in (definition.columns, definition.cover):
        _require_unique(f"{path}/{definition.name} names a column", group)
        for name in group:
            _require(
                name in table,
                f"{path}/{definition.name} names the column {name[:80]!r}, which {path} does not have",
            )
    for name in definition.columns:
        _require(table[name].type.orderable, f"{name!r} cannot be in the key of {path}/{definition.name}")
    _check_stored(table, path, definition)


def _check_stored(table: TableSchema, path: str, definition: IndexDef) -> None:
    _require_unique(
        f"{path}/{definition.name} lists how a column is stored", (n for n, _ in definition.stored)
    )
    for _, physical in definition.stored:
        _check_physical(physical)
    impl = definition.impl_schema(table)
    _require(
        all(n in impl for n, _ in definition.stored),
        f"{path}/{definition.name} stores a column that it does not have",
    )
    _require_unique(
        f"{path}/{definition.name} has a physical column", (c.physical.lower() for c in impl.columns)
    )


# --- slices and objects ------------------------------------------------------------------------------------


def _check_version(backup: BackupRecord, path: str, version: int) -> None:
    _require_range(f"the version of {path}", version, 1, VERSIONS_PER_STEP * (backup.step + 1))


def _check_slice(
    backup: BackupRecord, path: str, schema: TableSchema, slice_: SliceRecord, objects: Sequence[ObjectRecord]
) -> None:
    for what, value in (
        ("source", slice_.source_id),
        ("target", slice_.target_id),
        ("source", slice_.continues),
    ):
        if value is not None:
            _require_range(f"the id of the {what} of {path}", value)
    _check_version(backup, path, slice_.version)
    for what, value in (("rows", slice_.rows), ("bytes", slice_.bytes)):
        _require_range(f"the number of {what} of {path}", value)
    _require_range(f"the number of tombstones of {path}", slice_.tombstones, 0, slice_.rows)
    for digest in (slice_.before, slice_.after):
        _require_range(f"the number of rows of {path}", digest.rows)
    _require(not slice_.whole or slice_.before == Digest(), f"{path} is whole, but begins with rows")
    _require(slice_.whole or backup.kind == "incremental", f"{path} is not whole in a full backup")
    check_sum(path, backup, slice_)
    for each in objects:
        _check_object(path, schema, each)
        _require(
            slice_.whole or each.role == "log", f"{path} holds only changes, and {each.object} is no log"
        )
    _require(sum(o.bytes for o in objects) == slice_.bytes, f"the objects of {path} have another size")
    _require(sum(o.rows for o in objects) >= slice_.rows, f"the objects of {path} have too few rows")


def _check_object(path: str, schema: TableSchema, found: ObjectRecord) -> None:
    name = found.object
    _require(_CHECKSUM.fullmatch(found.checksum) is not None, f"the checksum of {name} is not a checksum")
    _require_range(f"the number of rows of {name}", found.rows)
    _require_range(f"the number of bytes of {name}", found.bytes, 1)
    _require_range(f"the first step of {name}", found.after)
    _require_range(f"the last step of {name}", found.upto, found.after)
    _require(found.fresh or found.role == "log", f"the base segment {name} is not fresh")
    ends = (found.min_key, found.max_key)
    if found.rows == 0:
        _require(ends == (None, None), f"{name} has no rows, but a first or last key")
        return
    if found.min_key is None or found.max_key is None:
        raise InvalidArgument(f"{name} has rows, but no first or last key")
    for key in (found.min_key, found.max_key):
        _check_key(schema, key, f"a key of {name}")
    _require(order(found.min_key) <= order(found.max_key), f"the first key of {name} comes after its last")


def _check_key(schema: TableSchema, key: Key, what: str, *, is_prefix: bool = False) -> None:
    width = len(schema.key)
    _require(
        0 < len(key) <= width if is_prefix else len(key) == width,
        f"{what} does not have the columns of the key",
    )
    for column, value in zip(schema.key_columns, key, strict=False):
        if value is None:
            _require(not column.not_null or is_prefix, f"{what} is NULL in {column.name!r}")
        elif type(value) in (list, dict) or not _is_canonical(column, value):
            _refuse(f"{what} has no value of {column.type} in {column.name!r}")


def _is_canonical(column: Column, value: object) -> bool:
    try:
        made = coerce(column.type, value, column.name)
    except (ValueError, OverflowError, ArithmeticError):
        return False
    return type(made) is type(value) and made == value


def _check_same_objects(manifest: Manifest) -> None:
    """Check that an object has the same checksum, size and row count wherever it is named."""
    known: dict[str, tuple[object, ...]] = {}
    for _, objects in manifest.slices():
        for each in objects:
            facts = (each.checksum, each.bytes, each.rows)
            _require(known.setdefault(each.object, facts) == facts, f"{each.object} is described in two ways")


def _check_names_of_objects(manifest: Manifest, files: Files) -> None:
    for each in manifest.objects().values():
        is_own = each.object.digits in digits_of(files, each.checksum)
        _require(is_own, f"{each.object} is not the name of an object with its checksum")
