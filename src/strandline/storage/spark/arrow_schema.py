"""Arrow schemas of Spark's schemas, with all versions of PySpark."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

__all__ = ["to_arrow_schema"]

_convert: Any = types.to_arrow_schema
# PySpark 4.2 and later require a time zone; earlier versions have no such parameter, and use UTC.
_ZONE = {"timezone": "UTC"} if "timezone" in inspect.signature(_convert).parameters else {}


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, with timestamps in UTC."""
    converted: pa.Schema = _convert(schema, **_ZONE)
    return converted
