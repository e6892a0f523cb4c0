"""The routes of forms: login, logout, queries, and everything that changes something.

A form that changes something is answered with a redirect, so that the back button and a reload of the page
do not send it again.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from strandline import OperationInfo
from strandline.api.access import recognize
from strandline.catalog.access import TokenRow
from strandline.errors import (
    InvalidArgument,
    PermissionDenied,
    PreconditionFailed,
    StrandlineError,
    Unavailable,
)
from strandline.server import sessions
from strandline.server.auth import is_encrypted, note_failed_login, remote_of
from strandline.server.console import queries, views
from strandline.server.console.formats import iso
from strandline.server.console.pages import Viewer, read
from strandline.server.console.rendering import PageRoute, render
from strandline.server.service import service_of
from strandline.sql.tokens import quote as quote_sql

router = APIRouter(route_class=PageRoute, include_in_schema=False)


def go(request: Request, path: str) -> Response:
    """Return a redirect to a page of the console."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)


def _to_operation(request: Request, started: OperationInfo) -> Response:
    return go(request, f"/operations/{quote(started.id, safe='')}")


# --- login ------------------------------------------------------------------------------------------------


@router.get("/login")
async def login_form(request: Request) -> Response:
    note = "Your session has ended. Log in again." if "ended" in request.query_params else None
    return render(
        request, "login.html", next=_own_path(request.query_params.get("next")), problem=None, note=note
    )


@router.post("/login")
async def login(request: Request) -> Response:
    service = service_of(request)
    service.failed_logins.check(remote_of(request), cost=0)
    if not sessions.is_same_origin(request):
        raise PermissionDenied("the login was not sent by the login page of this service")
    form = await sessions.read_form(request)
    token, seconds = form.get("token", "").strip(), service.settings.web_session_seconds
    db, base = service.database, request.scope.get("root_path", "")
    opened = await service.run_quick(lambda: sessions.create_session(db, token, seconds))
    if opened is None:
        note_failed_login(request)
        row = await service.run_quick(lambda: recognize(db._runtime, token))
        page = render(
            request, "login.html", next=_own_path(form.get("next")), problem=_refusal(row), note=None
        )
        page.status_code = 401
        return page
    response = RedirectResponse(f"{base}{_own_path(form.get('next'))}", 303)
    sessions.set_cookie(response, opened[1], seconds, secure=is_encrypted(request))
    return response


def _refusal(row: TokenRow | None) -> str:
    """Return why a token is refused, in one sentence."""
    if row is None:
        return "This token is not known. Check that you have copied all of it."
    if row.revoked is not None:
        return f"This token was revoked at {iso(row.revoked)}. Ask an administrator for a new one."
    return f"This token expired at {iso(row.expires or 0)}. Ask an administrator for a new one."


def _own_path(path: str | None) -> str:
    """Return a path of this service to go to after the login; never the address of another site."""
    is_own = path is not None and path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
    return path if is_own and path is not None else "/"


@router.post("/logout")
async def logout(request: Request, client: Viewer) -> Response:
    cookie = client.principal.cookie
    if cookie is not None:
        await service_of(request).run_quick(lambda: sessions.end_session(client.db, cookie))
    response = go(request, "/login")
    response.delete_cookie(sessions.COOKIE)
    return response


# --- changes ----------------------------------------------------------------------------------------------


@router.post("/collections/{name}/backup")
async def back_up(request: Request, client: Viewer, name: str) -> Response:
    form = await sessions.read_form(request)
    is_increment = form.get("kind") == "incremental"
    started = await read(
        request,
        lambda: client.call(
            "Collection.backup", collection=name, incremental=is_increment, full_if_needed=is_increment
        ),
    )
    return _to_operation(request, started)


@router.post("/collections/{name}/backups/{backup_name}/restore")
async def restore(request: Request, client: Viewer, name: str, backup_name: str) -> Response:
    form = await sessions.read_form(request)
    started = await read(request, lambda: views.start_restore(client, name, backup_name, form))
    return _to_operation(request, started)


@router.post("/operations/{operation_id}/cancel")
async def cancel(request: Request, client: Viewer, operation_id: str) -> Response:
    try:
        await read(request, lambda: client.call("Database.cancel", operation_id=operation_id))
    except PreconditionFailed as error:
        error.operation = operation_id  # The page of the error leads to it.
        raise
    return go(request, f"/operations/{quote(operation_id, safe='')}")


@router.post("/alarms/acknowledge")
async def acknowledge(request: Request, client: Viewer) -> Response:
    form = await sessions.read_form(request)
    if not ("kind" in form and "subject" in form and client.offers("Database.acknowledge_alarm")):
        raise InvalidArgument("the form names no alarm", "Reload the overview.")
    alarm = {"kind": form["kind"], "subject": form["subject"]}
    await read(request, lambda: client.call("Database.acknowledge_alarm", **alarm))
    return go(request, "/")


@router.post("/alarms/test")
async def test_channel(request: Request, client: Viewer) -> Response:
    name = (await sessions.read_form(request)).get("channel", "")
    sent = await read(request, lambda: client.call("Database.test_alarm_channel", name=name))
    if sent.error is not None:
        raise Unavailable(
            f"the test message on the channel {name} failed: {sent.error}",
            f"Correct [channels.{name}] in strandline.toml, or the receiver.",
        )
    return go(request, f"/settings?tested={quote(name, safe='')}")


# --- queries ----------------------------------------------------------------------------------------------


@router.get("/query")
async def query_form(request: Request, client: Viewer) -> Response:
    table = request.query_params.get("table")
    sql = "" if table is None else f"SELECT * FROM {quote_sql(table.lstrip('/'))} LIMIT 20"
    return render(request, "query.html", client.principal, **_query(request, sql))


@router.post("/query")
async def query(request: Request, client: Viewer) -> Response:
    return await _run_query(request, client, "query.html")


@router.post("/query/rows")
async def query_rows(request: Request, client: Viewer) -> Response:
    return await _run_query(request, client, "rows.html")


async def _run_query(request: Request, client: Viewer, template: str) -> Response:
    sql = (await sessions.read_form(request)).get("sql", "")
    service = service_of(request)
    values = _query(request, sql)
    try:
        seconds = service.settings.sql_seconds
        values["plan"] = await service.run(lambda: queries.explain(client, sql), seconds)
        values["answer"] = await service.run(lambda: queries.run(client, sql), seconds)
    except StrandlineError as error:
        values["problem"] = error
    return render(request, template, client.principal, **values)


def _query(request: Request, sql: str) -> dict[str, Any]:
    return {
        "sql": sql,
        "seconds": service_of(request).settings.sql_seconds,
        "most": queries.ROWS,
        "plan": (),
        "answer": None,
        "problem": None,
    }
