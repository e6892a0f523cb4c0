"""Changefeed modes: which columns a stream's records have.

Each record has the step, the operation and the key of a change. Each mode adds:

- KEYS_ONLY: nothing.
- NEW_IMAGE: the new row.
- OLD_IMAGE: the row before the change.
- NEW_AND_OLD_IMAGES: both rows.
- UPDATES: the new values of the columns that changed, and the names of these columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.model import Chain, Segment, TableSchema

__all__ = ["MODES", "STATEFUL_MODES", "Feed"]

FORMATS = ("JSON",)
MODES = ("KEYS_ONLY", "UPDATES", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")
STATEFUL_MODES = frozenset({"UPDATES", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"})
"""Modes whose records depend on old rows. They need the table's state at the beginning of the window."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The changes in a range of steps, as the records of one mode.

    Attributes:
        schema: the schema of the table.
        mode: one of ``MODES``.
        after: the step before the first step of the range.
        upto: the last step of the range.
        logs: the segments with the changes in ``(after, upto]``.
        before: the chain of the table's state at ``after``. None: the mode does not need old rows.
    """

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
        """Name of the column that lists the changed columns in mode UPDATES."""
        return self._free("changed")

    @property
    def old(self) -> Mapping[str, str]:
        """Names of the columns with the old values in mode NEW_AND_OLD_IMAGES, by value column."""
        return {name: self._free(f"old_{name}") for name in self.values}

    def _free(self, name: str) -> str:
        """Return ``name``, prefixed with underscores until no column of the table has that name.

        Case is ignored.
        """
        taken = {n.lower() for n in self.schema.names}
        while name.lower() in taken:
            name = f"_{name}"
        return name
