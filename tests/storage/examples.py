"""Shared examples: schemas, values of every type, and tables with a model in plain dictionaries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from strandline.model import STEP, Chain, Digest, Key, Segment, State, TableSchema
from strandline.storage import segment
from strandline.storage.arrow.merge_logs import merge_logs
from strandline.storage.arrow.scan import scan
from strandline.storage.files import LocalFiles
from strandline.storage.keys import keys_of
from strandline.storage.rows import Mode
from strandline.storage.segment import Inline
from strandline.storage.segment_cache import SegmentCache
from strandline.types import Type, parse_type
from tests.quick_files import QuickFiles
from tests.storage.rowwise import Change, apply_write, is_fresh, log_table

Row = tuple[Any, ...]
_WIDE = Context(prec=60)


def schema(*columns: str, key: str) -> TableSchema:
    """Example: ``schema("k Int64 NOT NULL", "v Utf8", key="k")``."""
    parsed = [(c.split()[0], parse_type(c.split()[1]), c.endswith("NOT NULL")) for c in columns]
    return TableSchema.of(parsed, tuple(key.split()))


def values(type_: Type) -> st.SearchStrategy[Any]:
    """Generate canonical values that are not NULL. NaN is left out, because it does not equal itself."""
    match type_.kind:
        case "bool":
            return st.booleans()
        case "int":
            return st.integers(type_.min, type_.max) | st.integers(max(type_.min, -3), 3)
        case "float":
            return st.floats(allow_nan=False, width=32)
        case "decimal":
            limit = 10**type_.precision - 1
            return st.integers(-limit, limit).map(lambda n: Decimal(n).scaleb(-type_.scale, _WIDE))
        case "bytes":
            return st.binary(max_size=6)
        case "text":
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
        case "json":
            return st.sampled_from(["null", "{}", '{"a": [1]}'])
        case "date":
            return st.dates()
        case "time":
            moments = st.datetimes(timezones=st.just(timezone.utc))
            return moments.map(lambda t: t.replace(microsecond=0)) if type_.name == "Datetime" else moments


SCHEMAS = [
    schema("k Int64 NOT NULL", "v Utf8", "n Int32", key="k"),
    schema("v Double", "k Uint64", key="k"),
    schema("a Utf8", "b Int8", "x String", "y Json", "z Float", key="a b"),
    schema("a Bool", "b String", "c Decimal(38,10)", "x Timestamp", key="b a c"),
    schema("a Date", "b Datetime", "c Decimal(9,2)", "d Uint64", key="a b c"),
    schema("t Timestamp", "s Utf8", key="t s"),
]


@dataclass
class History:
    """A table written commit by commit: its segments, and the expected state at each step."""

    files: LocalFiles
    schema: TableSchema
    segments: list[Segment] = field(default_factory=list)
    states: list[dict[Key, Row]] = field(default_factory=lambda: [{}])
    digests: list[Digest] = field(default_factory=lambda: [Digest()])
    log: list[tuple[int, Change]] = field(default_factory=list)
    cache: SegmentCache = field(init=False)
    _names: Any = field(default_factory=lambda: itertools.count())

    def __post_init__(self) -> None:
        self.cache = SegmentCache(self.files)

    @property
    def step(self) -> int:
        return len(self.states) - 1

    def chain(self, step: int | None = None) -> Chain:
        return Chain(tuple(self.segments), self.step if step is None else step)

    def name(self) -> str:
        return f"t/{next(self._names)}.parquet"

    def write(self, mode: Mode, columns: Sequence[str], rows: Sequence[Row], inline: bool = True) -> None:
        """Commit at the next step."""
        changes = apply_write(self.schema, mode, columns, rows, self.states[-1])
        table, delta = log_table(self.schema, changes)
        step = self.step + 1
        self.segments.append(
            segment.write_segment(
                self.files,
                self.schema,
                table,
                name=self.name(),
                role="log",
                fresh=is_fresh(changes),
                stepped=False,
                after=step - 1,
                upto=step,
                inline=Inline(2000 if inline else 0, 1 << 18),
            )
        )
        state = dict(self.states[-1])
        for change in changes:
            self.log.append((step, change))
            if change.new is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.new
        self.states.append(state)
        self.digests.append(self.digests[-1] + delta)

    def merge(self, start: int, stop: int) -> None:
        """Replace the log segments ``start:stop`` by one."""
        merged = merge_logs(self.cache, self.schema, self.segments[start:stop], self.name())
        self.segments[start:stop] = [merged]

    def compact(self, count: int) -> None:
        """Replace the first ``count`` segments by a base with one row per key."""
        first = self.segments[:count]
        step = first[-1].upto
        last = {change.key: at for at, change in self.log if at <= step}
        state = scan(self.cache, State(self.schema, Chain(tuple(first), step)))
        keys = keys_of(self.schema, state)
        table = state.append_column(STEP, [[last[key] for key in keys]])
        self.segments[:count] = [
            segment.write_segment(
                self.files,
                self.schema,
                table,
                name=self.name(),
                role="base",
                fresh=True,
                stepped=True,
                upto=step,
            )
        ]


@st.composite
def histories(draw: st.DrawFn, root: Path, commits: int = 6) -> History:
    """Generate tables with random writes, some of them merged, the oldest perhaps compacted."""
    table = draw(st.sampled_from(SCHEMAS))
    key = st.tuples(
        *(values(c.type) if c.not_null else st.none() | values(c.type) for c in table.key_columns)
    )
    pool = draw(st.lists(key, min_size=1, max_size=12, unique=True))
    history = History(QuickFiles(root), table)
    for _ in range(draw(st.integers(1, commits))):
        modes: list[Mode] = ["UPSERT", "REPLACE", "UPDATE", "DELETE", "DELETE ON", "INSERT"]
        mode = draw(st.sampled_from(modes))
        keys = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=10))
        if mode == "INSERT":
            keys = [k for k in dict.fromkeys(keys) if k not in history.states[-1]]
        may_name = () if mode.startswith("DELETE") else table.value_columns
        named = draw(st.lists(st.sampled_from(may_name), unique=True)) if may_name else []
        rows = [(*k, *(draw(st.none() | values(c.type)) for c in named)) for k in keys]
        history.write(mode, [*table.key, *(c.name for c in named)], rows, inline=draw(st.booleans()))
    if draw(st.booleans()):
        start = draw(st.integers(0, len(history.segments) - 1))
        history.merge(start, draw(st.integers(start + 1, len(history.segments))))
    if draw(st.booleans()):
        history.compact(draw(st.integers(1, len(history.segments))))
    return history
