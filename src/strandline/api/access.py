"""Tokens of the service and the audit log, in the public API."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from strandline import names
from strandline.catalog import access
from strandline.catalog.access import AuditEntry, TokenRow
from strandline.catalog.sessions import HOST
from strandline.errors import InvalidArgument

if TYPE_CHECKING:
    from strandline.api.database import Database
    from strandline.catalog.transactions import Writer
    from strandline.runtime import Runtime

Role = Literal["read", "operate", "admin"]
ROLES: tuple[Role, ...] = ("read", "operate", "admin")
"""The roles of tokens. Each role may do what the roles before it may do."""

PREFIX = "sl"
"""First part of every token, so that scanners of repositories and logs recognise one."""
NAME_LENGTH = 100
"""Maximum length of a token's name."""
AUDIT_LIMIT = 1000
"""Maximum number of audit entries that one call returns."""

_NO_HASH = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token of the service. All times are in seconds since the epoch.

    Attributes:
        id: The public part of the token.
        role: ``read``, ``operate`` or ``admin``.
        paths: Path prefixes that the token may use. None: all paths.
        expires: When the token ends. None: it does not expire.
        revoked: When the token was revoked. None: it was not revoked.
    """

    id: str
    name: str
    role: Role
    paths: tuple[str, ...] | None
    created: float
    expires: float | None
    revoked: float | None


@dataclass(frozen=True, kw_only=True)
class NewToken(TokenInfo):
    """A token that was just created.

    Attributes:
        token: The token itself. It is shown only once: the catalog stores a hash of it.
    """

    token: str = field(repr=False)


@dataclass(frozen=True)
class Actor:
    """The client of the service that this thread works for, for the audit log."""

    token_id: str
    name: str
    remote: str


ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)
"""The client that the present call works for. None: the call does not come through the service."""


def create_token(
    db: Database, name: str, *, role: str, paths: Sequence[str] | None, expires: float | None
) -> NewToken:
    """Create a token; the arguments are those of ``db.create_token``."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > NAME_LENGTH:
        raise InvalidArgument(
            f"the name of a token cannot be {name!r}",
            f"Give up to {NAME_LENGTH} printable characters, such as 'nightly-job'.",
        )
    found = next((known for known in ROLES if known == role), None)
    if found is None:
        hint = names.did_you_mean(role, ROLES) if isinstance(role, str) else None
        raise InvalidArgument(f"there is no role {role!r}", hint or f"Known roles: {', '.join(ROLES)}.")
    prefixes = _prefixes(paths)
    if prefixes is not None and found == "admin":
        raise InvalidArgument(
            "a token of the role admin cannot be limited to paths",
            "Leave the paths out, or choose the role operate.",
        )
    if expires is not None and (isinstance(expires, bool) or not 0 < expires < 10**10):
        raise InvalidArgument(
            f"a token cannot expire after {expires!r} seconds", "Give a positive number of seconds."
        )
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    with db._runtime.catalog.write() as tx:
        row = TokenRow(
            id=token_id,
            name=name,
            role=found,
            paths=prefixes,
            hash=_hash(secret),
            created=tx.now,
            expires=None if expires is None else tx.now + expires,
            revoked=None,
        )
        access.add_token(tx, row)
        _note_locally(tx, "Database.create_token", token_id)
    return NewToken(**vars(token_info(row)), token=f"{PREFIX}_{token_id}_{secret}")


def _prefixes(paths: Sequence[str] | None) -> tuple[str, ...] | None:
    if paths is None:
        return None
    if isinstance(paths, str) or not paths:
        raise InvalidArgument(
            f"paths cannot be {paths!r}", "Give a list of path prefixes: ['/sales']. None means all paths."
        )
    found = sorted({names.normalize(path) for path in paths})
    return None if "/" in found else tuple(found)


def list_tokens(db: Database) -> list[TokenInfo]:
    with db._runtime.catalog.read() as conn:
        return [token_info(row) for row in access.list_tokens(conn)]


def revoke_token(db: Database, token_id: str) -> TokenInfo:
    with db._runtime.catalog.write() as tx:
        row = access.revoke_token(tx, token_id)
        _note_locally(tx, "Database.revoke_token", token_id)
    return token_info(row)


def token_info(row: TokenRow) -> TokenInfo:
    """Describe a token without its hash."""
    role = next(known for known in ROLES if known == row.role)
    return TokenInfo(
        id=row.id,
        name=row.name,
        role=role,
        paths=row.paths,
        created=row.created,
        expires=row.expires,
        revoked=row.revoked,
    )


def authenticate(runtime: Runtime, token: str) -> TokenRow | None:
    """Return the valid token with this text, or None."""
    row = recognize(runtime, token)
    return row if row is not None and row.is_valid(runtime.clock.now()) else None


def recognize(runtime: Runtime, token: str) -> TokenRow | None:
    """Return the token with this text, also if it is expired or revoked. None: there is no such token.

    The token is looked up by its public part. Its secret is compared by hash and in constant time, also if
    there is no such token.
    """
    prefix, _, rest = token.partition("_")
    token_id, _, secret = rest.partition("_")
    with runtime.catalog.read() as conn:
        row = access.find_token(conn, token_id)
    is_same = hmac.compare_digest(_hash(secret), _NO_HASH if row is None else row.hash)
    return row if is_same and prefix == PREFIX else None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def list_audit(
    db: Database,
    *,
    since: datetime | float | None,
    before: int | None,
    principal: str | None,
    limit: int,
) -> list[AuditEntry]:
    """Return entries of the audit log; the arguments are those of ``db.audit``."""
    if isinstance(since, datetime):
        since = (since if since.tzinfo else since.replace(tzinfo=timezone.utc)).timestamp()
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= AUDIT_LIMIT:
        raise InvalidArgument(f"limit cannot be {limit!r}", f"Give a number from 1 to {AUDIT_LIMIT}.")
    with db._runtime.catalog.read() as conn:
        return access.list_audit(conn, since=since, before=before, principal=principal, limit=limit)


def _note_locally(tx: Writer, action: str, target: str) -> None:
    """Add a token change to the audit log, unless the service, which records its calls itself, made it."""
    if ACTOR.get() is None:
        access.add_audit(tx, principal=_local_user(), action=action, target=target, result="ok")


def _local_user() -> str:
    with contextlib.suppress(Exception):  # The user may have no name.
        return f"{getpass.getuser()}@{HOST}"
    return HOST
