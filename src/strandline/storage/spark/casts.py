"""Cast a user's Spark column to a table's physical type, under the rules of ``strandline.types.coerce``.

A cast between types that never fit is refused at once. A value that does not fit is refused when Spark
evaluates the expression: it raises an error, which ``spark.failures`` translates into InvalidArgument.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from strandline.errors import InvalidArgument
from strandline.storage.spark.columns import time_text
from strandline.storage.spark.failures import refuse
from strandline.types import Type
from strandline.types.arrays import MAX_DAYS, MAX_SECONDS, MIN_DAYS, MIN_SECONDS
from strandline.types.values import ISO_DATE, ISO_TIME, json_fault_finder

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_BITS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_SOURCES: dict[str, tuple[type[T.DataType], ...]] = {
    "bool": (T.BooleanType,),
    "int": (*_INTEGERS, T.DecimalType),
    "float": (*_INTEGERS, T.DecimalType, T.FloatType, T.DoubleType),
    "decimal": (*_INTEGERS, T.DecimalType),
    "bytes": (T.BinaryType, *_TEXTS),
    "text": _TEXTS,
    "json": _TEXTS,
    "date": (T.DateType, *_TEXTS),
    "time": (T.TimestampType, T.TimestampNTZType, *_TEXTS),
}


def spark_cast(type_: Type, col: Column, from_type: T.DataType, name: str) -> Column:
    """Return ``col`` cast to ``type_``.

    Args:
        from_type: type of ``col``.
        name: the column's name for errors.
    """
    if isinstance(from_type, T.NullType):
        return col.cast(type_.spark)
    if not isinstance(from_type, _SOURCES[type_.kind]):
        raise InvalidArgument(
            f"column {name} of type {type_.name} cannot be made from Spark's {from_type.simpleString()}",
            f"Cast it explicitly, for example CAST({name} AS {type_.spark}).",
        )
    match type_.kind:
        case "int":
            return _integer(type_, col, from_type, name)
        case "float":
            return _float(type_, col, from_type, name)
        case "decimal":
            return _refuse_lossy_cast(type_, col, _exactly(type_, col, from_type), name, _digits(type_))
        case "bytes" | "bool":
            return col.cast(type_.spark)
        case "text":
            return _text(type_, col, name)
        case "json":
            return _json(type_, col, name)
        case "date":
            day = _from_iso(ISO_DATE, col, "date") if isinstance(from_type, _TEXTS) else col
            in_range = F.unix_date(day).between(MIN_DAYS, MAX_DAYS)
            return _refuse_lossy_cast(
                type_,
                col,
                F.when(in_range, day),
                name,
                "Dates lie in the years 1 to 9999; as text they are in ISO form.",
            )
        case "time":
            return _time(type_, col, from_type, name)


def _refuse_lossy_cast(
    type_: Type, col: Column, converted: Column, name: str, hint: str, *, shown: Column | None = None
) -> Column:
    """Return ``converted``. Its evaluation raises an error for a value of ``col`` that does not fit.

    Args:
        converted: ``col`` in the type ``type_``, NULL for values that do not fit.
        shown: the value in the error message. None: ``col``.
    """
    text = F.substring(F.coalesce((col if shown is None else shown).cast("string"), F.lit("?")), 1, 60)
    error = refuse(InvalidArgument, hint, f"column {name} of type {type_.name} cannot hold the value ", text)
    return F.when(col.isNull() | converted.isNotNull(), converted).otherwise(error.cast(type_.spark))


def _exactly(type_: Type, col: Column, from_type: T.DataType) -> Column:
    """Return ``col`` cast to ``type_``, or NULL if casting back does not give the same value.

    So rounding, truncation and overflow are detected.
    """
    there = col.try_cast(type_.spark)
    return F.when(there.try_cast(from_type) == col, there)


def _digits(type_: Type) -> str:
    whole = type_.precision - type_.scale
    return f"{type_.name} holds {whole} digits before the point and {type_.scale} after it, exactly."


def _integer(type_: Type, col: Column, from_type: T.DataType, name: str) -> Column:
    if (
        (bits := _BITS.get(type(from_type)))
        and type_.min <= -(2 ** (bits - 1))
        and 2 ** (bits - 1) - 1 <= type_.max
    ):
        return col.cast(type_.spark)
    low, high = (F.lit(str(bound)).cast(type_.spark) for bound in (type_.min, type_.max))
    there = _exactly(type_, col, from_type)
    return _refuse_lossy_cast(
        type_,
        col,
        F.when(there.between(low, high), there),
        name,
        f"{type_.name} goes from {type_.min} to {type_.max}.",
    )


def _float(type_: Type, col: Column, from_type: T.DataType, name: str) -> Column:
    if isinstance(from_type, _INTEGERS):
        there = col.cast(type_.spark)
        # Exclude 2**63: it is cast back to 2**63 - 1, so the comparison would not detect the loss.
        exact = (there < F.lit(2.0**63)) & (there.try_cast("bigint") == col)
        return _refuse_lossy_cast(
            type_, col, F.when(exact, there), name, f"{type_.name} cannot hold this integer exactly."
        )
    there = col.cast(type_.spark)
    if type_.name == "Double" or not isinstance(from_type, T.DoubleType):
        return there
    infinity = F.lit(float("inf"))
    fits = (F.abs(there) != infinity) | (F.abs(col) == infinity)
    return _refuse_lossy_cast(
        type_, col, F.when(fits, there), name, f"It is beyond the range of {type_.name}."
    )


def _text(type_: Type, col: Column, name: str) -> Column:
    plain = col.cast("string")  # A collation would change the hash and the order of the text.
    hint = "The text is not valid UTF-8."
    shown = F.hex(plain.cast("binary"))
    return _refuse_lossy_cast(type_, col, F.when(F.is_valid_utf8(plain), plain), name, hint, shown=shown)


def _json(type_: Type, col: Column, name: str) -> Column:
    plain = _text(type_, col, name)
    fault = F.udf(_fault_or_null(), T.StringType(), useArrow=False)(plain)
    return _refuse_lossy_cast(type_, col, F.when(fault.isNull(), plain), name, "It is not strict JSON.")


def _fault_or_null() -> Callable[[str | None], str | None]:
    find = json_fault_finder()

    def fault_or_null(text: str | None) -> str | None:
        return None if text is None else find(text)

    return fault_or_null


def _from_iso(pattern: str, col: Column, spark: str) -> Column:
    """Return the date or time of a text in ISO form, or NULL for other texts.

    A time without an offset is in UTC. The pattern is needed because Spark accepts many more formats.
    """
    plain = col.cast("string")
    return F.when(plain.rlike(rf"\A{pattern}\z"), plain.try_cast(spark))


def _time(type_: Type, col: Column, from_type: T.DataType, name: str) -> Column:
    instant = col
    if isinstance(from_type, T.TimestampNTZType):
        # A time without a zone is in UTC. A plain cast would use the session's zone.
        year, month, day, hour, minute, second = (
            F.extract(F.lit(part), col) for part in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
        )
        instant = F.make_timestamp(year, month, day, hour, minute, second, F.lit("UTC"))
    elif isinstance(from_type, _TEXTS):
        instant = _from_iso(ISO_TIME, col, "timestamp")
    micros = F.unix_micros(instant)
    fits = micros.between(MIN_SECONDS * 10**6, (MAX_SECONDS + 1) * 10**6 - 1)
    hint = (
        "Times lie in the years 1 to 9999; as text they are in ISO form, for example '2024-01-31T12:00:00Z'."
    )
    if type_.name == "Datetime":
        fits = fits & (micros % 10**6 == 0)
        hint = "Datetime has whole seconds in the years 1 to 9999; Timestamp has microseconds."
    shown = time_text(col) if isinstance(from_type, T.TimestampType) else None
    return _refuse_lossy_cast(type_, col, F.when(fits, instant), name, hint, shown=shown)
