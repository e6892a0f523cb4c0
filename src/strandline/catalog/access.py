"""Tokens and browser sessions of the service, and the audit log.

A token is ``sl_<id>_<secret>``. The catalog stores the id and the SHA-256 of the secret. The secret is
random, so a plain hash is enough: it cannot be guessed from the hash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from strandline.catalog import sqltables
from strandline.catalog.transactions import Writer
from strandline.errors import PathNotFound, PreconditionFailed

_TOKEN = sqltables.tokens.c
_WEB = sqltables.web_sessions.c
_AUDIT = sqltables.audit.c

DETAILS = 2000
"""Maximum number of characters of an audit entry's details."""

# Built once: every request to the service reads its token.
_FIND = select(sqltables.tokens)
_FIND_WEB = _FIND.join(sqltables.web_sessions, _WEB.token_id == _TOKEN.id)


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """A stored token.

    Attributes:
        paths: path prefixes that the token may use. None: all paths.
        hash: the SHA-256 of the secret part, in hex.
    """

    id: str
    name: str
    role: str
    paths: tuple[str, ...] | None
    hash: str
    created: float
    expires: float | None
    revoked: float | None

    def is_valid(self, now: float) -> bool:
        """Whether the token is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def _token_of(row: Row[Any]) -> TokenRow:
    values = row._asdict()
    paths = values["paths"]
    return TokenRow(**{**values, "paths": None if paths is None else tuple(json.loads(paths))})


def add_token(tx: Writer, token: TokenRow) -> None:
    paths = None if token.paths is None else json.dumps(token.paths)
    tx.conn.execute(insert(sqltables.tokens), {**vars(token), "paths": paths})


def list_tokens(conn: Connection) -> list[TokenRow]:
    """Return all tokens, oldest first."""
    return [_token_of(row) for row in conn.execute(_FIND.order_by(_TOKEN.created, _TOKEN.id))]


def find_token(conn: Connection, token_id: str) -> TokenRow | None:
    row = conn.execute(_FIND.where(_TOKEN.id == token_id)).one_or_none()
    return None if row is None else _token_of(row)


def revoke_token(tx: Writer, token_id: str) -> TokenRow:
    """Revoke a token and end its browser sessions; return the revoked token."""
    found = find_token(tx.conn, token_id)
    if found is None:
        raise PathNotFound(f"there is no token {token_id!r}", "List the tokens: strandline token list.")
    if found.revoked is not None:
        raise PreconditionFailed(
            f"the token {token_id!r} is revoked already", "List the tokens: strandline token list."
        )
    tx.conn.execute(update(sqltables.tokens).where(_TOKEN.id == token_id).values(revoked=tx.now))
    tx.conn.execute(delete(sqltables.web_sessions).where(_WEB.token_id == token_id))
    return TokenRow(**{**vars(found), "revoked": tx.now})


def add_web_session(tx: Writer, session_hash: str, token_id: str, expires: float) -> None:
    """Store a browser session; delete expired ones."""
    tx.conn.execute(delete(sqltables.web_sessions).where(_WEB.expires <= tx.now))
    row = {"hash": session_hash, "token_id": token_id, "created": tx.now, "expires": expires}
    tx.conn.execute(insert(sqltables.web_sessions), row)


def find_web_session(conn: Connection, session_hash: str, now: float) -> TokenRow | None:
    """Return the token of a browser session. None: the session does not exist or has expired."""
    row = conn.execute(_FIND_WEB.where(_WEB.hash == session_hash, _WEB.expires > now)).one_or_none()
    return None if row is None else _token_of(row)


def remove_web_session(tx: Writer, session_hash: str) -> None:
    tx.conn.execute(delete(sqltables.web_sessions).where(_WEB.hash == session_hash))


# --- audit --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """An entry of the audit log.

    Attributes:
        time: When the change began, in seconds since the epoch.
        token_id: Id of the token. None: the change was made without the service.
        principal: Name of the token, or user and host of a change without the service.
        remote: Address of the client; empty for a change without the service.
        action: Name of the method, such as ``Collection.backup``.
        target: What was changed: a path, a collection, a schedule, an operation or a token.
        details: Arguments of the call as JSON, without secrets.
        result: ``ok``, or the code of an error. None: the change began, and no result was recorded.
        operation_id: Operation that the change started.
    """

    id: int
    time: float
    token_id: str | None
    principal: str
    remote: str
    action: str
    target: str
    details: str
    result: str | None
    operation_id: str | None


def add_audit(
    tx: Writer,
    *,
    principal: str,
    action: str,
    target: str,
    details: str = "{}",
    token_id: str | None = None,
    remote: str = "",
    result: str | None = None,
) -> int:
    """Add an entry to the audit log; return its id."""
    row = {
        "time": tx.now,
        "token_id": token_id,
        "principal": principal,
        "remote": remote,
        "action": action,
        "target": target,
        "details": details[:DETAILS],
        "result": result,
        "operation_id": None,
    }
    (number,) = tx.conn.execute(insert(sqltables.audit).returning(_AUDIT.id), row).one()
    return int(number)


def finish_audit(tx: Writer, entry: int, result: str, operation_id: str | None) -> None:
    """Record the result of an audited change."""
    values = {"result": result, "operation_id": operation_id}
    tx.conn.execute(update(sqltables.audit).where(_AUDIT.id == entry), values)


def list_audit(
    conn: Connection, *, since: float | None, before: int | None, principal: str | None, limit: int
) -> list[AuditEntry]:
    """Return entries of the audit log, latest first.

    Args:
        since: only entries from this time on.
        before: only entries with a smaller id, to continue a list.
        principal: only entries of this name.
    """
    found = select(sqltables.audit)
    if since is not None:
        found = found.where(_AUDIT.time >= since)
    if before is not None:
        found = found.where(_AUDIT.id < before)
    if principal is not None:
        found = found.where(_AUDIT.principal == principal)
    rows = conn.execute(found.order_by(_AUDIT.id.desc()).limit(limit))
    return [AuditEntry(**row._mapping) for row in rows]


def forget_audit(tx: Writer, before: float, most: int) -> int:
    """Delete at most ``most`` entries older than ``before``; return their number."""
    old: Sequence[int] = (
        tx.conn.execute(select(_AUDIT.id).where(_AUDIT.time < before).order_by(_AUDIT.id).limit(most))
        .scalars()
        .all()
    )
    tx.conn.execute(delete(sqltables.audit).where(sqltables.among(_AUDIT.id, "ids")), {"ids": list(old)})
    return len(old)


def count_tokens(conn: Connection) -> int:
    """Return the number of tokens that exist, revoked and expired ones included."""
    return int(conn.execute(select(func.count()).select_from(sqltables.tokens)).scalar_one())
