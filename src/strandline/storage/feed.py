"""What a stream shows of a table's changes, in the five modes.

A record has the step and the operation of a change, its key, and then: nothing more (KEYS_ONLY), the new row
(NEW_IMAGE), the row that was there before (OLD_IMAGE), both (NEW_AND_OLD_IMAGES), or the new values of those
columns that changed, with their names (UPDATES).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.model import Chain, Segment, TableSchema

__all__ = ["MODES", "STATEFUL_MODES", "Feed"]

FORMATS = ("JSON",)
MODES = ("KEYS_ONLY", "UPDATES", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")
STATEFUL_MODES = frozenset({"UPDATES", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"})
"""Modes that show what a row was before, for which the table's state at the beginning of the window is
needed."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The changes in ``(after, upto]`` of ``logs`` as ``mode`` shows them. ``before`` is the table's state at
    ``after``; None in modes that do not need it."""

    schema: TableSchema
    mode: str
    after: int
    upto: int
    logs: tuple[Segment, ...]
    before: Chain | None = None

    @property
    def values(self) -> list[str]:
        return [c.name for c in self.schema.value_columns]

    @property
    def step(self) -> str:
        return self._free("step")

    @property
    def op(self) -> str:
        return self._free("op")

    @property
    def changed(self) -> str:
        """The column that lists the names of changed columns, in mode UPDATES."""
        return self._free("changed")

    @property
    def old(self) -> Mapping[str, str]:
        """For each value column the name of the one that shows what it was, in mode NEW_AND_OLD_IMAGES."""
        return {name: self._free(f"old_{name}") for name in self.values}

    def _free(self, name: str) -> str:
        """Return a name that hides no column of the table, whatever its case."""
        taken = {n.lower() for n in self.schema.names}
        while name.lower() in taken:
            name = f"_{name}"
        return name
