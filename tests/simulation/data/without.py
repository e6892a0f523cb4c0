"""Disables each safeguard: a simulation that still finds nothing could not detect its absence.

Some safeguards back each other up. Where one alone is enough to prevent a violation, they are disabled
together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select

from strandline.api import table
from strandline.catalog import chains, commits, garbage_collection, sessions, sqltables
from strandline.catalog.cache import Look
from strandline.catalog.chains import TableState
from strandline.catalog.commits import Basis
from strandline.catalog.snapshots import Moment, Moments
from strandline.catalog.tables import TableInfo
from strandline.catalog.transactions import Writer
from strandline.operations.kind import Run
from strandline.tables import indexes
from strandline.tables.transaction import Transaction
from tests.simulation.data.actions import Focus
from tests.simulation.data.witness import replaced


def moment() -> AbstractContextManager[None]:
    """A snapshot shows the present descriptions of tables, whenever it was taken."""
    planned = Moments._plan_table

    def as_of_now(self: Moments, look: Look, moment: Moment, path: str) -> TableInfo | None:
        step, moment.step = moment.step, 2**62
        try:
            return planned(self, look, moment, path)
        finally:
            moment.step = step

    return replaced(Moments, _plan_table=as_of_now)


def kept() -> AbstractContextManager[None]:
    """Segments of a step are taken for its state although some may have been collected."""
    return replaced(chains, check_kept=lambda head, step: None)


def version() -> AbstractContextManager[None]:
    """A commit does not check that the table's description is the one it was planned with."""
    prove_all, at = commits.prove_all, sqltables.paths.c

    def any_version(tx: Writer, bases: Sequence[Basis]) -> list[TableState]:
        found = {row.id: row.version for row in tx.conn.execute(select(at.id, at.version))}
        return prove_all(tx, [replace(b, version=found.get(b.table_id, b.version)) for b in bases])

    return replaced(commits, prove_all=any_version)


def exchanged() -> AbstractContextManager[None]:
    """A replaced table is removed without a new version."""
    move_all = Run.move_all
    return replaced(
        Run, move_all=lambda self, tx, moves: move_all(self, tx, [m for m in moves if m[0] is not None])
    )


def read_step() -> AbstractContextManager[None]:
    """A commit does not check that the rows are still those it read."""
    prove_all = commits.prove_all
    return replaced(
        commits, prove_all=lambda tx, bases: prove_all(tx, [replace(b, read_step=None) for b in bases])
    )


def touched() -> AbstractContextManager[None]:
    """Concurrent commits are taken not to touch what a transaction read or wrote."""

    def let_pass(self: Transaction) -> None:
        with self.runtime.catalog.read() as conn:
            for pending in self._pending.values():
                pending.read_step = chains.state(conn, pending.info.id).step

    return replaced(Transaction, _let_pass=let_pass)


def session() -> AbstractContextManager[None]:
    """Files of an ended session are committed although they may have been collected."""
    return replaced(sessions, find_ended_writer=lambda conn, files: None)


def live() -> AbstractContextManager[None]:
    """A compaction does not check that the segments are still live."""
    return replaced(chains, check_live=lambda table_id, live, old: None)


@contextlib.contextmanager
def identity() -> Iterator[None]:
    """An index is built on the table that has the path now, from the changes that are left of it."""
    caught_up = indexes._caught_up

    def on_any(context: Any, before: Any, current: Any, *args: Any) -> Any:
        return caught_up(
            context, replace(before, info=replace(before.info, id=current.info.id)), current, *args
        )

    with replaced(indexes, _caught_up=on_any), replaced(chains, log_kept=chains.log_between):
        yield


def once() -> AbstractContextManager[None]:
    """Rows that can be read once are read by the first attempt of a commit."""
    return replaced(table, read_caller_rows=lambda mode, data: data)


def pins() -> AbstractContextManager[None]:
    """The collector ignores the pins of operations."""
    return replaced(sessions, oldest_pin=lambda conn: None)


def said() -> AbstractContextManager[None]:
    """The collector ignores recorded long reads."""
    return replaced(sessions, oldest_read=lambda conn: None)


def grace() -> AbstractContextManager[None]:
    """The collector ignores the grace period."""
    in_no_plan = garbage_collection._is_in_no_plan
    return replaced(garbage_collection, _is_in_no_plan=lambda tx, seconds: in_no_plan(tx, 0.0))


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Missing files count as damage although their segments were collected, and reads are not recorded."""
    with replaced(Moments, is_lost_since=lambda self, mark: False), said(), grace():
        yield


def orphans() -> AbstractContextManager[None]:
    """Files without a commit are removed although their writer is alive."""
    return replaced(sessions, all_sessions=lambda conn: set())


READS = ("read", "transact", "index")
WRITES = ("write", "write", "write_many", "transact")


@dataclass(frozen=True)
class Safeguard:
    """How to disable it, and which actions must meet for that to be noticed."""

    without: Callable[[], AbstractContextManager[None]]
    focus: Focus


SAFEGUARDS = {
    "moment": Safeguard(moment, Focus(("transact",), ("column",))),
    "kept": Safeguard(
        kept, Focus(("write", "transact", "read"), ("write", "compact", "collect"), sleeps=1.0)
    ),
    "version": Safeguard(version, Focus(WRITES, ("index", "column"))),
    "exchanged": Safeguard(exchanged, Focus(WRITES, ("replace",), sleeps=0.0)),
    "read step": Safeguard(read_step, Focus(WRITES, ("write",))),
    "touched": Safeguard(touched, Focus(WRITES, ("write",))),
    "session": Safeguard(session, Focus((*WRITES, "index"), ("collect",), sleeps=1.0)),
    "live": Safeguard(live, Focus(("compact",), ("write_often",), sleeps=1.0)),
    "identity": Safeguard(
        identity, Focus(("index", "index", "write_often"), ("drop_and_restore", "write"), sleeps=0.0)
    ),
    "once": Safeguard(once, Focus(("write_generator",), ("write",))),
    "pins": Safeguard(pins, Focus(("back_up",), ("write", "compact_and_collect"), sleeps=0.0)),
    "said": Safeguard(said, Focus(("transact",), ("write", "compact_and_collect"), sleeps=0.0)),
    "grace": Safeguard(
        grace, Focus(("transact",), ("compact_and_collect",), sleeps=0.0, grace_seconds=100.0)
    ),
    "collected": Safeguard(collected, Focus(READS, ("write", "compact_and_collect"), sleeps=1.0)),
    "orphans": Safeguard(orphans, Focus(WRITES, ("compact_and_collect",), sleeps=0.0)),
}


@contextlib.contextmanager
def taken_out(name: str | None) -> Iterator[None]:
    """Disable a safeguard (None: none) during the block."""
    with SAFEGUARDS[name].without() if name is not None else contextlib.nullcontext():
        yield
