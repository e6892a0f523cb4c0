"""Tab completion in the shell: keywords, and names of tables, columns, indexes and collections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from strandline.cli.completion import COLLECTIONS
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.api import Database

_KEYWORDS = """
ADD ALTER AND AS ASC ASYNC AT ATTACH BACKUP BACKUPS BETWEEN BIN BY CASE CHANGEFEED CHECK COLLECTION
COLLECTIONS COLUMN CONFIRM COPY COVER CREATE DAILY DATABASE DELETE DESC DESCRIBE DISTINCT DROP ELSE END
EXISTS EXPLAIN FROM FULL GLOBAL GROUP HAVING HISTORY IF IN INCREMENTAL INDEX INNER INSERT INTO IS JOIN
KEEP KEY LAST LEFT LIKE LIMIT MATCHED MERGE MONTHLY NOT NOWAIT NULL OF ON OPERATION OPERATIONS OPTIMIZE
OR ORDER PIN PRIMARY PRUNE PURGE REPAIR REPLACE RESET RESTORE SELECT SET SHOW SYNC TABLE TABLES THEN
TIMESTAMP UNDROP UNION UNIQUE UNPIN UPDATE UPSERT USING VACUUM VALUES VERIFY VERSIONS VIEW WAREHOUSE
WEEKLY WHEN WHERE WITH WITHIN YEARLY
Bool Int8 Int16 Int32 Int64 Uint8 Uint16 Uint32 Uint64 Float Double Decimal String Utf8 Json Date
Datetime
"""
KEYWORDS = tuple(_KEYWORDS.split())
COMMANDS = ("\\d", "\\dt", "\\db", "\\do", "\\i", "\\timing", "\\?", "\\q")

_TABLE_FOLLOWS = {
    "FROM",
    "HISTORY",
    "INTO",
    "OPTIMIZE",
    "USING",
    "VACUUM",
    "JOIN",
    "OF",
    "TABLE",
    "UPDATE",
    "DESCRIBE",
    "\\D",
}
_COLLECTION_FOLLOWS = {"BACKUP", "PRUNE", "REPAIR", "RESTORE", "VERIFY", "COLLECTION", "BACKUPS", "\\DB"}
_WORD = re.compile(r"[\w/.\\`]*$")
_SPLIT = re.compile(r"[\s,()]+")


class SqlCompleter(Completer):
    """Looks up names in the catalog at each Tab, so that new tables are offered at once."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        found = _WORD.search(before)
        word = found[0] if found else ""
        for text, meta in self._candidates(before, word):
            yield Completion(text, start_position=-len(word), display_meta=meta)

    def _candidates(self, before: str, word: str) -> Iterator[tuple[str, str]]:
        if before.lstrip().startswith("\\") and " " not in before.lstrip():
            yield from ((c, "command") for c in COMMANDS if c.startswith(word))
            return
        said = [part.upper() for part in _SPLIT.split(before[: len(before) - len(word)]) if part]
        previous = said[-1] if said else ""
        if previous == "IN" and len(said) > 1 and said[-2] == "BACKUPS":
            previous = "BACKUPS"
        try:
            of_a_statement = (
                previous == "BACKUP"
                and said[-2:-1]
                and said[-2] in ("ATTACH", "CREATE", "ALTER", "COPY", "DROP", "SHOW")
            )
            if previous in _COLLECTION_FOLLOWS and not of_a_statement:
                yield from self._match(word, ((e.name, "collection") for e in self._db.ls(COLLECTIONS)))
                return
            if previous in _TABLE_FOLLOWS:
                yield from self._match(word, self._paths(word))
                return
            yield from self._match(word, self._names(before))
        except StrandlineError:
            pass  # The directory does not exist.
        if word and not word.startswith("`"):
            yield from ((k, "") for k in KEYWORDS if k.upper().startswith(word.upper()))

    def _match(self, word: str, names: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        typed = word.strip("`").lower()
        seen = set()
        for name, meta in names:
            if name.lower().startswith(typed) and name not in seen:
                seen.add(name)
                yield (name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name}`"), meta

    def _paths(self, word: str) -> Iterator[tuple[str, str]]:
        """Yield paths and types one level below the typed directory."""
        directory = word.strip("`").rpartition("/")[0]
        for entry in self._db.ls(directory or "/"):
            path = entry.path if word.strip("`").startswith("/") else entry.path[1:]
            yield path, entry.type

    def _names(self, before: str) -> Iterator[tuple[str, str]]:
        """Yield columns and indexes of the tables in the statement."""
        for word in dict.fromkeys(re.findall(r"`[^`]+`|[\w/]+", before)):
            try:
                found = self._db.describe(word.strip("`"))
            except StrandlineError:
                continue
            if found["type"] == "table":
                yield from ((c["name"], c["type"]) for c in found["columns"])
                yield from ((i["name"], "index") for i in found["indexes"])
