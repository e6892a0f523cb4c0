"""Fixtures of the service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline
from tests.quick_files import QuickFiles

if TYPE_CHECKING:
    from tests.server.services import Running


@pytest.fixture(scope="session")
def first_shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    from tests.server.services import make_shop, make_tokens

    folder = tmp_path_factory.mktemp("served") / "wh"
    with make_shop(folder) as db:
        return folder, make_tokens(db)


@pytest.fixture
def shop(first_shop: tuple[Path, dict[str, str]], tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with a warehouse, and its tokens."""
    folder, tokens = first_shop
    shutil.copytree(folder, tmp_path / "wh")
    return tmp_path / "wh", tokens


@pytest.fixture
def service(shop: tuple[Path, dict[str, str]]) -> Iterator[Running]:
    """A service of a small shop."""
    from strandline.server import ServerSettings
    from tests.server.services import SETTINGS, serving

    folder, tokens = shop
    settings = ServerSettings(
        port=0, maintain_seconds=0, drain_seconds=0, body_seconds=0.5, header_seconds=0.5
    )
    with strandline.connect(folder, files=QuickFiles(str(folder)), settings=SETTINGS, adopt=True) as db:
        with serving(db, settings) as running:
            running.tokens = tokens
            yield running
