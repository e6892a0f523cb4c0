"""How much a run tries of what tests only sample: ``make test`` a part, ``make exhaustive`` all of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import pytest

EVERY = bool(os.environ.get("STRANDLINE_EVERY"))
"""Every crash point and every order, instead of a few of each kind."""
CLUSTER = EVERY or bool(os.environ.get("STRANDLINE_CLUSTER"))
"""All that is tried on a cluster and over Spark Connect, instead of a smoke."""
FACTOR = int(os.environ.get("STRANDLINE_EXAMPLES", "0"))
"""So many times as many random examples, and other ones each time; 0: always the same ones."""
MIX_SECONDS = float(os.environ.get("STRANDLINE_MIX_SECONDS", "4"))
"""How long the mix of all that can happen at once lasts."""
REPOSITORY_MIX_SECONDS = float(os.environ.get("STRANDLINE_REPOSITORY_MIX_SECONDS", "60" if EVERY else "2"))
"""How long the mix of all that works on the backups of one repository lasts."""
NIGHTS = int(os.environ.get("STRANDLINE_NIGHTS", "365" if EVERY else "21"))
"""So many nights backups are taken in simulated time."""


def on_catalogs(values: Mapping[str, Any], also_on_postgresql: Collection[str]) -> list[Any]:
    """Return the parameters of a test that takes a value and ``catalog_url`` (indirect): every value with a
    catalog in SQLite, and some of them, or all where everything is tried, with one in PostgreSQL as well.

    For what the catalog has little to do with: one or two values then show that it works with either."""
    return [pytest.param(value, "sqlite", id=f"sqlite-{name}") for name, value in values.items()] + [
        pytest.param(value, "postgresql", id=f"postgresql-{name}", marks=pytest.mark.slow)
        for name, value in values.items()
        if EVERY or name in also_on_postgresql
    ]
