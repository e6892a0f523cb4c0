"""The public API: connect, sql, table, stream, ls, describe, operations. A statement's way to what carries it
out is here, and nothing else."""

import sys
from zipimport import zipimporter

from strandline import errors

try:
    from strandline.api.connector import connect
    from strandline.api.database import Database, Entry
except ModuleNotFoundError as error:
    if not isinstance(errors.__loader__, zipimporter):
        raise
    # Spark was sent this package, and runs it with a Python that has not what it depends on.
    raise errors.Unavailable(
        f"Spark runs {sys.executable}, where there is no module {error.name}",
        errors.PYTHON_HINT,
    ) from None

__all__ = ["Database", "Entry", "connect"]
