"""Relations as paths of a warehouse, and what dbt asks of an adapter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from dbt.adapters.base import BaseRelation, Column, available
from dbt.adapters.base.impl import AdapterConfig, ConstraintSupport
from dbt.adapters.contracts.relation import Policy, RelationType
from dbt.adapters.sql import SQLAdapter
from dbt.adapters.strandline.connections import DATABASE, StrandlineConnectionManager
from dbt_common.contracts.constraints import ConstraintType

from strandline.errors import PathNotFound

if TYPE_CHECKING:
    import agate

    from strandline import Database

_CATALOG = (
    *("table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner"),
    *("column_name", "column_index", "column_type", "column_comment"),
    *("stats:rows:label", "stats:rows:value", "stats:rows:description", "stats:rows:include"),
)
"""The columns of the catalog of ``dbt docs``."""


@dataclass
class StrandlineConfig(AdapterConfig):
    """Settings of a model or a seed beside dbt's own.

    Attributes:
        key: Columns of the primary key: a name, or a list.
        indexes: Indexes with ``columns``, and optionally ``name``, ``cover``, ``unique``, ``asynchronous``.
    """

    key: str | list[str] | None = None
    indexes: list[dict[str, Any]] | None = None


class StrandlineColumn(Column):
    """A column. Types have the names that both DDL and expressions of Spark SQL know."""

    TYPE_LABELS: ClassVar[dict[str, str]] = {
        "TEXT": "STRING",
        "INTEGER": "INT",
        "FLOAT": "DOUBLE",
        "NUMERIC": "DECIMAL(38, 9)",
    }

    @property
    def quoted(self) -> str:
        return f"`{self.column}`"

    @property
    def data_type(self) -> str:
        return self.dtype


@dataclass(frozen=True, eq=False, repr=False)
class StrandlineRelation(BaseRelation):
    """A table: its schema is a directory, its identifier the name in it."""

    quote_character: str = "`"
    include_policy: Policy = field(default_factory=lambda: Policy(database=False))

    def render(self) -> str:
        """Return the path, quoted."""
        return f"`{self.path_in_warehouse.lstrip('/')}`"

    @property
    def path_in_warehouse(self) -> str:
        """The absolute path of the table, or of the directory if there is no table."""
        parts = ((self.schema or "").strip("/"), self.identifier)
        return "/" + "/".join(part for part in parts if part)


class StrandlineAdapter(SQLAdapter):
    """The adapter. What dbt does with SQL is in its macros."""

    Relation = StrandlineRelation
    Column = StrandlineColumn
    ConnectionManager = StrandlineConnectionManager
    AdapterSpecificConfigs = StrandlineConfig
    CONSTRAINT_SUPPORT = dict.fromkeys(ConstraintType, ConstraintSupport.NOT_SUPPORTED)

    @property
    def _database(self) -> Database:
        database: Database = self.connections.get_thread_connection().handle.database
        return database

    @classmethod
    def date_function(cls) -> str:
        return "current_timestamp()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return False

    @classmethod
    def quote(cls, identifier: str) -> str:
        return f"`{identifier}`"

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "Utf8"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        import agate

        return "Double" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "Int64"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "Int64"

    @classmethod
    def convert_boolean_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "Bool"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "Timestamp"

    @classmethod
    def convert_date_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "Date"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "Utf8"

    def valid_incremental_strategies(self) -> list[str]:
        return ["merge", "append"]

    def list_schemas(self, database: str) -> list[str]:
        """Return the directories that have tables."""
        paths = [str(path) for path, _ in self._database.sql("SHOW TABLES").rows()]
        return sorted({path.rpartition("/")[0].strip("/") for path in paths})

    def check_schema_exists(self, database: str, schema: str) -> bool:
        return schema.strip("/") in self.list_schemas(database)

    def create_schema(self, relation: BaseRelation) -> None:
        """Do nothing: a directory begins with its first table."""

    def drop_schema(self, relation: BaseRelation) -> None:
        """Drop the tables of a directory."""
        for table in self.list_relations_without_caching(relation):
            self.drop_relation(table)
        self.cache.drop_schema(relation.database, relation.schema)

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        schema = (schema_relation.schema or "").strip("/")
        try:
            entries = self._database.ls(f"/{schema}")
        except PathNotFound:
            return []
        return [
            self.Relation.create(
                database=schema_relation.database,
                schema=schema_relation.schema,
                identifier=entry.name,
                type=RelationType.Table,
            )
            for entry in entries
            if entry.type == "table"
        ]

    def get_columns_in_relation(self, relation: BaseRelation) -> list[Any]:
        columns = self._describe(relation)["columns"]
        return [self.Column(column["name"], column["type"]) for column in columns]

    def expand_column_types(self, goal: BaseRelation, current: BaseRelation) -> None:
        """Do nothing: texts and bytes have no maximum length."""

    @available.parse(lambda *_, **__: [])
    def key_of(self, relation: StrandlineRelation) -> list[str]:
        """Return the columns of the primary key of a table."""
        return list(self._describe(relation)["key"])

    @available.parse(lambda *_, **__: False)
    def is_alike(self, one: StrandlineRelation, two: StrandlineRelation) -> bool:
        """Return whether two tables have the same columns, key and indexes, in any order of columns."""
        return _definition(self._describe(one)) == _definition(self._describe(two))

    def _describe(self, relation: Any) -> dict[str, Any]:
        return self._database.describe(relation.path_in_warehouse)

    def _get_one_catalog(self, information_schema: Any, schemas: set[str], used_schemas: Any) -> agate.Table:
        """Return the tables and columns of some schemas for ``dbt docs``."""
        from dbt_common.clients.agate_helper import table_from_rows

        # dbt passes names of schemas in lower case.
        names = {name.lower(): name for name in self.list_schemas(DATABASE)}
        rows = [row for each in sorted(schemas) for row in self._catalog_rows(names.get(each, each))]
        return table_from_rows(
            rows, _CATALOG, text_only_columns=["table_database", "table_schema", "table_name"]
        )

    def _catalog_rows(self, schema: str) -> Iterable[tuple[Any, ...]]:
        directory = self.Relation.create(database=DATABASE, schema=schema)
        for relation in self.list_relations_without_caching(directory):
            described = self._describe(relation)
            table = (DATABASE, relation.schema, relation.identifier, "table", None, None)
            stats = ("Rows", described["rows"], "Number of rows", True)
            for number, column in enumerate(described["columns"], 1):
                yield (*table, column["name"], number, column["type"], None, *stats)


def _definition(described: dict[str, Any]) -> tuple[Any, ...]:
    columns = {(column["name"], column["type"], column["not_null"]) for column in described["columns"]}
    indexes = {
        (index["name"], index["kind"], index["unique"], tuple(index["columns"]), frozenset(index["cover"]))
        for index in described["indexes"]
    }
    return columns, described["key"], indexes
