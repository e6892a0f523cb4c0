"""Write to a table: tasks stage rows on executors, then one commit publishes them at one step.

The commit uses only the rows of the task attempts that Spark reports as successful.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strandline.api.create_table import Index, define_for_columns, suggest_key_option
from strandline.api.database import Database
from strandline.api.execute import run_statement
from strandline.api.source.options import Application, NewTableOptions, Place
from strandline.api.source.warehouse_cache import open_warehouse, plainly
from strandline.api.staged_rows import StagedWrite
from strandline.catalog.definitions import TableDefinition
from strandline.catalog.snapshots import Named
from strandline.catalog.write_dedup import AlreadyApplied
from strandline.errors import BY_CODE, Internal, InvalidArgument, PathNotFound, StrandlineError
from strandline.model import TableSchema
from strandline.sql import statements as st
from strandline.storage.frames import arrow_schema
from strandline.storage.rows import Mode
from strandline.storage.staged_files import Staged, Staging, fresh_folder, stage
from strandline.storage.task_reports import check_written
from strandline.tables.ddl import table_exists
from strandline.tables.snapshot import TableView
from strandline.tables.transaction import Transaction
from strandline.tables.write import frame_columns
from strandline.types.arrays import check_source
from strandline.types.inference import type_of_spark

_QUERY = "sql.streaming.queryId"
"""The Spark property with the id of the streaming query of a task."""


@dataclass
class Message(WriterCommitMessage):
    """The message of a task to the commit.

    Attributes:
        staged: The rows that the task has staged. None: the task has an error.
        fault: Code, message and hint of the task's error. The task itself does not fail, because Spark would
            retry it, and report the attempts instead of the error.
        folder: The folder of the staged files.
        query: The id of the streaming query.
    """

    staged: Staged | None = None
    fault: tuple[str, str, str] | None = None
    folder: str = ""
    query: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """The target and the staging of a write. Created on the driver's machine and sent to tasks."""

    place: Place
    path: str
    table_id: int
    staging: Staging
    new: TableDefinition | None = None
    """The definition of a missing table, which the commit creates with the rows. None: the table exists."""

    @staticmethod
    def of(
        place: Place, path: str, mode: Mode, given: StructType, wanted: NewTableOptions, *, first: bool
    ) -> Job:
        """Plan a write.

        Args:
            place: the warehouse.
            path: the table.
            mode: how rows are written.
            given: the columns of the rows.
            wanted: how to create the table if it is missing.
            first: create a missing table now, before the rows are written.
        """
        with open_warehouse(place) as db, db._guard():
            new = _define_if_missing(db, path, given, wanted)
            if new is not None and first:
                indexes = new.indexes
                columns = tuple(st.ColumnDef(c.name, c.type.name, c.not_null) for c in new.schema.columns)
                run_statement(db, st.CreateTable(path, columns, new.schema.key, indexes=indexes))
                new = None
            if new is None:
                table_id, schema = _plan(db, path, mode, given, wanted)
            else:
                table_id, schema = 0, new.schema
            folder = fresh_folder(db._runtime.clock.now())
            staging = Staging(files=db._runtime.files.own, folder=folder, schema=schema, mode=mode)
            return Job(place=place, path=path, table_id=table_id, staging=staging, new=new)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Message:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        made = Message(folder=self.staging.folder, query=query)
        try:
            return replace(made, staged=stage(self.staging, batches))
        except StrandlineError as error:
            return replace(made, fault=(error.code, error.message, error.hint))

    def commit(self, messages: Sequence[Any], application: Application | None) -> None:
        """Commit the staged rows of tasks, unless this write was committed before."""
        told = [message for message in messages if isinstance(message, Message)]
        with open_warehouse(self.place) as db:
            for message in told:
                if message.fault is not None:
                    code, text, hint = message.fault
                    raise BY_CODE.get(code, Internal)(text, hint)
            staged = [message.staged for message in told if message.staged is not None]
            check_written(self.staging.files, [segment for task in staged for segment in task.segments])
            self.apply(db, staged, application)
            self.clear(messages)

    def apply(self, db: Database, staged: Sequence[Staged], application: Application | None) -> None:
        """Write staged rows in one commit."""

        def once(tx: Transaction, view: TableView) -> None:
            if application is not None:
                tx.once(application.writer, view, application.version)

        try:
            StagedWrite(self.path, self.table_id, self.staging, self.new).commit(db, staged, once)
        except AlreadyApplied:
            return

    def clear(self, messages: Sequence[Any]) -> None:
        """Remove staged files. Files of tasks that end later are removed by the garbage collector."""
        folders = {message.folder for message in messages if isinstance(message, Message)}
        for folder in folders | {self.staging.folder}:
            self.staging.files.remove_tree(folder)


def _define_if_missing(
    db: Database, path: str, given: StructType, wanted: NewTableOptions
) -> TableDefinition | None:
    """Return the definition of the table to create. None: the table exists."""
    with db._runtime.catalog.read() as conn:
        if table_exists(conn, path):
            return None
    columns = [(field.name, type_of_spark(field.dataType.simpleString())) for field in given.fields]
    if wanted.key is None:
        raise PathNotFound(f"there is no table {path}", suggest_key_option(path, columns))
    indexes = [Index(name, each) for name, each in wanted.indexes.items()]
    return define_for_columns(path, columns, wanted.key, indexes)


def _plan(
    db: Database, path: str, mode: Mode, given: StructType, wanted: NewTableOptions
) -> tuple[int, TableSchema]:
    """Return the id of an existing table, and those of its columns that the write sets."""
    view = Transaction(db._runtime, [Named(path, writes=True)]).writable(path)
    schema = view.info.schema
    if wanted.key is not None and wanted.key != schema.key:
        raise InvalidArgument(
            f"{path} exists with the key {', '.join(schema.key)}, not {', '.join(wanted.key)}",
            "Leave the option key out, or write to another table.",
        )
    names = frame_columns(view, mode, tuple(given.names))
    kinds = arrow_schema(given)
    for i, name in enumerate(names):
        check_source(schema[name].type, kinds.field(i).type, name)
    return view.info.id, TableSchema(tuple(schema[name] for name in names), schema.key)


class TableWriter(DataSourceArrowWriter):
    """The writer of one ``save``."""

    def __init__(self, job: Job, application: Application | None) -> None:
        self._job = job
        self._application = application

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._job.write(iterator)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.commit(messages, self._application)

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._job.clear(messages)


class TableStreamWriter(getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)):  # type: ignore[misc]
    """The writer of a streaming query.

    PySpark 4.0 passes rows to tasks, and PySpark 4.1 passes Arrow batches.

    Args:
        job: the planned write.
        schema: the columns of the rows.
        writer: the name under which batches are numbered. None: the id of the query, which survives a
            restart.
    """

    def __init__(self, job: Job, schema: StructType, writer: str | None) -> None:
        self._job = job
        self._schema = schema
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._job.write(_batches(iterator, self._schema))

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if not messages:
            return  # No task, so no rows.
        found = {message.query for message in messages if isinstance(message, Message)} - {None}
        writer = self._writer or next(iter(found), None)
        if writer is None:
            raise Internal("the streaming query has no id", "Name it in the option txnId.")
        self._job.commit(messages, Application(writer, batchId))

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._job.clear(messages)


def _batches(items: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    kinds = arrow_schema(schema)
    for item in items:
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        rows.append(item.asDict())
        if len(rows) >= 10_000:
            yield pa.RecordBatch.from_pylist(rows, kinds)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, kinds)
