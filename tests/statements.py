"""What makes it cheaper to open a catalog for each of thousands of tests."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache


def share_compiled() -> None:
    """Let all engines of this process share the texts that SQLAlchemy has made of statements. Each has a
    place of its own for them, so that otherwise every test makes the same hundred ones again.

    What is made for one database serves another one of the same kind, version and way to insert."""
    shared: Any = LRUCache(4000)

    def is_alike(self: DefaultDialect, other: object) -> bool:
        return type(self) is type(other) and _facts(self) == _facts(other)

    # Not by another __init__: SQLAlchemy looks at its parameters to know the options of create_engine.
    Engine._compiled_cache = property(lambda self: shared, lambda self, own: None)  # type: ignore[assignment]
    DefaultDialect.__eq__ = is_alike  # type: ignore[method-assign, assignment]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]


def _facts(dialect: Any) -> tuple[object, ...]:
    return (
        dialect.paramstyle,
        getattr(dialect, "server_version_info", None),  # Nobody knows it before there is a connection.
        dialect.use_insertmanyvalues,
        dialect.use_insertmanyvalues_wo_returning,
        dialect.insertmanyvalues_page_size,
    )
