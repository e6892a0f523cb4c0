"""The public API: connect, sql, table, ls, describe, check, maintain."""

from strandline.database.connecting import connect
from strandline.database.database import Database, Entry

__all__ = ["Database", "Entry", "connect"]
