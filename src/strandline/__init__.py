"""Keyed tables with global secondary indexes on Spark, backed up incrementally as one consistent unit.

    import strandline

    db = strandline.connect("warehouse")
    db.sql("CREATE TABLE t (k Uint64 NOT NULL, v Utf8, PRIMARY KEY (k), INDEX by_v GLOBAL SYNC ON (v))")
    db.sql("UPSERT INTO t (k, v) VALUES (1, 'x')")
    db.sql("SELECT k FROM t VIEW by_v WHERE v = 'x'").collect()

The names that this module exports are the whole public API.
"""

from typing import TYPE_CHECKING, Any

from strandline import errors
from strandline.settings import Settings
from strandline.version import VERSION

if TYPE_CHECKING:
    from strandline.api import Database, Entry, connect
    from strandline.api.source.register import register

__version__ = VERSION

__all__ = ["Database", "Entry", "Settings", "__version__", "connect", "errors", "register"]


def __getattr__(name: str) -> Any:
    """Import the database lazily: commands such as ``strandline --help`` and ``version`` never need it."""
    if name in ("Database", "Entry", "connect"):
        from strandline import api

        return getattr(api, name)
    if name == "register":
        from strandline.api.source import register

        return register.register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
