"""The web console: pages for people, below ``/``.

The pages are rendered on the server and work without scripts. With scripts, htmx replaces parts of a page:
previews, results of queries, and live values, which arrive as server-sent events.

- ``views``, ``operations``, ``tables``, ``queries``, ``activity``, ``administration``: data of the pages.
- ``protection``: objectives and alarms. ``pictures``: geometry of the pictures. ``formats``: texts of values.
- ``client``: calls of the Python API for a client, with its checks and the audit log.
- ``rendering``: templates and error pages. ``pages``, ``actions``, ``live``: the routes.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from strandline.server.console import actions, live, pages, rendering
from strandline.server.console.client import RecentStatus


def add_console(app: FastAPI) -> None:
    """Add the pages of the console, its login page at ``/login`` and its files at ``/static``."""
    app.state.pages = rendering.make_environment()
    app.state.recent_status = RecentStatus()
    for module in (pages, actions, live):
        app.include_router(module.router)
    rendering.add_missing_page(app)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
