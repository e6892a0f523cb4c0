"""Read and check the options of ``format("strandline")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.errors import InvalidArgument
from strandline.names import did_you_mean, normalize
from strandline.sql.references import TableRef
from strandline.storage.rows import Mode
from strandline.tables.time_travel import reference

MODES: Mapping[str, Mode] = {
    "upsert": "UPSERT",
    "insert": "INSERT",
    "replace": "REPLACE",
    "update": "UPDATE",
    "delete": "DELETE ON",
}
NAMES = (
    *("warehouse", "catalog", "path", "table", "at", "view", "backup", "columns"),
    *("mode", "txnId", "txnVersion", "changefeed", "key"),
    *("maxRowsPerBatch", "maxBytesPerBatch", "endStep"),
)
LIMITS = ("maxRowsPerBatch", "maxBytesPerBatch", "endStep")
"""Options that limit what a streaming query reads: whole numbers of at least 1."""
INDEX = "index."
"""Prefix of the options that name indexes of a new table."""
_DELTA = {
    **dict.fromkeys(("versionasof", "timestampasof"), 'Use option("at", step or time).'),
    **dict.fromkeys(("txnappid",), 'Use option("txnId", name).'),
    **dict.fromkeys(
        ("readchangefeed", "readchangedata"), 'Use option("changefeed", "/table/feed") in readStream.'
    ),
    **dict.fromkeys(
        ("mergeschema", "overwriteschema"), 'Use db.sql("ALTER TABLE ... ADD COLUMN ...") first.'
    ),
}
"""Hints for options of Delta, by name in lower case."""
SPARKS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark handles itself, but also passes to the source."""


@dataclass(frozen=True)
class Place:
    """The location of a warehouse, as Spark's processes see it."""

    warehouse: str
    catalog: str | None = None


@dataclass(frozen=True)
class Application:
    """The identity of an idempotent write.

    Attributes:
        writer: Name of the writer.
        version: Number of the write among the writes of this writer.
    """

    writer: str
    version: int


@dataclass(frozen=True)
class NewTableOptions:
    """How a write may create a missing table.

    Attributes:
        key: Columns of the primary key. None: the write may not create a table.
        indexes: Columns of each index, by the name of the index.
    """

    key: tuple[str, ...] | None
    indexes: Mapping[str, tuple[str, ...]]


class SourceOptions:
    """The options that the caller has set.

    Args:
        given: the options by name.
        default: the warehouse if the options do not name one. None: the option ``warehouse`` is required.
    """

    def __init__(self, given: Mapping[str, str], default: Place | None = None) -> None:
        known = {name.lower(): name for name in NAMES}
        self._given = {}
        self._indexes: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in known:
                self._given[known[name.lower()]] = value
            elif name.lower().startswith(INDEX) and len(name) > len(INDEX):
                self._indexes[name[len(INDEX) :]] = value
            elif name.lower() not in SPARKS:
                raise InvalidArgument(
                    f"the format strandline has no option {name!r}",
                    _DELTA.get(name.lower())
                    or did_you_mean(name, NAMES)
                    or f"Its options are {', '.join(NAMES)}.",
                )
        self._default = default

    @property
    def place(self) -> Place:
        warehouse = self._given.get("warehouse")
        if warehouse:
            return Place(warehouse, self._given.get("catalog"))
        if self._default is None:
            raise InvalidArgument(
                "the option warehouse is missing",
                'Set the folder or URL: option("warehouse", ...), or register(spark, warehouse).',
            )
        return self._default

    @property
    def path(self) -> str:
        """The table's path in the warehouse."""
        named = [self._given[name] for name in ("path", "table") if self._given.get(name)]
        if len(named) != 1:
            raise InvalidArgument(
                "the path of the table is missing" if not named else "the table is named twice",
                'Name it once, in load("/orders"), save("/orders") or option("table", "/orders").',
            )
        return normalize(named[0])

    @property
    def table(self) -> TableRef:
        """The table to read."""
        self._refuse(
            *("mode", "txnId", "txnVersion", "changefeed", "key", *LIMITS),
            because="says how rows are written or followed",
        )
        at, backup, view = (self._given.get(name) for name in ("at", "backup", "view"))
        return reference(self.path, at, backup, view=view, prefix="the option ")

    @property
    def columns(self) -> list[str] | None:
        """The columns to read. None: all columns."""
        text = self._given.get("columns")
        return None if text is None else _names(text)

    @property
    def new_table(self) -> NewTableOptions:
        """How to create a table that is missing."""
        key = self._given.get("key")
        indexes = {name: tuple(_names(text)) for name, text in self._indexes.items()}
        return NewTableOptions(None if key is None else tuple(_names(key)), indexes)

    @property
    def mode(self) -> Mode:
        """How rows are written."""
        self._refuse(
            *("at", "view", "backup", "columns", "changefeed", *LIMITS),
            because="does not say what is written",
        )
        text = self._given.get("mode", "upsert")
        if text.lower() not in MODES:
            raise InvalidArgument(
                f"the option mode cannot be {text!r}",
                did_you_mean(text, MODES) or f"It is one of {', '.join(MODES)}.",
            )
        return MODES[text.lower()]

    @property
    def application(self) -> Application | None:
        """The identity of the write from txnId and txnVersion. None: neither option is given."""
        writer, version = self._given.get("txnId"), self._given.get("txnVersion")
        if writer is None and version is None:
            return None
        if not writer or version is None or not (version.isascii() and version.isdigit()):
            raise InvalidArgument(
                "an idempotent write needs both options txnId and txnVersion",
                "Set a name of the writer in txnId, and a growing whole number in txnVersion.",
            )
        return Application(writer, int(version))

    @property
    def writer(self) -> str | None:
        """The name of the writer of a stream's batches. None: the id of the query is used."""
        if "txnVersion" in self._given:
            raise InvalidArgument("Spark numbers the batches of a stream", "Leave the option txnVersion out.")
        return self._given.get("txnId")

    @property
    def is_changefeed(self) -> bool:
        """Whether the option changefeed is given."""
        return "changefeed" in self._given

    @property
    def changefeed(self) -> str:
        """The path of the changefeed to read."""
        if not self._given.get("changefeed"):
            raise InvalidArgument(
                "a stream is read from a changefeed of a table",
                'Name it by its path: option("changefeed", "/orders/feed").',
            )
        others = ("path", "table", "key", "mode", "txnId", "txnVersion", "at", "view", "backup", "columns")
        self._refuse(*others, because="has no meaning for a changefeed")
        return normalize(self._given["changefeed"])

    def limit(self, name: str) -> int | None:
        """Return the value of one of ``LIMITS``. None: no limit."""
        text = self._given.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and int(text) > 0):
            raise InvalidArgument(
                f"the option {name} cannot be {text!r}", "Set a whole number of at least 1, or leave it out."
            )
        return None if text is None else int(text)

    def _refuse(self, *names: str, because: str) -> None:
        for name in names:
            if name in self._given:
                raise InvalidArgument(f"the option {name} {because}", "Leave it out here.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
