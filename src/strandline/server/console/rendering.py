"""Render pages: the template environment, and the route class that turns errors into pages."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.exceptions import HTTPException

from strandline.errors import InvalidArgument, PathNotFound, StrandlineError, TooManyRequests, Unauthenticated
from strandline.server import sessions
from strandline.server.auth import Principal
from strandline.server.console import formats, operations, views
from strandline.server.console.protection import Protected
from strandline.server.console.views import ShownBackup
from strandline.server.errors import status_of, unexpected
from strandline.server.service import service_of
from strandline.sql.tokens import quote as quote_sql
from strandline.sql.tokens import word

SECTIONS = (
    ("/", "Overview"),
    ("/operations", "Operations"),
    ("/tables", "Tables"),
    ("/query", "Query"),
    ("/schedules", "Schedules"),
)
WHOLE = (("/activity", "Metrics"),)
"""Sections for clients that are not limited to some paths."""
ADMINISTRATION = (("/tokens", "Tokens"), ("/audit", "Audit"), ("/settings", "Settings"))
MARKS: Mapping[str, str] = {"proved": "✓", "checked": "◐", "unverified": "○", "broken": "✕"}
PROOFS: Mapping[str, str] = {
    "proved": "proved",
    "checked": "checked in part",
    "unverified": "not verified",
    "broken": "cannot be restored",
}
_DASH = Markup('<span class="muted">–</span>')
_STATE = Markup('<span class="state {}">{}</span>')


def make_environment() -> Environment:
    """Return the template environment. Every value in a template is escaped, unless it is markup of ours."""
    environment = Environment(
        loader=PackageLoader("strandline.server.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        capital=lambda text: text[:1].upper() + text[1:],
        cell=formats.cell,
        duration=formats.duration,
        iso=formats.iso,
        moment=_moment,
        number=formats.number,
        period=formats.period,
        relative=_relative,
        shellname=shlex.quote,
        size=formats.size,
        sqlname=word,
        sqlpath=lambda path: quote_sql(path.lstrip("/")),
        urlpart=lambda text: quote(text, safe=""),
        urlpath=lambda path: quote(path, safe="/"),
    )
    environment.globals.update(
        collection_of=views.collection_of,
        marks=MARKS,
        objective=objective,
        proof_text=_proof_text,
        proved=proved,
        restorable=restorable,
        shard_name=operations.shard_name,
        shard_text=operations.shard_text,
        words=operations.progress_text,
    )
    return environment


@pass_context
def _moment(context: Context, time: float | datetime | None) -> Markup:
    return formats.moment(time, context["now"])


@pass_context
def _relative(context: Context, time: float | datetime) -> str:
    return formats.relative(time, context["now"])


def render(
    request: Request, template: str, principal: Principal | None = None, /, **values: Any
) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(render_text(request, template, principal, **values))


def render_text(request: Request, template: str, principal: Principal | None = None, /, **values: Any) -> str:
    """Return the text of a page or a fragment."""
    environment: Environment = request.app.state.pages
    return environment.get_template(template).render(
        base=request.scope.get("root_path", ""),
        csrf=csrf_field(principal),
        may_operate=principal is not None and principal.has_role("operate"),
        now=now_of(request),
        section=f"/{request.url.path.split('/')[1]}",
        sections=sections_of(principal),
        where=place_of(request) if principal is not None and principal.prefixes is None else "",
        who=None if principal is None else f"{principal.name} ({principal.role})",
        page_url=lambda number: page_url(request, number),
        **values,
    )


def sections_of(principal: Principal | None) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the sections that a client may see, in groups with a title."""
    if principal is None:
        return []
    sees_all = principal.prefixes is None
    found = [("", SECTIONS + (WHOLE if sees_all else ()))]
    if sees_all and principal.has_role("admin"):
        found.append(("Administration", ADMINISTRATION))
    return found


def csrf_field(principal: Principal | None) -> Markup:
    """Return the hidden field that proves that a form comes from a page of the console."""
    if principal is None or principal.cookie is None:
        return Markup("")
    return Markup('<input type="hidden" name="{}" value="{}">').format(
        sessions.CSRF_FIELD, sessions.csrf_token(principal.cookie)
    )


def now_of(request: Request) -> float:
    """Return the time by the clock of the warehouse."""
    try:
        return service_of(request).database._runtime.clock.now()
    except StrandlineError:
        return time.time()


def place_of(request: Request) -> str:
    """Return the location of the warehouse for the head of the page."""
    try:
        return str(service_of(request).database._runtime.files.location)
    except StrandlineError:
        return ""


def page_url(request: Request, number: int) -> str:
    """Return the URL of another page of the list that a request shows."""
    given = {name: value for name, value in request.query_params.items() if name != "page" and value}
    return f"?{urlencode({**given, 'page': number})}"


# --- protection in words ----------------------------------------------------------------------------------


@pass_context
def restorable(context: Context, found: Protected) -> Markup:
    """Return up to when a collection can be restored."""
    if not found.is_known:
        return _DASH
    if found.restorable_until is None:
        text = "no backup yet" if not found.backups else "not restorable"
        return _STATE.format("bad", text)
    said = formats.moment(found.restorable_until, context["now"])
    if found.away is not None:
        said += Markup(" ") + _STATE.format("warn", "repository away")
    return said


@pass_context
def proved(context: Context, found: Protected) -> Markup:
    """Return how and when a collection was proved to be restorable."""
    if not found.is_known:
        return _DASH
    if found.proved_at is None:
        return _STATE.format("", "never")
    ago = formats.relative(found.proved_at, context["now"])
    title = Markup('<time datetime="{}" title="{}">{}</time>').format(
        formats.iso(found.proved_at).replace(" ", "T"), formats.iso(found.proved_at), ago
    )
    return Markup("{} <span class='ago'>{}</span>").format(title, found.proved_level)


def objective(found: Protected) -> Markup:
    """Return whether a collection meets its objectives."""
    if not found.is_known or not found.objectives:
        return Markup('<span class="muted">none set</span>') if found.is_known else _DASH
    said = ", ".join(f"{name} within {formats.period(seconds)}" for name, seconds in found.objectives.items())
    state = _STATE.format("bad", "missed") if found.missed else _STATE.format("good", "met")
    return Markup("{} <span class='ago'>{}</span>").format(state, said)


def _proof_text(backup: ShownBackup) -> str:
    return PROOFS[backup.proof]


# --- errors -----------------------------------------------------------------------------------------------


class PageRoute(APIRoute):
    """A route whose errors become pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthenticated as error:
                return to_login(request, error)
            except StrandlineError as error:
                return error_page(request, error)
            except RequestValidationError:
                return error_page(request, InvalidArgument("a value in the address is not valid"))
            except Exception as error:
                return error_page(request, unexpected(error))

        return answer


def add_missing_page(app: FastAPI) -> None:
    """Let an unknown address be a page for a browser, and JSON for other clients."""
    for_programs: Any = app.exception_handlers[HTTPException]

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404 and "text/html" in request.headers.get("accept", ""):
            return error_page(request, PathNotFound("there is no page at this address", "See the overview."))
        response: Response = for_programs(request, error)
        return response

    app.add_exception_handler(HTTPException, answer)


def is_fragment(request: Request) -> bool:
    """Return whether a script of the page asks for a part of it."""
    return request.headers.get("hx-request") == "true"


def to_login(request: Request, error: Unauthenticated) -> Response:
    """Return the way to the login page, and back to the page that was asked for."""
    if is_fragment(request) or request.method != "GET":
        return error_page(request, error)
    base = request.scope.get("root_path", "")
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    ended = {"ended": "1"} if sessions.COOKIE in request.cookies else {}
    response = RedirectResponse(f"{base}/login?{urlencode({'next': here, **ended})}", 303)
    response.delete_cookie(sessions.COOKIE)
    return response


TITLES: Mapping[int, str] = {
    400: "This is not possible",
    401: "Please log in again",
    403: "Not allowed",
    404: "Not found",
    409: "Not possible now",
    429: "Too many requests",
    503: "The data cannot be reached",
    504: "This took too long",
}


def error_page(request: Request, error: StrandlineError) -> Response:
    """Return a page, or a part of one, that says what went wrong and what to do."""
    status = status_of(error)
    principal = getattr(request.state, "principal", None)
    values = {
        "error": error,
        "title": TITLES.get(status, "Something went wrong"),
        "operation": error.operation,
    }
    template = "problem.html" if is_fragment(request) else "error.html"
    response = HTMLResponse(render_text(request, template, principal, **values), status)
    if isinstance(error, TooManyRequests):
        response.headers["Retry-After"] = str(error.seconds)
    return response
