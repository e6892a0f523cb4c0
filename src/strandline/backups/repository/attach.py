"""ATTACH of a repository: make its backups restorable without the catalog of the warehouse that took them.

ATTACH creates the same paths as the operation that took a backup. Their segments are the objects of the
repository. The backups keep the steps of the warehouse that took them, so the clock of this warehouse
continues after the last of these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from strandline import names
from strandline.backups.collection import CollectionRecord
from strandline.backups.collection_ddl import check_one_writer, writer_of
from strandline.backups.record import (
    META,
    BackupRecord,
    IndexRecord,
    SliceRecord,
    TableRecord,
    backup_heads,
    collection_path,
)
from strandline.backups.repository.manifest import Manifest, ObjectRecord, file_of
from strandline.backups.repository.readme import write_readme
from strandline.backups.repository.repository import Repository, of_another
from strandline.backups.repository.upload import place_objects
from strandline.catalog import bulk_paths, paths, tables, warehouse
from strandline.catalog.bulk_paths import NewPath
from strandline.catalog.paths import IMPL_TABLE, Path
from strandline.catalog.tables import IndexRef, TableBody
from strandline.catalog.transactions import Writer, latest_step
from strandline.errors import AlreadyExists, Corrupted, PreconditionFailed, StrandlineError
from strandline.model import Digest
from strandline.runtime import Runtime
from strandline.sql.constants import constant
from strandline.sql.tokens import word
from strandline.storage.repository_marker import Expected


@dataclass(frozen=True)
class Found:
    """A backup in a repository.

    Attributes:
        manifest: Its manifest. None: the backup cannot be used.
        problem: Why the backup cannot be used. None: it can be used.
    """

    name: str
    manifest: Manifest | None
    problem: str | None = None


def name_in(runtime: Runtime, root: str, expected: Expected) -> str:
    """Return the collection name of a repository, from its last readable backup."""
    repository = Repository(runtime.files.reopen(root, expected), root)
    repository.marker  # noqa: B018  (refuse a location that is not a repository)
    found = Found("", None)
    for backup in reversed(repository.backups()):
        found = _read(repository, backup, runtime.clock.now())
        if found.manifest is not None:
            return found.manifest.collection
    raise _nothing_in(root, found.problem)


def attach(
    runtime: Runtime, name: str, root: str, expected: Expected, *, take_over: bool
) -> tuple[int, list[Found]]:
    """Create the collection ``name`` for the repository at ``root``.

    Return the step of the change, and all backups of the repository, including those that cannot be used. An
    unreadable manifest excludes only its own backup.

    Args:
        expected: Expected encryption and id. A repository with a different encryption or id is refused.
        take_over: Make this warehouse the owner of the repository. If a collection of this warehouse is
            already attached to it, this collection keeps its pins and becomes the one that writes.
    """
    names.check_name(name)
    names.check_not_reserved(name, "collection")
    repository = Repository(runtime.files.reopen(root, expected), root)
    marker = repository.marker  # First refuse a location that is not a repository.
    path = collection_path(name)
    with runtime.catalog.read() as conn:
        here = warehouse.require(conn).id
        _check_free(conn, path, root, take_over=take_over)
        other = writer_of(conn, name, root) if take_over else None
        if other is not None:  # Refuse before the repository gets a new owner.
            raise of_another(root, other)
    listed = set(repository.manifests())
    found, usable = _all(repository, runtime.clock.now())
    with runtime.catalog.read() as conn:
        _Upgrade(conn, path, usable, root)  # Refuse before the repository gets a new owner.
    owner = repository.owner()
    if take_over:
        repository.own(here, runtime.clock.now(), take_over=True)
        write_readme(repository.plain, marker)
        if set(repository.manifests()) != listed:
            # The previous owner has added or deleted backups meanwhile.
            found, usable = _all(repository, runtime.clock.now())
    foreign = owner is not None and owner.warehouse != here
    with runtime.catalog.write() as tx:
        _check_free(tx.conn, path, root, take_over=take_over)
        upgrade = _Upgrade(tx.conn, path, usable, root)
        last = usable[-1]
        attached = not take_over and (foreign or writer_of(tx.conn, name, root) is not None)
        tx.skip_to(max(manifest.backup.step for manifest in usable))
        if upgrade.path is None:
            settings = replace(last.settings, storage=root, encryption=marker.encrypted)
            collection = CollectionRecord(tables=last.tables, settings=settings)
        else:
            collection = upgrade.path.record(CollectionRecord)
        collection = replace(collection, attached=attached, repository=marker.id, key=repository.key)
        check_one_writer(tx.conn, name, collection)
        if upgrade.path is None:
            parent = bulk_paths.make_parent(tx, path)
            row = bulk_paths.add_one(tx, NewPath(parent, name, "backup_collection", collection))
        else:
            row = upgrade.path
            paths.set_body(tx, row.id, collection)
            paths.set_version(tx, row.id, row.version + 1)
        tables.publish(tx, [row.id])
        for manifest in upgrade.missing:
            _Attached(tx, row, manifest, root).make()
        return tx.step, found


def _check_free(conn: Connection, path: str, root: str, *, take_over: bool) -> None:
    """Refuse a collection name that is already in use.

    Args:
        take_over: Accept a name in use if its collection stores its backups at ``root``.
    """
    found, name = paths.find(conn, path), path.rpartition("/")[2]
    if found is None:
        return
    if not take_over:
        raise AlreadyExists(
            f"there is a backup collection {name!r} already",
            "Choose another name, or drop it first. If this warehouse should continue its backups, "
            "take its repository over: WITH (TAKE_OVER = 'true').",
        )
    storage = found.record(CollectionRecord).settings.storage
    if storage != root:
        raise AlreadyExists(
            f"there is a backup collection {name!r} already, with backups in {storage} and not in {root}",
            f"Take over the repository at {storage}, choose another name, or drop the collection first, "
            "which leaves repositories alone.",
        )
    paths.check_ready(found)


class _Upgrade:
    """The changes that give a collection all backups of its repository.

    The constructor refuses a collection if one of its backups is missing in the repository, or is there in
    another form. It also refuses a repository with backups that the collection does not know, unless the
    collection is attached. (An attached collection is read-only: another collection adds the backups.)

    Attributes:
        path: Path of the collection. None: it does not exist yet.
        missing: Backups of the repository that the collection does not have.
    """

    def __init__(self, conn: Connection, path: str, usable: Sequence[Manifest], root: str) -> None:
        self.path = paths.find(conn, path)
        self.missing = list(usable)
        if self.path is None:
            return
        there = {manifest.backup.name: manifest.backup for manifest in usable}
        heads = [head for _, head in backup_heads(conn, self.path)]
        name = self.path.name
        for head in heads:
            same = there.get(head.name)
            if head.stored == root and (same is None or file_of(same) != file_of(head)):
                raise _change(
                    root, name, f"the backup {head.name} of the collection {name!r} is not in {root}"
                )
            if head.stored != root and same is not None and (same.step, same.time) != (head.step, head.time):
                # Two warehouses took a backup in the same second. This warehouse could never upload its own.
                raise _change(root, name, f"{root} has another backup {head.name} than this warehouse")
        known = {head.name for head in heads}
        self.missing = [manifest for manifest in usable if manifest.backup.name not in known]
        if self.missing and not self.path.record(CollectionRecord).attached:
            other = self.missing[0].backup.name
            raise _change(
                root, name, f"{root} has a backup {other} that the collection {name!r} does not know"
            )


def _change(root: str, name: str, what: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"{what}: another warehouse has changed the repository since",
        f"Drop the collection, which leaves the repository alone, and attach it anew: ATTACH BACKUP "
        f"COLLECTION {word(name)} FROM {constant(root)} WITH (TAKE_OVER = 'true').",
    )


def _all(repository: Repository, now: float) -> tuple[list[Found], list[Manifest]]:
    """Return all backups of a repository, and the manifests of the usable ones.

    PRECONDITION_FAILED if none is usable.
    """
    found = [_read(repository, backup, now) for backup in repository.backups()]
    usable = [each.manifest for each in found if each.manifest is not None]
    if not usable:
        raise _nothing_in(repository.root, found[-1].problem if found else None)
    return found, usable


def _nothing_in(root: str, problem: str | None) -> PreconditionFailed:
    return PreconditionFailed(
        f"the repository {root} has no backup that can be read", problem or "Check the folder or the URL."
    )


def _read(repository: Repository, backup: str, now: float) -> Found:
    try:
        manifest = repository.manifest(backup)
        if manifest.backup.step > latest_step(now):
            return Found(backup, None, f"its step {manifest.backup.step} is later than any can be by now")
        return Found(backup, manifest)
    except Corrupted as error:
        return Found(backup, None, error.message)
    except StrandlineError as error:
        # A later version wrote the manifest, or its warehouse has deleted it since the backups were listed.
        if error.code not in ("PRECONDITION_FAILED", "PATH_NOT_FOUND"):
            raise
        return Found(backup, None, error.message)


class _Attached:
    """Creates the paths of one attached backup, with the repository's objects as their segments."""

    def __init__(self, tx: Writer, collection: Path, manifest: Manifest, root: str) -> None:
        self._tx = tx
        self._collection = collection
        self._manifest = manifest
        self._root = root
        self._made: list[Path] = []
        self._objects: dict[int, tuple[ObjectRecord, ...]] = {}
        self._digests: dict[int, Digest] = {}

    def make(self) -> None:
        record = self._manifest.backup
        backup = self._add([NewPath(self._collection, record.name, "backup", record)])[0]
        # A compacted backup keeps the path layout of an increment.
        is_full = record.kind == "full" and not record.synthetic
        placed = self._full(backup, record) if is_full else self._incremental(backup, record)
        held = replace(record, tables=placed, stored=self._root)
        paths.set_body(self._tx, backup.id, held)
        tables.add_states(self._tx, self._digests, record.step)
        place_objects(self._tx, held, self._objects, self._root)
        tables.publish(self._tx, [path.id for path in self._made])

    def _add(self, new: Sequence[NewPath]) -> list[Path]:
        made = bulk_paths.add(self._tx, new, step=self._manifest.backup.step)
        self._made += made
        return made

    def _full(self, backup: Path, record: BackupRecord) -> dict[str, TableRecord]:
        """Create the tables with their indexes below them, as a full backup does."""
        listed = list(record.tables.items())
        rows = self._tables(
            [f"{backup.path}{path}" for path, _ in listed], [TableBody(schema=t.schema) for _, t in listed]
        )
        placed, bodies = {}, {}
        for (path, table), row in zip(listed, rows, strict=True):
            contents = self._manifest.contents[path]
            refs, indexes = [], []
            for index in table.indexes:
                definition = index.definition
                above = self._add([NewPath(row, definition.name, "index", definition)])[0]
                body = TableBody(schema=definition.impl_schema(table.schema))
                impl = self._add([NewPath(above, IMPL_TABLE, "table", body)])[0]
                omitted = index.slice is None
                refs.append(
                    IndexRef.of(definition, index_id=above.id, impl_id=impl.id, version=1, omitted=omitted)
                )
                indexes.append(self._index(index, impl, contents.indexes.get(definition.name, ())))
            bodies[row.id] = TableBody(schema=table.schema, indexes=tuple(refs))
            slice_ = self._slice(table.slice, row, contents.table)
            placed[path] = replace(table, slice=slice_, indexes=tuple(indexes))
        bulk_paths.set_bodies(self._tx, bodies)
        return placed

    def _incremental(self, backup: Path, record: BackupRecord) -> dict[str, TableRecord]:
        """Create a path for each slice, as an increment does. Paths of index slices are below ``META``."""
        wanted: list[tuple[str, str | None, TableBody]] = []
        increment = record.kind == "incremental"
        for path, table in record.tables.items():
            wanted.append((path, None, TableBody(schema=table.schema, increment=increment)))
            for index in table.indexes:
                if index.slice is not None:
                    schema = index.definition.impl_schema(table.schema)
                    wanted.append(
                        (path, index.definition.name, TableBody(schema=schema, increment=increment))
                    )
        places = [
            f"{backup.path}{path}" if index is None else f"{backup.path}/{META}/indexes{path}/{index}"
            for path, index, _ in wanted
        ]
        rows = self._tables(places, [body for _, _, body in wanted])
        made = {(path, index): row for (path, index, _), row in zip(wanted, rows, strict=True)}
        placed = {}
        for path, table in record.tables.items():
            contents = self._manifest.contents[path]
            placed[path] = replace(
                table,
                slice=self._slice(table.slice, made[path, None], contents.table),
                indexes=tuple(
                    i
                    if i.slice is None
                    else self._index(
                        i, made[path, i.definition.name], contents.indexes.get(i.definition.name, ())
                    )
                    for i in table.indexes
                ),
            )
        return placed

    def _tables(self, places: Sequence[str], bodies: Sequence[TableBody]) -> list[Path]:
        parents, directories = bulk_paths.make_parents(self._tx, places, self._manifest.backup.step)
        tables.publish(self._tx, directories)
        return self._add(
            [
                NewPath(parents[place], place.rsplit("/", 1)[1], "table", body)
                for place, body in zip(places, bodies, strict=True)
            ]
        )

    def _index(self, index: IndexRecord, row: Path, objects: tuple[ObjectRecord, ...]) -> IndexRecord:
        if index.slice is None:
            self._digests[row.id] = Digest()
            return index
        return replace(index, slice=self._slice(index.slice, row, objects))

    def _slice(self, slice_: SliceRecord, row: Path, objects: tuple[ObjectRecord, ...]) -> SliceRecord:
        self._objects[row.id] = objects
        is_full = self._manifest.backup.kind == "full"
        self._digests[row.id] = slice_.after if is_full else Digest(slice_.rows, slice_.after.value)
        return replace(slice_, target_id=row.id)
