"""Keyed tables with global secondary indexes on Spark, backed up and restored incrementally as one consistent unit.

    import strandline

    db = strandline.connect("warehouse")
    db.sql("CREATE TABLE t (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'x')")
    db.sql("SELECT k FROM t VIEW by_v WHERE v = 'x'").collect()

What is re-exported here is the whole public API.
"""

from strandline import errors
from strandline.database import Database, Entry, connect
from strandline.settings import Settings

__version__ = "0.1.0"

__all__ = ["Database", "Entry", "Settings", "__version__", "connect", "errors"]
