"""The column types: their names, their physical form in files, and the values they hold.

A value is in *canonical* form everywhere inside Strandline: bool, int, float, Decimal (with exactly the
type's scale), bytes, str, ``datetime.date``, or a ``datetime.datetime`` whose zone is ``timezone.utc``; NULL
is ``None``. Values come in through ``coerce`` (Python and SQL), ``arrays.array_from_user`` (Arrow) or
``spark_cast`` (DataFrames), which never round, wrap, truncate or cast: what does not fit is refused. There
are two exceptions: the nearest binary float, because a literal such as 0.1 has no exact one, and dates and
times as ISO text, because SQL and JSON have no other form for them.

Whole columns are in ``strandline.types.arrays``, apart from the rest, because Arrow is slow to load and who
describes a table, or reads a statement, does not need it.

``String`` (spelled exactly so) holds bytes, as in YQL; any other spelling (``string``, ``STRING``) is Spark's
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
