"""Live values as server-sent events. Each event is a part of a page, which htmx puts into its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from strandline.errors import StrandlineError
from strandline.server.console import operations, views
from strandline.server.console.client import Client
from strandline.server.console.operations import OperationPage
from strandline.server.console.pages import Viewer
from strandline.server.console.rendering import PageRoute, now_of, render_text
from strandline.server.errors import unexpected
from strandline.server.service import service_of

T = TypeVar("T")

router = APIRouter(route_class=PageRoute, include_in_schema=False)

POLL_SECONDS = 0.5
"""Interval at which the progress of an operation is read."""
OVERVIEW_SECONDS = 2.0
"""The same for the list of running operations."""
ALIVE_SECONDS = 15.0
"""Interval of comments that keep proxies from closing a stream that has no events."""


@router.get("/operations/{operation_id}/live")
async def watch_operation(request: Request, client: Viewer, operation_id: str) -> Response:
    def look() -> OperationPage:
        return operations.read_operation(client, operation_id, now_of(request))

    async def stream() -> AsyncIterator[str]:
        async for page in _poll(request, look, POLL_SECONDS):
            if isinstance(page, StrandlineError):
                yield event("progress", render_text(request, "problem.html", client.principal, error=page))
                return
            yield event("progress", render_text(request, "operation_live.html", client.principal, page=page))
            if page.info.is_over:
                yield event("actions", "")
                yield event("said", f"The {page.info.kind} is {page.info.state}.")
                yield event("end", "")
                return

    await service_of(request).run(look)  # An unknown operation is an error page, not a stream.
    return _response(stream())


@router.get("/live")
async def watch_overview(request: Request, client: Viewer) -> Response:
    def look() -> views.Running:
        return views.Running(running=views.running_operations(client))

    async def stream() -> AsyncIterator[str]:
        async for page in _poll(request, look, OVERVIEW_SECONDS):
            if isinstance(page, StrandlineError):
                yield event("running", render_text(request, "problem.html", client.principal, error=page))
                return
            yield event("running", render_text(request, "running.html", client.principal, page=page))

    return _response(stream())


async def _poll(
    request: Request, look: Callable[[], T], seconds: float
) -> AsyncIterator[T | StrandlineError]:
    """Yield what ``look`` returns when it has changed, until the client or the service ends.

    If it raises an error, yield the error.
    """
    service = service_of(request)
    while not service.stop.is_set() and not await request.is_disconnected():
        try:
            found: T | StrandlineError = await service.run(look)
        except StrandlineError as error:
            found = error
        except Exception as error:
            found = unexpected(error)
        yield found
        await asyncio.sleep(seconds)


def event(name: str, html: str) -> str:
    """Return a server-sent event. Each line of its data has a prefix of its own."""
    lines = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def _response(stream: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
