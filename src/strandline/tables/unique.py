"""Unique indexes: no two rows of a table have the same key in one.

1. A transaction is checked at its commit, after all statements. So rows may exchange their keys within it.
2. Keys that others commit at the same time are found when the commit checks for conflicts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from strandline.catalog.tables import TableInfo
from strandline.errors import PreconditionFailed
from strandline.model import IndexDef, Key, Segment, State
from strandline.storage.keys import key_text
from strandline.storage.order import Finding
from strandline.storage.store import Store
from strandline.storage.unique_violations import Repeats

_HINT = "Give one of the rows another value, or NULL. Rows may exchange their keys within one transaction."


@dataclass(frozen=True)
class UniqueIndex:
    """A unique index of a table, and its entries."""

    table: TableInfo
    index: IndexDef
    entries: State

    @property
    def width(self) -> int:
        """Number of leading key columns of the entries that are the key of the index."""
        return len(self.index.columns)

    def check(self, store: Store, brought: Sequence[Segment] | None = None) -> None:
        """Refuse entries with the same key.

        ``brought``: segments that follow the entries; then only keys in these segments are checked.
        """
        state = self.entries
        if brought is not None:
            state = replace(state, chain=state.chain.plus(tuple(brought)))
        repeats = store.checks.find_repeated_keys(state, self.width, brought)
        if repeats is not None:
            raise PreconditionFailed(self._violation(repeats), _HINT)

    def findings(self, store: Store) -> list[Finding]:
        """Return a finding if entries have the same key."""
        repeats = store.checks.find_repeated_keys(self.entries, self.width)
        if repeats is None:
            return []
        keys = tuple(key for pair in repeats.pairs for key in pair)
        return [Finding("doubled_index_key", self._violation(repeats), keys)]

    def meets(self, store: Store, brought: Sequence[Segment], touched: Collection[Key]) -> bool:
        """Return whether segments share a key with the entries ``touched`` by others."""
        return store.begins_like(self.entries.schema, brought, touched, self.width)

    def _violation(self, repeats: Repeats) -> str:
        said = "; ".join(self._pair(*pair) for pair in repeats.pairs)
        more = repeats.count - len(repeats.pairs)
        rest = f"; and {more} more" if more else ""
        keys = "a key is" if repeats.count == 1 else f"{repeats.count} keys are"
        return (
            f"{keys} in more than one row of {self.table.path}, whose index {self.index.name} is unique: "
            f"{said}{rest}"
        )

    def _pair(self, one: Key, other: Key) -> str:
        index = key_text(self.index.columns, one[: self.width])
        return f"{index} in the rows {self._row(one)} and {self._row(other)}"

    def _row(self, entry: Key) -> str:
        values = dict(zip(self.entries.schema.key, entry, strict=True))
        key = self.table.schema.key
        return key_text(key, [values[name] for name in key])
