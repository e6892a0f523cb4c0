"""Live values as server-sent events. Each event is a part of a page, which htmx puts into its place.

The streams share the feed of the service, which reads the catalog once for all of them. The feed does not
tell everything, such as the error of an attempt that is retried, so values are also read at intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from strandline import OperationInfo
from strandline.errors import StrandlineError
from strandline.server.auth import is_still_valid
from strandline.server.console import operations, views
from strandline.server.console.client import PageClient
from strandline.server.console.operations import OperationPage
from strandline.server.console.pages import Viewer
from strandline.server.console.rendering import PageRoute, now_of, render_text
from strandline.server.errors import unexpected
from strandline.server.scopes import may_use_operation
from strandline.server.service import service_of

T = TypeVar("T")

router = APIRouter(route_class=PageRoute, include_in_schema=False)

REFRESH_SECONDS = 2.0
"""Interval at which the values are read again if the feed has no news."""


@router.get("/operations/{operation_id}/live")
async def watch_operation(request: Request, client: Viewer, operation_id: str) -> Response:
    def look() -> OperationPage:
        return operations.read_operation(client, operation_id, now_of(request))

    async def stream() -> AsyncIterator[str]:
        async for page in _follow(request, client, look, first.info):
            if isinstance(page, StrandlineError):
                yield server_event(
                    "progress", render_text(request, "problem.html", client.principal, error=page)
                )
                continue
            yield server_event(
                "progress", render_text(request, "operation_live.html", client.principal, page=page)
            )
            if page.info.is_over:
                yield server_event("actions", "")
                yield server_event("said", f"The {page.info.kind} is {page.info.state}.")
                yield server_event("end", "")
                return

    first = await service_of(request).run(look)  # An unknown operation is an error page, not a stream.
    return _response(stream())


@router.get("/live")
async def watch_overview(request: Request, client: Viewer) -> Response:
    def look() -> views.Running:
        return views.Running(running=views.running_operations(client))

    async def stream() -> AsyncIterator[str]:
        async for page in _follow(request, client, look, None):
            if isinstance(page, StrandlineError):
                yield server_event(
                    "running", render_text(request, "problem.html", client.principal, error=page)
                )
            else:
                yield server_event(
                    "running", render_text(request, "running.html", client.principal, page=page)
                )

    return _response(stream())


async def _follow(
    request: Request, client: PageClient, look: Callable[[], T], operation: OperationInfo | None
) -> AsyncIterator[T | StrandlineError]:
    """Yield what ``look`` returns, or its error, after each change of an operation, and in between.

    Ends when the operation ends, when the client's token is not valid any more, and when the service stops.
    """
    service = service_of(request)

    async def is_wanted(info: OperationInfo) -> bool:
        return await service.run_quick(lambda: may_use_operation(client.db, client.principal, info))

    async def is_allowed() -> bool:
        return await service.run_quick(lambda: is_still_valid(client.db, client.principal))

    changed = asyncio.Event()

    async def listen() -> None:
        try:
            async for _ in service.feed.stream(is_wanted, is_allowed, operation):
                changed.set()
        finally:
            changed.set()

    listening = asyncio.create_task(listen())
    try:
        while True:
            is_last = listening.done()
            changed.clear()
            try:
                yield await service.run_quick(look)
            except StrandlineError as error:
                yield error
            except Exception as error:
                yield unexpected(error)
            if is_last:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), REFRESH_SECONDS)
    finally:
        listening.cancel()


def server_event(name: str, html: str) -> str:
    """Return a server-sent event. Each line of its data has a prefix, so data cannot forge another event."""
    lines = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def _response(stream: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
