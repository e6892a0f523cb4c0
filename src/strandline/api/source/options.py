"""What ``option(...)`` may say to ``format("strandline")``, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.errors import InvalidArgument
from strandline.names import did_you_mean, normalize
from strandline.sql.references import TableRef
from strandline.storage.rows import Mode
from strandline.tables.moments import reference

MODES: Mapping[str, Mode] = {
    "upsert": "UPSERT",
    "insert": "INSERT",
    "replace": "REPLACE",
    "update": "UPDATE",
    "delete": "DELETE ON",
}
NAMES = (
    *("warehouse", "catalog", "path", "table", "at", "view", "backup", "columns"),
    *("mode", "txnId", "txnVersion", "changefeed"),
)
SPARKS = frozenset({"checkpointlocation", "queryname"})
"""Options of Spark's own, which it shows to the source as well."""


@dataclass(frozen=True)
class Place:
    """Where a warehouse is, as the processes of Spark see it."""

    warehouse: str
    catalog: str | None = None


@dataclass(frozen=True)
class Application:
    """A write that is done once, however often it is asked for: ``version`` of those of one ``writer``."""

    writer: str
    version: int


class Options:
    """``given``: what the caller says; ``default``: the place that counts if he names none."""

    def __init__(self, given: Mapping[str, str], default: Place | None = None) -> None:
        known = {name.lower(): name for name in NAMES}
        self._given = {}
        for name, value in given.items():
            if name.lower() in known:
                self._given[known[name.lower()]] = value
            elif name.lower() not in SPARKS:
                raise InvalidArgument(
                    f"the format strandline has no option {name!r}",
                    did_you_mean(name, NAMES) or f"Its options are {', '.join(NAMES)}.",
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
                'Name the folder or URL: option("warehouse", ...), or register(spark, warehouse).',
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
        """What is to be read."""
        self._refuse(
            "mode", "txnId", "txnVersion", "changefeed", because="says how rows are written or followed"
        )
        at, backup, view = (self._given.get(name) for name in ("at", "backup", "view"))
        return reference(self.path, at, backup, view=view, prefix="the option ")

    @property
    def columns(self) -> list[str] | None:
        """The columns that are to be read; None: all."""
        text = self._given.get("columns")
        return None if text is None else [name.strip() for name in text.split(",")]

    @property
    def mode(self) -> Mode:
        """What is to be done with rows."""
        self._refuse("at", "view", "backup", "columns", "changefeed", because="does not say what is written")
        text = self._given.get("mode", "upsert")
        if text.lower() not in MODES:
            raise InvalidArgument(
                f"the option mode cannot be {text!r}",
                did_you_mean(text, MODES) or f"It is one of {', '.join(MODES)}.",
            )
        return MODES[text.lower()]

    @property
    def application(self) -> Application | None:
        """Which write it is, if the caller counts them."""
        writer, version = self._given.get("txnId"), self._given.get("txnVersion")
        if writer is None and version is None:
            return None
        if not writer or version is None or not (version.isascii() and version.isdigit()):
            raise InvalidArgument(
                "a write that is to be done once needs the options txnId and txnVersion",
                "Give the writer a name in txnId, and a whole number that grows in txnVersion.",
            )
        return Application(writer, int(version))

    @property
    def writer(self) -> str | None:
        """The name by which batches of a stream are known, if not by the id of the query."""
        if "txnVersion" in self._given:
            raise InvalidArgument(
                "the batches of a stream are counted by Spark", "Leave the option txnVersion out."
            )
        return self._given.get("txnId")

    @property
    def is_changefeed(self) -> bool:
        """Whether a changefeed is named."""
        return "changefeed" in self._given

    @property
    def changefeed(self) -> str:
        """The path of the changefeed that is followed."""
        if not self._given.get("changefeed"):
            raise InvalidArgument(
                "a table is followed by one of its changefeeds",
                'Name it by its path: option("changefeed", "/orders/feed").',
            )
        others = ("path", "table", "mode", "txnId", "txnVersion", "at", "view", "backup", "columns")
        self._refuse(*others, because="has no meaning for a changefeed")
        return normalize(self._given["changefeed"])

    def _refuse(self, *names: str, because: str) -> None:
        for name in names:
            if name in self._given:
                raise InvalidArgument(f"the option {name} {because}", "Leave it out here.")
