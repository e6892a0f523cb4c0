"""The web console: pages for people, below ``/``."""

from __future__ import annotations

from fastapi import FastAPI


def add_console(app: FastAPI) -> None:
    """Add the pages of the console, its login page at ``/login`` and its files at ``/static``."""
