"""The routes of the HTTP API."""

from __future__ import annotations

from fastapi import FastAPI

from strandline.server.routes import events, health, sql
from strandline.server.verbs import verb_router


def add_routes(app: FastAPI) -> None:
    """Add all routes of the API."""
    app.include_router(health.router)
    app.include_router(events.router)  # Before the verbs: "events" is not the id of an operation.
    app.include_router(sql.router)
    app.include_router(verb_router())
