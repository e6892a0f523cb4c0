"""``--param name=value``: values of the parameters of statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.errors import InvalidArgument, StrandlineError
from strandline.sql.evaluate.literals import NotConstant, literal
from strandline.sql.syntax import parse_expression


def values_of(given: Sequence[str]) -> dict[str, Any] | None:
    """Parse ``NAME=VALUE`` texts; return the values by name, or None if no text is given."""
    found: dict[str, Any] = {}
    for item in given:
        name, sign, text = item.partition("=")
        if not sign or not name.isidentifier():
            raise InvalidArgument(f"{item!r} is not NAME=VALUE", "Write --param name=value.")
        if name in found:
            raise InvalidArgument(f"the parameter {name} is given twice", "Give each once.")
        found[name] = _value(text)
    return found or None


def _value(text: str) -> Any:
    """Return the value of a SQL literal, such as 5, NULL or '5'. Any other text is returned unchanged."""
    try:
        return literal(parse_expression(text))
    except (NotConstant, StrandlineError):
        return text
