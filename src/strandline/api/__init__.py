"""The public API: connect, sql, table, stream, ls, describe, operations. A statement's way to what carries it
out is here, and nothing else."""

from strandline.api.connector import connect
from strandline.api.database import Database, Entry

__all__ = ["Database", "Entry", "connect"]
