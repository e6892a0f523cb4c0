"""The public API: ``connect`` and ``Database``. It dispatches statements and calls to the packages below."""

import sys
from zipimport import zipimporter

from strandline import errors

try:
    from strandline.api.connector import connect
    from strandline.api.database import Database, Entry
except ModuleNotFoundError as error:
    if not isinstance(errors.__loader__, zipimporter):
        raise
    # Spark's Python has received this package, but lacks one of its dependencies.
    raise errors.Unavailable(
        f"Spark runs {sys.executable}, where the module {error.name} is missing",
        errors.PYTHON_HINT,
    ) from None

__all__ = ["Database", "Entry", "connect"]
