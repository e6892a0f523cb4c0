"""``collection.open()``: tables of a backup, read in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strandline import names
from strandline.sql.references import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.api.database import Database
    from strandline.api.scan import Scan

__all__ = ["BackupTable", "OpenBackup"]


class OpenBackup:
    """A backup whose tables can be read without restoring them.

    Attributes:
        name: The name of the backup.
        tables: Paths of its tables.
    """

    def __init__(self, database: Database, collection: str, name: str, tables: tuple[str, ...]) -> None:
        self._database = database
        self._collection = collection
        self.name = name
        self.tables = tables

    def __repr__(self) -> str:
        return f"<OpenBackup {self._collection}/{self.name}>"

    def table(self, path: str) -> BackupTable:
        """Return a table of the backup by its path."""
        return BackupTable(self._database, names.normalize(path), (self._collection, self.name))


class BackupTable:
    """A table in a backup."""

    def __init__(self, database: Database, path: str, backup: tuple[str, str]) -> None:
        self._database = database
        self._backup = backup
        self.path = path

    def __repr__(self) -> str:
        return f"<BackupTable {self.path} in {'/'.join(self._backup)}>"

    def df(self) -> DataFrame:
        """Return the rows as a Spark DataFrame."""
        return self.scan().df

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        view: str | None = None,
        params: Any = None,
    ) -> Scan:
        """Return a scan of rows for Arrow, pandas, polars and DuckDB; see ``Table.scan``. Needs no Spark."""
        from strandline.api.scan import scan

        ref = TableRef(self.path, self.path.rsplit("/", 1)[1], index=view, backup=self._backup)
        return scan(self._database, ref, columns, where, params)
