"""The names of types, and their physical form in files."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from strandline.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["bool", "int", "float", "decimal", "bytes", "text", "json", "date", "time"]


@dataclass(frozen=True)
class Type:
    """A column type. Types with the same name are equal, because the name determines all other fields.

    Attributes:
        arrow, spark: the physical type in files.
        min, max: the smallest and the largest value of an integer type.
        precision, scale: precision and scale of a decimal type.
    """

    name: str
    kind: Kind = field(compare=False)
    spark: str = field(compare=False, repr=False)
    _: KW_ONLY
    orderable: bool = field(default=True, compare=False, repr=False)
    """Whether the type may be part of a primary key or an index key."""
    min: int = field(default=0, compare=False, repr=False)
    max: int = field(default=0, compare=False, repr=False)
    precision: int = field(default=0, compare=False, repr=False)
    scale: int = field(default=0, compare=False, repr=False)

    @cached_property
    def arrow(self) -> pa.DataType:
        # Imported late, because Arrow is slow to load and describing a table needs only names of types.
        from strandline.types.arrays import physical_type

        return physical_type(self.spark)

    def __str__(self) -> str:
        return self.name


def _integer(bits: int, signed: bool, spark: str) -> Type:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Type(f"{'Int' if signed else 'Uint'}{bits}", "int", spark, min=low, max=high)


_SIMPLE = (
    Type("Bool", "bool", "boolean"),
    _integer(8, True, "tinyint"),
    _integer(16, True, "smallint"),
    _integer(32, True, "int"),
    _integer(64, True, "bigint"),
    _integer(8, False, "smallint"),
    _integer(16, False, "int"),
    _integer(32, False, "bigint"),
    _integer(64, False, "decimal(20,0)"),
    Type("Float", "float", "float", orderable=False),
    Type("Double", "float", "double", orderable=False),
    Type("String", "bytes", "binary"),
    Type("Utf8", "text", "string"),
    Type("Json", "json", "string", orderable=False),
    Type("Date", "date", "date"),
    Type("Datetime", "time", "timestamp"),
    Type("Timestamp", "time", "timestamp"),
)
_NAMED = {type_.name.lower(): type_ for type_ in _SIMPLE if type_.name != "String"}
_SYNONYMS = {
    "boolean": "bool",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "real": "float",
    "text": "utf8",
    "string": "utf8",
    "timestamp_ltz": "timestamp",
}
_STRING = next(type_ for type_ in _SIMPLE if type_.name == "String")
_DECIMAL = re.compile(
    r"(?:decimal|numeric|dec)\s*\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)", re.IGNORECASE
)
_KNOWN = [type_.name for type_ in _SIMPLE] + ["Decimal(p,s)"]


@lru_cache(maxsize=1024)
def parse_type(text: str) -> Type:
    """Return the type with this name. For an unknown name, raise InvalidArgument with similar names."""
    name = text.strip()
    if name == "String" or name.lower() in ("bytes", "binary"):
        return _STRING
    lower = name.lower()
    if found := _NAMED.get(_SYNONYMS.get(lower, lower)):
        return found
    if match := _DECIMAL.fullmatch(name):
        return _decimal(name, int(match[1]), int(match[2] or 0))
    if lower in ("decimal", "numeric", "dec"):
        raise InvalidArgument(
            f"type {name} lacks its precision and scale", "Write them out, for example Decimal(22,9)."
        )
    by_lower = (
        {known.lower(): known for known in _KNOWN}
        | {"binary": "binary", "bytes": "bytes"}
        | {s: s for s in _SYNONYMS}
    )
    close = [by_lower[match] for match in get_close_matches(lower, by_lower, n=3, cutoff=0.6)]
    if re.match(r"(var)?char", lower):
        close = ["Utf8"]
    did = f"Did you mean {' or '.join(close)}? " if close else ""
    raise InvalidArgument(f"there is no type {name[:60]!r}", f"{did}The types are {', '.join(_KNOWN)}.")


def _decimal(text: str, precision: int, scale: int) -> Type:
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise InvalidArgument(
            f"type {text} has a precision or scale out of range",
            "Decimal(p,s) needs 1 <= p <= 38 and 0 <= s <= p.",
        )
    return Type(
        f"Decimal({precision},{scale})",
        "decimal",
        f"decimal({precision},{scale})",
        precision=precision,
        scale=scale,
    )
