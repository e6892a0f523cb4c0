"""The application: everything that answers requests, put together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from anyio import to_thread
from fastapi import FastAPI

from strandline.api import Database
from strandline.server.console import add_console
from strandline.server.errors import add_error_handlers
from strandline.server.housekeeping import Caretaker
from strandline.server.limits import LimitBodies
from strandline.server.middleware import Surround
from strandline.server.routes import add_routes
from strandline.server.service import Service
from strandline.server.sessions import COOKIE
from strandline.server.settings import ServerSettings
from strandline.version import VERSION

OPEN = ("/healthz", "/readyz")
"""Routes that need no token."""


def describe_access(document: dict[str, Any]) -> dict[str, Any]:
    """Add to an OpenAPI document how requests are authenticated."""
    document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
    }
    document["security"] = [{"token": []}, {"session": []}]
    for path in OPEN:
        document["paths"][path]["get"]["security"] = []
    return document


def create_app(target: Database | Callable[[], Database], settings: ServerSettings | None = None) -> FastAPI:
    """Return the service as an ASGI application.

    Args:
        target: the database to serve, or a function that opens it. A database that the application has opened
            is closed when the application shuts down; any other stays open.
        settings: the settings of the service.
    """
    service = Service(settings or ServerSettings())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        is_ours = not isinstance(target, Database)
        database = target if isinstance(target, Database) else await to_thread.run_sync(target)
        service.open(database)
        caretaker = Caretaker(service, database)
        caretaker.start()
        try:
            yield
        finally:
            service.close()
            await to_thread.run_sync(caretaker.stop)
            if is_ours:
                await to_thread.run_sync(database.close)

    app = FastAPI(
        title="Strandline",
        version=VERSION,
        summary="Keyed tables with global secondary indexes, and incremental backup and restore of both.",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.openapi = lambda: describe_access(FastAPI.openapi(app))  # type: ignore[method-assign]
    add_error_handlers(app)
    add_routes(app)
    add_console(app)
    app.add_middleware(LimitBodies, settings=service.settings)
    app.add_middleware(Surround, service=service)
    return app
