"""``/healthz``, ``/readyz``, ``/metrics`` and the OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from strandline.errors import Unavailable
from strandline.server.auth import CurrentPrincipal
from strandline.server.errors import ALL, describe_statuses
from strandline.server.service import database_of, service_of

router = APIRouter()

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/v1/openapi.json", include_in_schema=False)
async def openapi(request: Request, principal: CurrentPrincipal) -> Any:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@router.get("/healthz", responses=describe_statuses(405, 500), tags=["health"])
async def healthz() -> dict[str, str]:
    """Return 200 while the process answers requests."""
    return {"status": "ok"}


@router.get("/readyz", responses=describe_statuses(405, 500, 503), tags=["health"])
async def readyz(request: Request) -> dict[str, str]:
    """Return 200 if the catalog can be read and the service is not shutting down, else 503."""
    service = service_of(request)
    if service.is_draining:
        raise Unavailable("the service is stopping", "Send requests to another process.")
    db = service.database
    await service.run_quick(lambda: db.step)
    return {"status": "ready"}


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=ALL | {200: {"content": {METRICS_TYPE: {"schema": {"type": "string"}}}}},
    tags=["health"],
)
async def metrics(request: Request, principal: CurrentPrincipal) -> Any:
    """Return the metrics of the warehouse, and of this process's HTTP requests, in the Prometheus format."""
    principal.require_all_paths()
    service, db = service_of(request), database_of(request)
    text = await service.run(db.metrics)
    return PlainTextResponse(text + service.metrics.render(), media_type=METRICS_TYPE)
