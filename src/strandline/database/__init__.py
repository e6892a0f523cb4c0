"""The public API: connect, sql, table, ls, describe, check, maintain."""

from strandline.database.database import Database, Entry, connect

__all__ = ["Database", "Entry", "connect"]
