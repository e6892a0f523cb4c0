"""The history of the versions of a path, as far as it is kept.

It is read from three tables of the catalog:

- ``board``: the publications.
- ``claimed``: the claims, with the parts that joined them.
- ``noticed``: what processes reported: refused claims, version mismatches, and the time that publications
  took to reach the caches.

Each table is scanned once: the history is requested rarely, and an index would slow down every operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, func, select

from strandline import names
from strandline.catalog import paths, sqltables
from strandline.catalog.transactions import Writer

_ORDER = {"claimed": 0, "published": 1, "dropped": 2}
_BOARD, _CLAIMED, _NOTICED = sqltables.board.c, sqltables.claimed.c, sqltables.noticed.c


class VersionEvent(NamedTuple):
    """An event in the history of a path.

    The values of ``event``:

    - ``claimed``: an operation claimed the version. Its part ``writer`` claimed first, the parts ``siblings``
      joined.
    - ``published`` or ``dropped``: the path was published or dropped at ``step``.
    - ``conflict``: a claim was refused.
    - ``mismatch``: the versions in a plan did not fit each other.
    - ``cured`` or ``failed``: retries after a mismatch succeeded or failed.

    ``path_id`` distinguishes paths that had the same name at different times.
    """

    time: float
    event: str
    path_id: int
    version: int | None = None
    step: int | None = None
    operation_id: str | None = None
    operation: str | None = None
    writer: int | None = None
    siblings: tuple[int, ...] = ()
    details: str | None = None


def story(conn: Connection, path: str) -> list[VersionEvent]:
    """Return all kept events of the path and of earlier paths with its name, in order.

    Events under former names of these paths are included.
    """
    name = names.normalize(path)
    ids = set(conn.execute(select(_BOARD.path_id).where(_BOARD.path == name)).scalars())
    present = paths.find(conn, name) if ids else paths.require(conn, name)
    ids |= {present.id} if present is not None else set()
    told = conn.execute(
        select(sqltables.board)
        .where(sqltables.among(_BOARD.path_id, "ids"))
        .order_by(_BOARD.generation, _BOARD.path_id),
        {"ids": [*ids]},
    ).all()
    claims = conn.execute(
        select(sqltables.claimed).where(sqltables.among(_CLAIMED.path_id, "ids")), {"ids": [*ids]}
    )
    seen = conn.execute(
        select(sqltables.noticed).where(sqltables.among(_NOTICED.path_id, "ids")).order_by(_NOTICED.id),
        {"ids": [*ids]},
    )
    events = [
        *_claims(claims.all(), told, _open_claims(conn, ids)),
        *_publications(name, told, _arrivals(conn, [row.generation for row in told])),
        *map(_arrival_times, seen),
    ]
    kinds = _kinds(conn, {event.operation_id for event in events if event.operation_id is not None})
    # Events may have the same time, for example with a stopped clock. Then order them by version: a claim,
    # its publication, and then the notices.
    events.sort(key=lambda e: (e.time, e.path_id, e.version or 2**62, _ORDER.get(e.event, 3)))
    return [event._replace(operation=kinds.get(event.operation_id or "")) for event in events]


def forget(tx: Writer, *, history_seconds: float) -> None:
    """Delete events older than ``history_seconds``.

    A cache that has missed deleted publications empties itself (``SchemeCache``).
    """
    before = tx.now - history_seconds
    for table in (sqltables.board, sqltables.claimed, sqltables.noticed):
        tx.conn.execute(delete(table).where(table.c.time < before))


def _publications(
    name: str, told: Iterable[Row[Any]], arrivals: dict[int, tuple[int, float]]
) -> Iterator[VersionEvent]:
    for row in told:
        count, last = arrivals.get(row.generation, (0, 0.0))
        known = [f"as {row.path}"] if row.path != name else []
        if count:
            caches = "cache" if count == 1 else "caches"
            known.append(f"came to {count} {caches}, to the last after {last:.3f} s")
        yield VersionEvent(
            row.time,
            "dropped" if row.dropped else "published",
            row.path_id,
            version=row.version,
            step=row.step,
            operation_id=row.operation_id,
            details="; ".join(known) or None,
        )


def _claims(
    rows: Iterable[Row[Any]], told: Sequence[Row[Any]], is_open: set[tuple[str, int]]
) -> Iterator[VersionEvent]:
    """Yield one event per operation and claimed path, with all parts that claimed or joined."""
    published = {(row.operation_id, row.path_id) for row in told}
    by_claim: dict[tuple[str, int], list[Row[Any]]] = defaultdict(list)
    for row in rows:
        by_claim[row.operation_id, row.path_id].append(row)
    for claim, parts in by_claim.items():
        first = min(parts, key=lambda row: (row.part_id != row.writer, row.time))
        siblings = tuple(sorted(row.part_id for row in parts if row.part_id != row.writer))
        over = "published" if claim in published else "open" if claim in is_open else "given up"
        yield VersionEvent(
            first.time,
            "claimed",
            first.path_id,
            version=first.version,
            operation_id=first.operation_id,
            writer=first.writer,
            siblings=siblings,
            details=f"from version {first.published}; {over}",
        )


def _arrival_times(row: Row[Any]) -> VersionEvent:
    if row.event == "conflict":
        details = f"operation {row.other} has it"
    else:
        got = "it is not there" if row.actual is None else f"got {row.actual}"
        details = f"{row.other}: expected {row.expected}, {got}"
    return VersionEvent(
        row.time, row.event, row.path_id, operation_id=row.operation_id, writer=row.part_id, details=details
    )


def _open_claims(conn: Connection, ids: Iterable[int]) -> set[tuple[str, int]]:
    at = sqltables.claims.c
    rows = conn.execute(
        select(at.operation_id, at.path_id).where(sqltables.among(at.path_id, "ids")), {"ids": [*ids]}
    )
    return {(operation_id, path_id) for operation_id, path_id in rows}


def _arrivals(conn: Connection, generations: Sequence[int]) -> dict[int, tuple[int, float]]:
    """Return how many caches each publication has reached, and its longest delay in seconds.

    Args:
        generations: numbers of the publications. They are also the keys of the result.
    """
    rows = conn.execute(
        select(_NOTICED.generation, func.count(), func.max(_NOTICED.seconds))
        .where(sqltables.among(_NOTICED.generation, "generations"))
        .group_by(_NOTICED.generation),
        {"generations": list(generations)},
    )
    return {generation: (count, last) for generation, count, last in rows}


def _kinds(conn: Connection, operation_ids: Iterable[str]) -> dict[str, str]:
    """Return the kinds of operations that are still in the catalog, by id."""
    at = sqltables.operations.c
    rows = conn.execute(
        select(at.id, at.kind).where(sqltables.among(at.id, "ids")), {"ids": sorted(operation_ids)}
    )
    return {row.id: row.kind for row in rows}
