"""The column types: their names, their physical form in files, and their values.

A value is in *canonical* form everywhere inside Strandline: bool, int, float, Decimal (with exactly the
type's scale), bytes, str, ``datetime.date``, or a ``datetime.datetime`` whose zone is ``timezone.utc``; NULL
is ``None``.

Values enter through ``coerce`` (Python and SQL), ``arrays.array_from_user`` (Arrow) or ``spark_cast``
(DataFrames). These functions never round, wrap, truncate or cast: a value that does not fit is refused. There
are two exceptions. A literal such as 0.1 becomes the nearest binary float, because no binary float equals it.
Dates and times may be ISO text, because SQL and JSON have no other form for them.

Functions on whole columns are in ``strandline.types.arrays``. It is a separate module because it needs Arrow,
which is slow to load and which describing a table or parsing a statement does not need.

``String`` (spelled exactly so) holds bytes, as in YQL. Any other spelling (``string``, ``STRING``) is Spark's
name for text, that is ``Utf8``. All other names are case-insensitive.
"""

from strandline.types.names import Type, parse_type
from strandline.types.values import coerce, find_json_fault, python_value, row_value

__all__ = [
    "Type",
    "coerce",
    "find_json_fault",
    "parse_type",
    "python_value",
    "row_value",
]
