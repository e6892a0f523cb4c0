"""The routes of pages that only show something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import APIRouter, Depends, Request, Response

from strandline.api.progress import KINDS
from strandline.catalog.operations import STATES
from strandline.server.auth import CurrentPrincipal
from strandline.server.console import activity, administration, operations, views
from strandline.server.console import tables as table_views
from strandline.server.console.client import PageClient
from strandline.server.console.rendering import PageRoute, now_of, render
from strandline.server.service import service_of

T = TypeVar("T")

router = APIRouter(route_class=PageRoute, include_in_schema=False)


async def _viewer(request: Request, principal: CurrentPrincipal) -> PageClient:
    request.state.principal = principal  # Error pages need it.
    return PageClient(service_of(request).database, principal, request.app.state.recent_status)


Viewer: TypeAlias = Annotated[PageClient, Depends(_viewer)]
"""Type of a route's parameter that gets the client of a page."""


async def read(request: Request, call: Callable[[], T]) -> T:
    """Read the data of a page in a thread."""
    return await service_of(request).run(call)


def page_number(request: Request) -> int:
    """Return the number of the page of a list that is asked for."""
    text = request.query_params.get("page", "1")
    return int(text) if text.isdecimal() and len(text) < 8 else 1


@router.get("/")
async def overview(request: Request, client: Viewer) -> Response:
    find = request.query_params.get("find", "").strip()
    page = await read(request, lambda: views.read_overview(client, find, page_number(request)))
    return render(request, "overview.html", client.principal, page=page)


# --- collections ------------------------------------------------------------------------------------------


@router.get("/collections/{name}")
async def collection(request: Request, client: Viewer, name: str) -> Response:
    def look() -> dict[str, Any]:
        page = views.read_collection(client, name, page_number(request))
        return {
            "page": page,
            "preview": views.preview_prune(client, page.info, request.query_params.get("keep")),
        }

    return render(request, "collection.html", client.principal, **await read(request, look))


@router.get("/collections/{name}/retention")
async def retention(request: Request, client: Viewer, name: str) -> Response:
    def look() -> views.Preview:
        info = client.call("Collection.info", collection=name)
        return views.preview_prune(client, info, request.query_params.get("keep"))

    return render(request, "retention.html", client.principal, preview=await read(request, look))


@router.get("/collections/{name}/backups/{backup_name}")
async def backup(request: Request, client: Viewer, name: str, backup_name: str) -> Response:
    page = await read(request, lambda: views.read_backup(client, name, backup_name))
    return render(request, "backup.html", client.principal, page=page)


@router.get("/collections/{name}/backups/{backup_name}/restore")
async def restore(request: Request, client: Viewer, name: str, backup_name: str) -> Response:
    return await _plan(request, client, name, backup_name, "restore.html")


@router.get("/collections/{name}/backups/{backup_name}/restore/plan")
async def plan(request: Request, client: Viewer, name: str, backup_name: str) -> Response:
    return await _plan(request, client, name, backup_name, "plan.html")


async def _plan(request: Request, client: PageClient, name: str, backup_name: str, template: str) -> Response:
    given = dict(request.query_params)
    page = await read(request, lambda: views.plan_restore(client, name, backup_name, given))
    return render(request, template, client.principal, page=page)


# --- operations -------------------------------------------------------------------------------------------


@router.get("/operations")
async def list_operations(request: Request, client: Viewer) -> Response:
    state = request.query_params.get("state") or None
    kind = request.query_params.get("kind") or None
    number = page_number(request)
    page = await read(request, lambda: operations.list_operations(client, number, state=state, kind=kind))
    return render(
        request,
        "operations.html",
        client.principal,
        page=page,
        state=state,
        kind=kind,
        states=STATES,
        kinds=KINDS,
    )


@router.get("/operations/{operation_id}")
async def operation(request: Request, client: Viewer, operation_id: str) -> Response:
    page = await read(request, lambda: operations.read_operation(client, operation_id, now_of(request)))
    return render(request, "operation.html", client.principal, page=page)


@router.get("/operations/{operation_id}/cancel")
async def cancel(request: Request, client: Viewer, operation_id: str) -> Response:
    client.principal.require("operate")
    info = await read(request, lambda: client.call("Database.operation", operation_id=operation_id))
    return render(request, "cancel.html", client.principal, info=info)


# --- tables and queries -----------------------------------------------------------------------------------


@router.get("/tables")
@router.get("/tables/{path:path}")
async def tables(request: Request, client: Viewer, path: str = "") -> Response:
    place = f"/{path}".rstrip("/") or "/"
    number = page_number(request)

    def look() -> tuple[str, Any]:
        described = None
        if place != "/" and client.principal.may_use(place):
            described = client.call("Database.describe", path=place)
        if described is None or described["type"] == "directory":
            return "tables.html", table_views.read_directory(client, place, number)
        return "table.html", table_views.read_table(client, described)

    template, page = await read(request, look)
    return render(request, template, client.principal, page=page)


# --- schedules --------------------------------------------------------------------------------------------


@router.get("/schedules")
async def schedules(request: Request, client: Viewer) -> Response:
    page = await read(request, lambda: client.call("Database.schedules"))
    return render(request, "schedules.html", client.principal, page=page)


@router.get("/schedules/{name}")
async def schedule(request: Request, client: Viewer, name: str) -> Response:
    page = await read(request, lambda: administration.read_schedule(client, name))
    return render(request, "schedule.html", client.principal, page=page)


# --- metrics and administration ---------------------------------------------------------------------------


@router.get("/activity")
async def metrics(request: Request, client: Viewer) -> Response:
    page = await read(request, lambda: activity.read_activity(client, now_of(request)))
    return render(request, "metrics.html", client.principal, page=page)


@router.get("/tokens")
async def tokens(request: Request, client: Viewer) -> Response:
    page = await read(request, lambda: client.call("Database.tokens"))
    return render(request, "tokens.html", client.principal, page=page)


@router.get("/audit")
async def audit(request: Request, client: Viewer) -> Response:
    before = request.query_params.get("before", "")
    page = await read(request, lambda: administration.read_audit(client, before))
    return render(request, "audit.html", client.principal, page=page)


@router.get("/settings")
async def settings(request: Request, client: Viewer) -> Response:
    service = service_of(request)
    page = await read(request, lambda: administration.read_settings(client, service.settings))
    tested = request.query_params.get("tested", "")
    named = tested if any(tested == channel.name for channel in page.channels) else None
    return render(request, "settings.html", client.principal, page=page, tested=named)
