"""Browser sessions: a cookie in place of a token, and the protection of forms.

A session belongs to a token and ends with it. The cookie is random; the catalog stores its SHA-256. A login
always gets a new cookie, so a cookie that an attacker has set before the login is useless.

A request with a cookie that changes something must prove that a page of ours sent it: it repeats the CSRF
token of the session, in the header ``X-CSRF-Token`` or the form field ``csrf_token``. The CSRF token derives
from the cookie and is not stored.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from strandline.api import access as tokens
from strandline.catalog import access
from strandline.errors import InvalidArgument, PermissionDenied

if TYPE_CHECKING:
    from strandline.api import Database
    from strandline.catalog.access import TokenRow

COOKIE = "strandline_session"
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf_token"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""


def create_session(db: Database, token: str, seconds: float, remote: str = "") -> tuple[TokenRow, str] | None:
    """Log in with a token; return it and a new cookie. None: the token is not valid.

    Args:
        remote: address of the client, for the audit log.
    """
    with db._guard():
        row = tokens.authenticate(db._runtime, token)
        if row is None:
            return None
        cookie = secrets.token_urlsafe(32)
        with db._runtime.catalog.write() as tx:
            expires = tx.now + seconds if row.expires is None else min(row.expires, tx.now + seconds)
            access.add_web_session(tx, _hash(cookie), row.id, expires)
            access.add_audit(
                tx,
                principal=row.name,
                token_id=row.id,
                remote=remote,
                action="login",
                target=row.id,
                result="ok",
            )
    return row, cookie


def find_session(db: Database, cookie: str) -> TokenRow | None:
    """Return the token of a session. None: there is no such session, or its token is no longer valid."""
    with db._guard(), db._runtime.catalog.read() as conn:
        now = db._runtime.clock.now()
        row = access.find_web_session(conn, _hash(cookie), now)
    return row if row is not None and row.is_valid(now) else None


def end_session(db: Database, cookie: str) -> None:
    """Log out."""
    with db._guard(), db._runtime.catalog.write() as tx:
        access.remove_web_session(tx, _hash(cookie))


def set_cookie(response: Response, cookie: str, seconds: float, *, secure: bool) -> None:
    """Send the cookie of a new session. Scripts cannot read it; browsers do not send it for other sites."""
    response.set_cookie(
        COOKIE, cookie, max_age=int(seconds), path="/", secure=secure, httponly=True, samesite="strict"
    )


def csrf_token(cookie: str) -> str:
    """Return the CSRF token of a session, for a hidden field of a form."""
    return hmac.new(cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. The last one of a repeated field counts."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    try:
        fields = parse_qs(
            (await request.body()).decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=1000
        )
    except ValueError:
        raise InvalidArgument("the form cannot be read", "Send a form in UTF-8.") from None
    return {name: values[-1] for name, values in fields.items()}


async def check_csrf(request: Request, cookie: str) -> None:
    """Refuse a request with a cookie that changes something and was not sent by a page of ours."""
    if request.method in SAFE:
        return
    given = request.headers.get(CSRF_HEADER) or (await read_form(request)).get(CSRF_FIELD, "")
    is_same = hmac.compare_digest(given.encode(), csrf_token(cookie).encode())
    if not is_same or not is_same_origin(request):
        raise PermissionDenied(
            "the request was not sent by a page of this service",
            "Reload the page and try again. A script uses a token instead of a cookie.",
        )


def is_same_origin(request: Request) -> bool:
    """Return whether the browser says that a page of this service sent the request, or says nothing."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
