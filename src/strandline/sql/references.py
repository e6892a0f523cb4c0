"""Table references in a query, with the clauses that YQL and Strandline allow after a table's name.

t VIEW index | t VERSION AS OF step | t TIMESTAMP AS OF 'time' | t IN BACKUP collection [AT 'backup']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime

from strandline.errors import InvalidArgument
from strandline.sql.at import At, parse_step, parse_time
from strandline.sql.cursor import TokenCursor
from strandline.sql.keywords import CLAUSES
from strandline.sql.tokens import BOUND, NAME, NUMBER, STRING, WORD, Token, quote, value

__all__ = ["TableRef", "has_extras", "read_at", "read_moment", "read_reference", "read_time"]

_FORM = (
    "FROM table [VIEW index] [VERSION AS OF step | TIMESTAMP AS OF 'time'] [IN BACKUP collection [AT "
    "'backup']] [AS alias]"
)


@dataclass(frozen=True)
class TableRef:
    """A table in a query.

    At most one of ``version``, ``timestamp`` and ``backup`` is given. Offsets are those in the query's text.

    Attributes:
        path: the absolute path of the table.
        name: the path as written.
        index: the index to read. None: the query names no index.
        version: the step to read the table at.
        timestamp: the time to read the table at, in UTC.
        backup: the collection and the backup to read the table from. A backup of None is the last one.
        alias: the alias in the query.
        start: the offset of the reference.
        end: the offset after the reference.
        alias_at: the offset at which an alias can be inserted.
    """

    path: str
    name: str
    _: KW_ONLY
    index: str | None = None
    version: int | None = None
    timestamp: datetime | None = None
    backup: tuple[str, str | None] | None = None
    alias: str | None = None
    start: int = 0
    end: int = 0
    alias_at: int = 0

    @property
    def is_now(self) -> bool:
        """Whether the reference reads the present state of the table."""
        return self.version is None and self.timestamp is None and self.backup is None

    @property
    def qualifier(self) -> str:
        """The name that qualifies columns of this table in the query."""
        return self.alias if self.alias is not None else self.name

    @property
    def text(self) -> str:
        """The reference as SQL text, without an alias."""
        parts = [quote(self.path)]
        if self.index is not None:
            parts.append(f"VIEW {quote(self.index)}")
        if self.version is not None:
            parts.append(f"VERSION AS OF {self.version}")
        if self.timestamp is not None:
            parts.append(f"TIMESTAMP AS OF '{self.timestamp.isoformat()}'")
        if self.backup is not None:
            collection, backup = self.backup
            parts.append(
                f"IN BACKUP {quote(collection)}" + ("" if backup is None else f" AT {quote(backup)}")
            )
        return " ".join(parts)


def read_reference(cursor: TokenCursor) -> TableRef:
    """Read the reference at the cursor, without its alias."""
    cursor.form = _FORM
    first = cursor.peek()
    written, path = cursor.name_and_path("a table name")
    ref = TableRef(path, written)
    while True:
        token = cursor.peek()
        if (index := _read_view(cursor)) is not None:
            if ref.index is not None:
                raise cursor.fault("VIEW is given twice", token=token)
            ref = replace(ref, index=index or None)
            continue
        changed = read_time(cursor, ref)
        if changed is None:
            break
        if not ref.is_now:
            raise cursor.fault("a table is read at one point in time or from one backup", token=token)
        ref = changed
    end = cursor.tokens[cursor.at - 1].end
    return replace(ref, start=first.start, end=end, alias_at=_behind_sample(cursor, end))


def _read_view(cursor: TokenCursor) -> str | None:
    """Read a VIEW clause; return the name of its index.

    The name is empty for VIEW PRIMARY KEY. Returns None if there is no VIEW clause.
    """
    following = cursor.peek(1)
    if not cursor.sees("VIEW") or not (
        following.kind == NAME or (following.kind == WORD and following.key not in CLAUSES)
    ):
        return None
    cursor.take()
    if cursor.accept("PRIMARY", "KEY"):
        return ""
    return cursor.name("the name of an index")


def read_time(cursor: TokenCursor, ref: TableRef) -> TableRef | None:
    """Read IN BACKUP, VERSION AS OF or TIMESTAMP AS OF; return a copy of ``ref`` with the clause.

    Returns None if there is no such clause.
    """
    if cursor.accept("IN", "BACKUP"):
        collection = cursor.collection()
        backup: str | None = None
        if cursor.accept("AT"):
            backup = cursor.string_or_name("the name of a backup")
        return replace(ref, backup=(collection, backup))
    if not any(
        cursor.sees(*optional, word, "AS", "OF")
        for optional in ((), ("FOR",))
        for word in ("VERSION", "TIMESTAMP")
    ):
        return None
    cursor.accept("FOR")
    word = cursor.take().key
    cursor.expect("AS", "OF")
    if word == "TIMESTAMP":
        return replace(ref, timestamp=read_moment(cursor))
    token = cursor.peek()
    step = value(token) if token.kind in (NUMBER, STRING) else None
    if isinstance(step, str):
        step = parse_step(step)
    if not isinstance(step, int):
        raise cursor.fault("expected a step number")
    cursor.take()
    return replace(ref, version=step)


def read_at(cursor: TokenCursor, *, or_backup: bool = False) -> At:
    """Read a step, a point in time, or with ``or_backup`` the name of a backup in quotes."""
    token = cursor.peek()
    if token.kind == NUMBER:
        step = value(token)
        if not isinstance(step, int):
            raise cursor.fault("expected a step number")
        cursor.take()
        return At(step=step)
    if or_backup and not cursor.sees("TIMESTAMP"):
        return At(backup=cursor.string_or_name("the name of a backup in quotes, or TIMESTAMP 'time'"))
    return At(time=read_moment(cursor))


def read_moment(cursor: TokenCursor) -> datetime:
    """Read a time in quotes, with or without the word TIMESTAMP; UTC unless it has an offset."""
    if cursor.peek(1).kind in (STRING, BOUND):
        cursor.accept("TIMESTAMP")
    token = cursor.peek()
    if isinstance(token.bound, datetime):
        cursor.take()
        return token.bound
    text = cursor.string("a time in quotes, such as '2026-01-31T12:00:00Z'")
    try:
        return parse_time(text)
    except InvalidArgument:
        raise cursor.fault(
            f"{text[:40]!r} is not a time", "Write it in ISO form: '2026-01-31T12:00:00Z'.", token
        ) from None


def _behind_sample(cursor: TokenCursor, end: int) -> int:
    """Return the offset at which an alias can be inserted.

    This is the end of the TABLESAMPLE clause at the cursor, because Spark expects an alias after this clause.
    Without such a clause, it is ``end``.

    Args:
        end: the offset after the table reference.
    """
    at = cursor.at
    while at < len(cursor.tokens) and cursor.tokens[at].key in ("TABLESAMPLE", "REPEATABLE"):
        depth, at = 0, at + 1
        while at < len(cursor.tokens):
            depth += {"(": 1, ")": -1}.get(cursor.tokens[at].key, 0)
            at += 1
            if depth <= 0:
                break
        end = cursor.tokens[at - 1].end
    return end


def has_extras(tokens: Sequence[Token], place: int) -> bool:
    """Return whether one of Strandline's clauses follows the name at ``place``.

    A LATERAL VIEW or an alias is not one of them.
    """
    if tokens[place].kind not in (WORD, NAME) or tokens[place].key in CLAUSES:
        return False
    keys = [token.key for token in tokens[place + 1 : place + 5]] + [""] * 4
    if keys[0] == "FOR":
        keys = [*keys[1:], ""]
    if keys[0] == "VIEW":
        following = tokens[place + 2] if place + 2 < len(tokens) else None
        return following is not None and (
            following.kind == NAME or (following.kind == WORD and following.key not in CLAUSES)
        )
    return keys[:2] == ["IN", "BACKUP"] or (keys[0] in ("VERSION", "TIMESTAMP") and keys[1:3] == ["AS", "OF"])
