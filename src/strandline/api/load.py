"""Load files in common formats into a table, in one commit, with bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import pyarrow as pa

from strandline import names
from strandline.api.execute import run_statement
from strandline.api.staged_rows import StagedWrite
from strandline.cancellation import check, phase
from strandline.catalog.snapshots import Named
from strandline.errors import InvalidArgument, PathNotFound
from strandline.model import TableSchema
from strandline.names import did_you_mean
from strandline.sql import statements as st
from strandline.storage.external import External, Incoming, open_source
from strandline.storage.external.source import Format
from strandline.storage.rows import Mode
from strandline.storage.staged_files import Staging, fresh_folder, stage
from strandline.tables.transaction import Transaction
from strandline.types import Type, parse_type

if TYPE_CHECKING:
    from strandline.api.database import Database


LoadMode: TypeAlias = Literal["upsert", "insert", "replace"]
_MODES: Mapping[str, Mode] = {"upsert": "UPSERT", "insert": "INSERT", "replace": "REPLACE"}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The result of a load.

    Attributes:
        table: Path of the table.
        created: True if the load created the table.
        files: Number of files.
        read: Number of rows in the files. None: Spark has read the rows without counting them.
        before: Number of rows of the table before the load.
        step: Step of the commit. None: nothing was changed.
    """

    table: str
    created: bool
    files: int
    read: int | None
    before: int
    step: int | None


@dataclass(frozen=True, kw_only=True)
class NewTable:
    """How to create a missing table: its key, and types of columns that should not be inferred."""

    key: Sequence[str] | None = None
    types: Mapping[str, str] | None = None


def load_files(
    db: Database,
    path: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    key: Sequence[str] | None,
    types: Mapping[str, str] | None,
    mode: LoadMode,
    format: Format | None,
    delimiter: str | None,
    header: bool,
    columns: Sequence[str] | None,
    null: str,
) -> Loaded:
    """Load files with the arguments of ``db.load``."""
    for given, what in ((key, "key"), (columns, "columns")):
        if isinstance(given, str):
            raise InvalidArgument(
                f"{what} is a text, not a list of columns", f"Pass a list: {what}=[{given!r}]."
            )
    if mode not in _MODES:
        raise InvalidArgument(
            f"a load has no mode {mode!r}", did_you_mean(mode, _MODES) or f"It has {', '.join(_MODES)}."
        )
    kinds = get_args(Format)
    if format is not None and format not in kinds:
        raise InvalidArgument(
            f"a load has no format {format!r}", did_you_mean(format, kinds) or f"It has {', '.join(kinds)}."
        )
    source = External(
        places=tuple(os.fspath(file) for file in files),
        kind=format,
        delimiter=delimiter,
        header=header,
        columns=None if columns is None else tuple(columns),
        null=null,
        settings=db._runtime.settings,
    )
    return load(db, path, source, _MODES[mode], NewTable(key=key, types=types))


def load(
    db: Database, path: str, source: External, mode: Mode = "UPSERT", wanted: NewTable | None = None
) -> Loaded:
    """Write the rows of files to a table. Create the table if it is missing and its key is known.

    On failure nothing is written, and a created table is dropped again.
    """
    with db._guard():
        path, wanted = names.normalize(path), wanted or NewTable()
        incoming = open_source(source)
        before = _rows(db, path)
        is_spread = db._runtime.store.spread(incoming)
        created = before is None
        if created:
            _create(db, path, incoming, wanted)
        else:
            _compare(path, _target(db, path)[1], wanted)
        try:
            write = _write_spread if is_spread else _write
            read, step = write(db, path, mode, incoming)
            return Loaded(
                table=path, created=created, files=incoming.files, read=read, before=before or 0, step=step
            )
        except BaseException:
            if created:
                run_statement(db, st.DropTable(path, purge=True))
            raise


def _rows(db: Database, path: str) -> int | None:
    """Return the number of rows of a table. None: the table does not exist."""
    try:
        found = db.describe(path)
    except PathNotFound:
        return None
    if found["type"] != "table":
        raise InvalidArgument(f"{path} is {names.with_article(found['type'])}, not a table", "Name a table.")
    return int(found["rows"])


def _target(db: Database, path: str) -> tuple[int, TableSchema]:
    view = Transaction(db._runtime, [Named(path, writes=True)]).writable(path)
    return view.info.id, view.info.schema


def _compare(path: str, schema: TableSchema, wanted: NewTable) -> None:
    """Refuse a key or types that differ from those of the existing table."""
    if wanted.key is not None and tuple(wanted.key) != schema.key:
        raise InvalidArgument(
            f"{path} exists with the key {', '.join(schema.key)}, not {', '.join(wanted.key)}",
            "Leave the key out, or load into another table.",
        )
    for name, said in (wanted.types or {}).items():
        now = schema[names.column(name, schema.names, path)].type
        if parse_type(said) != now:
            raise InvalidArgument(
                f"column {name} of {path} exists as {now.name}, not as {parse_type(said).name}",
                "Leave the type out, or load into another table.",
            )


def _create(db: Database, path: str, incoming: Incoming, wanted: NewTable) -> None:
    columns = incoming.names(None)
    key = wanted.key or incoming.key
    if key is None:
        raise PathNotFound(
            f"there is no table {path}",
            f"Create it, or give its key: key=[{(columns or ['id'])[0]!r}], --key {(columns or ['id'])[0]}",
        )
    given = {name: parse_type(said) for name, said in (wanted.types or {}).items()}
    for name in (*key, *given):
        if name not in columns:
            raise InvalidArgument(
                f"the files have no column {name}",
                _other_delimiter(columns)
                or did_you_mean(name, columns)
                or f"They have {', '.join(columns) or 'none'}.",
            )
    types = incoming.types(given)
    for name in key:
        types[name] = types[name] if name in given else _of_key(name, types[name])
    defined = tuple(st.ColumnDef(name, type_.name, name in key) for name, type_ in types.items())
    run_statement(db, st.CreateTable(path, defined, tuple(key)))


def _of_key(name: str, type_: Type) -> Type:
    """Return the type of a key column: integers get 64 bits, because keys grow."""
    if not type_.orderable:
        raise InvalidArgument(
            f"column {name} looks like {type_.name}, which cannot be part of a key",
            f"Give its type, for example --type '{name}=Decimal(22,9)' or --type {name}=Utf8, or choose "
            "another key.",
        )
    if type_.kind != "int":
        return type_
    return parse_type("Uint64" if type_.name.startswith("U") else "Int64")


def _write_spread(db: Database, path: str, mode: Mode, incoming: Incoming) -> tuple[None, int | None]:
    """Write the rows that executors read; return the step of the commit."""
    _, schema = _target(db, path)
    columns = _match_columns(incoming.names(schema.names), schema, path)
    types, not_null = _choose_types(columns, schema)
    frame = db._runtime.store.external_frame(incoming, types, not_null)
    table = db.table(path)
    write = {"UPSERT": table.upsert, "INSERT": table.insert, "REPLACE": table.replace}[mode]
    return None, write(frame.toDF(*columns.values()))


def _choose_types(columns: Mapping[str, str], schema: TableSchema) -> tuple[dict[str, Type], frozenset[str]]:
    """Return the types of the columns of the files, and the names of the columns that may not be NULL."""
    types = {given: schema[name].type for given, name in columns.items()}
    return types, frozenset(given for given, name in columns.items() if schema[name].not_null)


def _write(db: Database, path: str, mode: Mode, incoming: Incoming) -> tuple[int, int | None]:
    """Write the rows that this process reads; return their number and the step of the commit."""
    table_id, schema = _target(db, path)
    columns = _match_columns(incoming.names(schema.names), schema, path)
    types, not_null = _choose_types(columns, schema)
    staging = Staging(
        files=db._runtime.files.own,
        folder=fresh_folder(db._runtime.clock.now()),
        schema=TableSchema(tuple(schema[name] for name in columns.values()), schema.key),
        mode=mode,
    )
    count = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        with phase(f"loading {path}", unit="rows") as loading:
            for table in incoming.tables(types, not_null):
                count += table.num_rows
                yield from table.combine_chunks().to_batches()
                loading.advance(table.num_rows)
                check()

    try:
        staged = stage(staging, batches())
        return count, StagedWrite(path, table_id, staging).commit(db, [staged])
    finally:
        staging.files.remove_tree(staging.folder)


def _match_columns(given: Sequence[str], schema: TableSchema, path: str) -> dict[str, str]:
    """Map the columns of the files, in their order, to columns of the table."""
    exact = {name.lower(): name for name in schema.names}
    for name in given:
        if name.lower() not in exact:
            raise InvalidArgument(
                f"the files have a column {name!r}, which {path} does not have",
                _other_delimiter(given)
                or did_you_mean(name, schema.names)
                or f"Its columns are {', '.join(schema.names)}.",
            )
    found = {name: name if name in schema else exact[name.lower()] for name in given}
    doubled = [name for name in found.values() if list(found.values()).count(name) > 1]
    if doubled:
        raise InvalidArgument(f"two columns of the files match {doubled[0]}", "Leave one of them out.")
    missing = [name for name in schema.key if name not in found.values()]
    if missing:
        raise InvalidArgument(
            f"the files have no column {missing[0]}, which is part of the key of {path}",
            f"They have {', '.join(given) or 'none'}.",
        )
    return found


def _other_delimiter(columns: Sequence[str]) -> str | None:
    """Return a hint if a wrong delimiter has turned the whole header into one column name."""
    for sign, typed in ((";", "';'"), ("\t", "$'\\t'"), ("|", "'|'"), (",", "','")):
        if len(columns) == 1 and sign in columns[0]:
            return f"If {typed} separates their values, use --delimiter {typed}."
    return None
