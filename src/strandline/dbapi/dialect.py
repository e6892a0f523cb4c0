"""The SQLAlchemy dialect ``strandline://``, on top of the PEP 249 interface.

    create_engine("strandline:////data/warehouse?catalog=postgresql%2Bpsycopg://host/database")

``?create=true`` creates the warehouse if the folder is missing or empty.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sqlalchemy import types
from sqlalchemy.engine import URL, Connection
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.sql.compiler import GenericTypeCompiler, IdentifierPreparer
from sqlalchemy.util import asbool

from strandline.api import Database
from strandline.api.execute import run_statement
from strandline.errors import PathNotFound
from strandline.sql.statements import ShowTables
from strandline.types import parse_type

__all__ = ["StrandlineDialect"]

_TYPES: dict[str, Any] = {
    "bool": types.Boolean,
    "text": types.Text,
    "json": types.Text,
    "bytes": types.LargeBinary,
    "date": types.Date,
    "float": types.Float,
}
"""SQLAlchemy types by kind of type, for the kinds without size or precision."""


class _Names(IdentifierPreparer):
    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect, initial_quote="`", escape_quote="`")


class _Types(GenericTypeCompiler):
    """Compiler of SQLAlchemy types to types of Strandline."""

    def visit_BOOLEAN(self, type_: Any, **_: Any) -> str:
        return "Bool"

    def visit_SMALLINT(self, type_: Any, **_: Any) -> str:
        return "Int16"

    def visit_INTEGER(self, type_: Any, **_: Any) -> str:
        return "Int32"

    def visit_BIGINT(self, type_: Any, **_: Any) -> str:
        return "Int64"

    def visit_FLOAT(self, type_: Any, **_: Any) -> str:
        return "Double"

    visit_DOUBLE = visit_DOUBLE_PRECISION = visit_REAL = visit_FLOAT

    def visit_NUMERIC(self, type_: Any, **_: Any) -> str:
        return f"Decimal({type_.precision or 22},{9 if type_.scale is None else type_.scale})"

    visit_DECIMAL = visit_NUMERIC

    def visit_TEXT(self, type_: Any, **_: Any) -> str:
        return "Utf8"

    visit_VARCHAR = visit_NVARCHAR = visit_CHAR = visit_CLOB = visit_TEXT

    def visit_BLOB(self, type_: Any, **_: Any) -> str:
        return "String"

    visit_BINARY = visit_VARBINARY = visit_BLOB

    def visit_DATE(self, type_: Any, **_: Any) -> str:
        return "Date"

    def visit_DATETIME(self, type_: Any, **_: Any) -> str:
        return "Timestamp"

    visit_TIMESTAMP = visit_DATETIME


class StrandlineDialect(DefaultDialect):
    """The SQLAlchemy dialect. Table names are paths, there are no schemas, and times have a time zone."""

    name = "strandline"
    driver = "dbapi"
    default_paramstyle = "qmark"
    preparer = _Names  # type: ignore[assignment]
    type_compiler_cls = _Types
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_sane_multi_rowcount = False
    supports_default_values = False
    supports_multivalues_insert = True
    postfetch_lastrowid = False

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        from strandline import dbapi

        return dbapi

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        catalog = url.query.get("catalog")
        options: dict[str, Any] = {"create": asbool(url.query.get("create", "false"))}
        return [url.database or "warehouse"], options | ({"catalog": str(catalog)} if catalog else {})

    def do_ping(self, dbapi_connection: Any) -> bool:
        _ = dbapi_connection.database.step
        return True

    def get_schema_names(self, connection: Connection, **_: Any) -> list[str]:
        return []

    def get_view_names(self, connection: Connection, schema: Any = None, **_: Any) -> list[str]:
        return []

    def get_table_names(self, connection: Connection, schema: Any = None, **_: Any) -> list[str]:
        found = run_statement(_database(connection), ShowTables()).rows()
        return [str(path).removeprefix("/") for path, _ in found]

    def has_table(self, connection: Connection, table_name: str, schema: Any = None, **_: Any) -> bool:
        try:
            return bool(_database(connection).describe(table_name)["type"] == "table")
        except PathNotFound:
            return False

    def get_columns(self, connection: Connection, table_name: str, schema: Any = None, **_: Any) -> Any:
        return [
            {
                "name": column["name"],
                "type": _type(column["type"]),
                "nullable": not column["not_null"],
                "default": None,
            }
            for column in _describe_table(connection, table_name)["columns"]
        ]

    def get_pk_constraint(self, connection: Connection, table_name: str, schema: Any = None, **_: Any) -> Any:
        key = _describe_table(connection, table_name)["key"]
        return {"name": None, "constrained_columns": list(key)}

    def get_indexes(self, connection: Connection, table_name: str, schema: Any = None, **_: Any) -> Any:
        return [
            {"name": index["name"], "column_names": list(index["columns"]), "unique": bool(index["unique"])}
            for index in _describe_table(connection, table_name)["indexes"]
        ]

    def get_foreign_keys(self, connection: Connection, table_name: str, schema: Any = None, **_: Any) -> Any:
        return []


def _database(connection: Connection) -> Database:
    proxied: Any = connection.connection
    database: Database = proxied.dbapi_connection.database
    return database


def _describe_table(connection: Connection, table: str) -> dict[str, Any]:
    try:
        return _database(connection).describe(table)
    except PathNotFound:
        raise NoSuchTableError(table) from None


def _type(name: str) -> Any:
    type_ = parse_type(name)
    if type_.kind == "int":
        return types.BigInteger()
    if type_.kind == "decimal":
        return types.Numeric(type_.precision, type_.scale)
    return types.DateTime(timezone=True) if type_.kind == "time" else _TYPES[type_.kind]()
