"""Settings shared by all processes of a warehouse, such as how long history is kept.

The catalog stores these settings. A collector reads them in the transaction in which it collects, so every
process collects by the same values. The rules:

1. The process that creates a warehouse stores the values that it requests. For a setting without a stored
   value, the default is used (``settings.SHARED``).
2. A process that requests a larger value than the present one raises the stored value when it connects.
3. A process that requests a smaller value gets the present one.
4. Only ALTER WAREHOUSE SET and RESET lower a value. A lower ``grace_seconds`` takes effect after the former
   grace period has passed: until then, other processes may rely on the former value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer
from strandline.errors import InvalidArgument
from strandline.names import did_you_mean
from strandline.settings import SHARED, Settings, check_number

_ALL = select(sqltables.settings)


@dataclass(frozen=True, kw_only=True)
class WarehouseSettings:
    """The settings in effect in a warehouse; ``Settings`` describes each of them."""

    history_seconds: float
    version_history_seconds: float
    operation_history_seconds: float
    grace_seconds: float
    bin_seconds: float
    repository_grace_seconds: float
    audit_seconds: float


def settings_at(conn: Connection, now: float) -> WarehouseSettings:
    """Return the settings that are in effect at the time ``now``."""
    values = dict(SHARED)
    for row in conn.execute(_ALL):
        if row.name in values:
            is_lowered = row.former is not None and now < row.former_until
            values[row.name] = max(row.value, row.former) if is_lowered else row.value
    return WarehouseSettings(**values)


def read_stored_settings(conn: Connection) -> dict[str, float]:
    """Return the stored values by name. Settings without a stored value have their default."""
    return {row.name: row.value for row in conn.execute(_ALL) if row.name in SHARED}


def add_first(conn: Connection, values: Mapping[str, float]) -> None:
    """Store the values of a new warehouse."""
    if values:
        rows = [{"name": name, "value": value} for name, value in values.items()]
        conn.execute(insert(sqltables.settings), rows)


def raise_settings(tx: Writer, wanted: Mapping[str, float]) -> dict[str, float]:
    """Store the wanted values that are larger than the present ones, and return these."""
    present = {**SHARED, **read_stored_settings(tx.conn)}
    larger = {name: value for name, value in wanted.items() if value > present[name]}
    set_settings(tx, larger)
    return larger


def set_settings(tx: Writer, values: Mapping[str, float]) -> None:
    """Store values, whether they are larger or smaller than the present ones."""
    for name, value in values.items():
        _replace(tx, name, value)


def reset_settings(tx: Writer, names: Iterable[str]) -> None:
    """Reset settings to their defaults."""
    for name in names:
        _replace(tx, name, SHARED[name])
        at = sqltables.settings.c
        tx.conn.execute(delete(sqltables.settings).where(at.name == name, at.former.is_(None)))


def _replace(tx: Writer, name: str, value: float) -> None:
    at = sqltables.settings.c
    row: dict[str, Any] = {"name": name, "value": value}
    if name == "grace_seconds":
        former = settings_at(tx.conn, tx.now).grace_seconds
        if former > value:
            row |= {"former": former, "former_until": tx.now + former}
    tx.conn.execute(delete(sqltables.settings).where(at.name == name))
    tx.conn.execute(insert(sqltables.settings).values(**row))


def read_value(name: str, value: object) -> tuple[str, float]:
    """Check name and value of a setting from a statement or a command, and return both in stored form."""
    known = check_name(name)
    number: object = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            number = float(value)
    elif isinstance(value, Decimal):
        number = float(value)
    check_number(known, number)
    assert isinstance(number, int | float)
    return known, float(number)


def check_name(name: str) -> str:
    """Return the lower-case name of a warehouse setting; refuse any other name."""
    known = name.lower()
    if known not in SHARED and known in {each.name for each in fields(Settings)}:
        raise InvalidArgument(
            f"{known} is a setting of each process, not of the warehouse",
            "Pass it to connect(..., settings=Settings(...)), or write it into strandline.toml.",
        )
    if known not in SHARED:
        upper = [each.upper() for each in SHARED]
        raise InvalidArgument(
            f"a warehouse has no setting {name}",
            did_you_mean(name.upper(), upper) or f"It has {', '.join(upper)}.",
        )
    return known
