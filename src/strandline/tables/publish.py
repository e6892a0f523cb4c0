"""The catalog transaction that makes files part of chains, and what becomes of the files when it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from strandline.catalog import sessions
from strandline.model import Segment
from strandline.runtime import Runtime
from strandline.tables.snapshot import Snapshot


@contextmanager
def publishing(
    runtime: Runtime, snapshot: Snapshot, segments: Iterable[Segment] = ()
) -> Iterator[Connection]:
    """A write transaction for what was planned with a snapshot; refused if the session in whose name it was
    read has ended. What becomes of new ``segments`` if it is refused: their files are removed. If the catalog
    does not say whether it took place, they stay: a file too many is an orphan, which the collector finds;
    one too few is a table that cannot be read."""
    decided = False
    try:
        with runtime.catalog.write() as conn:
            sessions.require(conn, snapshot.session_id)
            yield conn
            decided = True
    except Exception:
        if not decided:
            runtime.store.discard(segments)
        raise
