"""Warehouses of the tests of the console, and clients that are logged in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest

from strandline.api.access import Role
from tests.console.shop import Shop, fill, open_shop, serving

LogIn: TypeAlias = Callable[..., httpx.Client]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A warehouse with a collection that has a full backup and an increment."""
    found = open_shop(tmp_path)
    fill(found, days=2)
    yield found
    found.files.open.set()
    found.db.close()


@pytest.fixture
def empty_shop(tmp_path: Path) -> Iterator[Shop]:
    found = open_shop(tmp_path)
    yield found
    found.db.close()


@pytest.fixture
def log_in() -> Iterator[LogIn]:
    """Return a client that has logged in on the login page, as a browser does."""
    with contextlib.ExitStack() as opened:

        def make(shop: Shop, role: Role = "admin") -> httpx.Client:
            url = opened.enter_context(serving(shop))
            client = opened.enter_context(httpx.Client(base_url=url, follow_redirects=True, timeout=120))
            answer = client.post("/login", data={"token": shop.token(role)}, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            return client

        yield make
