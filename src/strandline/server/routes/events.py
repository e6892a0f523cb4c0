"""Server-sent events of operations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import StreamingResponse

from strandline.api.progress import OperationInfo
from strandline.server.auth import CurrentPrincipal, Principal, is_still_valid
from strandline.server.errors import ALL
from strandline.server.models import Text
from strandline.server.scopes import may_use_operation
from strandline.server.service import database_of, service_of
from strandline.server.verbs import call

router = APIRouter(prefix="/v1/operations", tags=["operations"])

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class EventStream(StreamingResponse):
    """A response of server-sent events."""

    media_type = "text/event-stream"


@router.get("/events", operation_id="operation_events", response_class=EventStream, responses=ALL | _EVENTS)
async def all_events(request: Request, principal: CurrentPrincipal) -> EventStream:
    """Stream the state of operations that change from now on, as events `operation`. Role: read.

    The event `closing` says that the service stops: connect again.
    """
    return _stream(request, principal, None)


@router.get(
    "/{operation_id}/events",
    operation_id="one_operation_events",
    response_class=EventStream,
    responses=ALL | _EVENTS,
)
async def events(
    request: Request, operation_id: Annotated[Text, Path()], principal: CurrentPrincipal
) -> EventStream:
    """Stream the state of one operation, from its present state until the event `end`. Role: read."""
    info = await call(request, principal, "Database.operation", operation_id=operation_id)
    return _stream(request, principal, info)


def _stream(request: Request, principal: Principal, info: OperationInfo | None) -> EventStream:
    service, db = service_of(request), database_of(request)
    service.feed.require_room()

    async def is_wanted(found: OperationInfo) -> bool:
        if principal.prefixes is None:
            return True
        return await service.run_quick(lambda: may_use_operation(db, principal, found))

    async def is_allowed() -> bool:
        return await service.run_quick(lambda: is_still_valid(db, principal))

    return EventStream(service.feed.stream(is_wanted, is_allowed, info), headers={"X-Accel-Buffering": "no"})
