"""Reader of the tables in a backup. It needs no restore: it concatenates the slices of the chain."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from strandline.backups.chain import find_chain
from strandline.backups.record import (
    BackupRecord,
    SliceRecord,
    require_collection,
    slice_segments,
    slices_of,
)
from strandline.backups.repository.repository import check_there
from strandline.catalog.tables import IndexRef, TableInfo
from strandline.errors import PathNotFound, PreconditionFailed
from strandline.model import Chain, TableSchema
from strandline.names import did_you_mean
from strandline.runtime import Runtime
from strandline.tables.snapshot import Reader, TableView


class BackupReader(Reader):
    """Reader of tables as they are in a backup.

    Args:
        backup: Name of the backup. None: the last one of the collection.
    """

    def __init__(self, runtime: Runtime, collection: str, backup: str | None) -> None:
        super().__init__(runtime)
        self.snapshot.take()
        self._collection, self._backup = collection, backup

    def view(self, path: str) -> TableView:
        with self.runtime.catalog.read() as conn:
            chain = self._chain(conn)
            record = chain[-1].tables.get(path)
            if record is None:
                hint = (
                    did_you_mean(path, chain[-1].tables) or f"It holds {', '.join(sorted(chain[-1].tables))}."
                )
                raise PathNotFound(f"{path} is not in the backup {chain[-1].name}", hint)
            refs = tuple(
                IndexRef.of(i.definition, index_id=0, impl_id=0, version=i.version, omitted=i.slice is None)
                for i in record.indexes
            )
            info = _info(path, chain[-1], record.slice, record.schema, refs)
            view = self._note(_view(conn, info, chain, path, None))
        check_there(self.runtime.files, view.chain.segments)
        return view

    def index(self, table: TableView, ref: IndexRef) -> TableView:
        name, path = ref.definition.name, table.info.path
        with self.runtime.catalog.read() as conn:
            chain = self._chain(conn)
            record = chain[-1].tables[path].index(name)
            if record is None or record.slice is None:
                raise PreconditionFailed(
                    f"the backup {chain[-1].name} has no data of the index {name!r}",
                    "Read without VIEW, or restore the table.",
                )
            impl = ref.definition.impl_schema(table.info.schema)
            info = _info(f"{path}/{name}", chain[-1], record.slice, impl, ())
            view = self._note(_view(conn, info, chain, path, name))
        check_there(self.runtime.files, view.chain.segments)
        return view

    def _note(self, view: TableView) -> TableView:
        self.snapshot.note(view.chain.segments)
        return view

    def _chain(self, conn: Connection) -> Sequence[BackupRecord]:
        """Return the chain of the backup.

        The caller must look up the segments in the same transaction; otherwise they may not match the chain.
        The first call chooses the backup. Later calls return the chain of this backup, even if a newer backup
        has been taken.
        """
        chain = find_chain(conn, require_collection(conn, self._collection), self._backup)
        self._backup = chain[-1].name
        return chain


def _info(
    path: str, backup: BackupRecord, slice_: SliceRecord, schema: TableSchema, indexes: tuple[IndexRef, ...]
) -> TableInfo:
    return TableInfo(
        id=0,
        path=path,
        version=slice_.version,
        state="ready",
        operation_id=None,
        created_step=backup.step,
        schema=schema,
        indexes=indexes,
    )


def _view(
    conn: Connection, info: TableInfo, chain: Sequence[BackupRecord], path: str, index: str | None
) -> TableView:
    segments = [
        s
        for place, part in slices_of(chain, path, index)
        for found in slice_segments(conn, chain[place], [part]).values()
        for s in found
    ]
    return TableView(info, Chain(tuple(segments), chain[-1].step))
