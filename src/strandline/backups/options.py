"""Options in the WITH clause of statements that begin an operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.errors import InvalidArgument
from strandline.names import did_you_mean
from strandline.settings import Limits
from strandline.sql import statements as st

RATE, COPIES = "MAX_BYTES_PER_SECOND", "COPIES"
LIMITS = (RATE, COPIES)
MOST_COPIES = 1000


def options_of(statement: str, settings: Sequence[st.Setting], known: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a statement by name. Refuse unknown names and duplicates."""
    given: dict[str, Any] = {}
    for name, value in settings:
        if name not in known:
            raise InvalidArgument(
                f"{statement} has no setting {name}",
                did_you_mean(name, known) or f"It has {', '.join(known)}.",
            )
        if name in given:
            raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
        given[name] = value
    return given


def limits_of(given: Mapping[str, Any], usual: Limits) -> Limits:
    """Return the limits of an operation: those given in its statement, otherwise those of ``usual``."""
    rate, copies = given.get(RATE), given.get(COPIES)
    return Limits(
        bytes_per_second=usual.bytes_per_second if rate is None else _number(RATE, rate, 0, 1e15),
        copies=usual.copies if copies is None else int(_number(COPIES, copies, 1, MOST_COPIES, whole=True)),
    )


def _number(name: str, value: Any, least: float, most: float, *, whole: bool = False) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not least <= number <= most or (whole and number != int(number)):
        raise InvalidArgument(
            f"{name} cannot be {value!r}",
            f"Give a {'whole ' if whole else ''}number from {least:g} to {most:g}"
            + ("; 0 means no limit." if least == 0 else "."),
        )
    return number
