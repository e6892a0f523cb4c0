"""Reads the settings of a statement: those in WITH (...), or those that a Python call passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import InvalidArgument
from strandline.names import did_you_mean

if TYPE_CHECKING:
    from strandline.sql.statements import Setting, SettingValue

__all__ = ["StatementOptions", "read_boolean"]

C = TypeVar("C", bound=str)


class StatementOptions:
    """Settings by name. A name that is not known, or is given twice, is refused."""

    def __init__(self, statement: str, settings: Sequence[Setting], known: Sequence[str]) -> None:
        self._given: dict[str, SettingValue] = {}
        for name, value in settings:
            if name not in known:
                raise InvalidArgument(
                    f"{statement} has no setting {name}",
                    did_you_mean(name, known) or f"It has {', '.join(known)}.",
                )
            if name in self._given:
                raise InvalidArgument(f"the setting {name} is given twice", "Give each setting once.")
            self._given[name] = value

    def get(self, name: str) -> SettingValue | None:
        """Return a value as it was written; None if the setting is not given."""
        return self._given.get(name)

    def boolean(self, name: str) -> bool | None:
        """Return true or false; None if the setting is not given."""
        return read_boolean(name, self._given[name]) if name in self._given else None

    def choice(self, name: str, choices: Sequence[C]) -> C:
        """Return the one of ``choices`` that the setting names, regardless of case.

        Return the first choice if the setting is not given.
        """
        value = self._given.get(name, choices[0])
        found = next((each for each in choices if each.lower() == str(value).lower()), None)
        if found is None:
            raise InvalidArgument(
                f"{name} cannot be {value!r}", f"It is one of {', '.join(map(repr, choices))}."
            )
        return found

    def number(self, name: str, least: float, most: float, *, whole: bool = False) -> float | None:
        """Return a number in a range; None if the setting is not given."""
        value = self._given.get(name)
        if value is None:
            return None
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


def read_boolean(name: str, value: object) -> bool:
    """Parse the value of a setting that is true or false."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} must be 'true' or 'false', not {value!r}", f"Write {name} = 'true'.")
    return text == "true"
