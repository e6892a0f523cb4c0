"""Who sends a request, and what they may do.

``current_principal`` is the dependency of every route but health and login. It takes a token from the header
``Authorization: Bearer TOKEN``, else a session from the cookie.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Depends
from starlette.requests import Request

from strandline.api import access as tokens
from strandline.api.access import ROLES, Role, token_info
from strandline.catalog import access
from strandline.errors import PermissionDenied, Unauthenticated
from strandline.server import sessions
from strandline.server.service import service_of

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.catalog.access import TokenRow

log = logging.getLogger("strandline")


@dataclass(frozen=True)
class Principal:
    """The client of a request.

    Attributes:
        name: name of the token.
        prefixes: path prefixes that the client may use. None: all paths.
        token_id: public part of the token.
        remote: address of the client.
        cookie: the session cookie, for ``sessions.csrf_token``. None: the client sent a token.
    """

    name: str
    role: Role
    prefixes: tuple[str, ...] | None
    _: KW_ONLY
    token_id: str = ""
    remote: str = ""
    cookie: str | None = None

    def has_role(self, role: Role) -> bool:
        """Whether the client may do what ``role`` may do."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: Role) -> None:
        """Raise PERMISSION_DENIED unless the client may do what ``role`` may do."""
        if not self.has_role(role):
            raise PermissionDenied(f"this needs the role {role}, and the token has the role {self.role}")

    def may_use(self, path: str) -> bool:
        """Whether the client may use a path: it is one of its prefixes, or below one."""
        return self.prefixes is None or any(
            path == prefix or path.startswith(f"{prefix}/") for prefix in self.prefixes
        )

    def may_see(self, path: str) -> bool:
        """Whether the client may see that a path exists: it may use it, or a path below it."""
        above = "/" if path == "/" else f"{path}/"
        return self.may_use(path) or any(prefix.startswith(above) for prefix in self.prefixes or ())

    def require_paths(self, paths: Sequence[str]) -> None:
        """Raise PERMISSION_DENIED unless the client may use all of these paths."""
        for path in paths:
            if not self.may_use(path):
                raise PermissionDenied(f"the token does not allow the path {path}")

    def require_all_paths(self) -> None:
        """Raise PERMISSION_DENIED if the client is limited to some paths."""
        if self.prefixes is not None:
            raise PermissionDenied(
                "this concerns the whole warehouse, and the token is limited to some paths"
            )


async def current_principal(request: Request) -> Principal:
    """Return the client of a request; raise UNAUTHENTICATED if it has no valid token or session."""
    service = service_of(request)
    remote = remote_of(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    cookie = request.cookies.get(sessions.COOKIE)
    db = service.database
    row: TokenRow | None = None
    if scheme:
        cookie = None
        service.failed_logins.check(remote, cost=0)
        if scheme.lower() == "bearer":
            row = await service.run_quick(lambda: tokens.authenticate(db._runtime, token.strip()))
    elif cookie is not None:
        service.failed_logins.check(remote, cost=0)
        row = await service.run_quick(lambda: sessions.find_session(db, cookie or ""))
    if row is None:
        if scheme or cookie is not None:
            note_failed_login(request)
        raise Unauthenticated("the request has no valid token or session")
    service.requests.check(row.id)
    if cookie is not None:
        await sessions.check_csrf(request, cookie)
    return principal_of(row, remote, cookie)


CurrentPrincipal: TypeAlias = Annotated[Principal, Depends(current_principal)]
"""Type of a route's parameter that gets the client."""


def principal_of(row: TokenRow, remote: str, cookie: str | None = None) -> Principal:
    info = token_info(row)
    return Principal(info.name, info.role, info.paths, token_id=info.id, remote=remote, cookie=cookie)


def is_still_valid(db: Database, principal: Principal) -> bool:
    """Return whether the token of a client is still valid, and its session still open."""
    if principal.cookie is not None:
        return sessions.find_session(db, principal.cookie) is not None
    with db._guard(), db._runtime.catalog.read() as conn:
        row = access.find_token(conn, principal.token_id)
    return row is not None and row.is_valid(db._runtime.clock.now())


def note_failed_login(request: Request) -> None:
    """Count and log a wrong token or session; raise TOO_MANY_REQUESTS if the address has sent too many."""
    service, remote = service_of(request), remote_of(request)
    service.metrics.failed_logins.inc()
    log.warning("a token or session from %r is not valid", remote)
    service.failed_logins.check(remote)


def remote_of(request: Request) -> str:
    """Return the address of the client; behind a proxy, the address that the proxy has seen."""
    service = service_of(request)
    if service.settings.behind_proxy:
        # The proxy appends the address that it has seen. The client may have sent the part before.
        found = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        if found:
            return found[:64]
    return request.client.host if request.client is not None else ""


def is_encrypted(request: Request) -> bool:
    """Return whether the client's connection is encrypted, so that its cookie may be marked as secure."""
    forwarded = (
        request.headers.get("x-forwarded-proto", "") if service_of(request).settings.behind_proxy else ""
    )
    return forwarded == "https" or request.url.scheme == "https"
