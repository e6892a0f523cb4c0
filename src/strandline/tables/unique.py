"""Check unique indexes: no two rows of a table may have the same key of the index.

1. A transaction is checked at its commit, after all statements. So rows may exchange their keys within it.
2. If another transaction commits the same key at the same time, the commit finds it as a conflict.
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
        """Number of leading key columns of an entry that form the key of the index."""
        return len(self.index.columns)

    def check(self, store: Store, brought: Sequence[Segment] | None = None) -> None:
        """Raise PreconditionFailed if several entries have the same key of the index.

        Args:
            brought: new segments to append to the entries; only keys that are new in them are checked. None:
                check all entries.
        """
        state = self.entries
        if brought is not None:
            state = replace(state, chain=state.chain.plus(tuple(brought)))
        repeats = store.checks.find_repeated_keys(state, self.width, brought)
        if repeats is not None:
            raise PreconditionFailed(self._violation(repeats), _HINT)

    def findings(self, store: Store) -> list[Finding]:
        """Return one finding if entries have the same key of the index, otherwise an empty list."""
        repeats = store.checks.find_repeated_keys(self.entries, self.width)
        if repeats is None:
            return []
        keys = tuple(key for pair in repeats.pairs for key in pair)
        return [Finding("doubled_index_key", self._violation(repeats), keys)]

    def meets(self, store: Store, brought: Sequence[Segment], touched: Collection[Key]) -> bool:
        """Return True if new entries have the same key of the index as entries that others have changed.

        Args:
            brought: segments with the new entries.
            touched: keys of the entries that others have changed.
        """
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
