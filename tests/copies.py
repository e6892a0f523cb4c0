"""Consistent copy as an operation of its own: what a full backup is made of, without the collection around
it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.catalog.transactions import Writer, current_step
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.kind import Kind, Plan, Planning, Run
from strandline.operations.streams import AtStep, StreamSpec, plan_drops, require_streams
from strandline.records import Nothing, Record


@dataclass(frozen=True, kw_only=True)
class Copies(Record):
    """A ``CopyRequest`` that is kept. ``drop_streams``: paths of streams that the new ones replace."""

    tables: tuple[tuple[str, str], ...]
    stream: StreamSpec | None
    omit_indexes: bool
    drop_streams: tuple[str, ...]
    shard_bytes: int


@dataclass(frozen=True, kw_only=True)
class Copied(Record):
    step: int
    tables: int


class Copy(Kind[Copies, AtStep, Nothing]):
    """Its result names the step at which the copies were cut."""

    name = "copy"
    request, body, progress = Copies, AtStep, Nothing

    def __init__(self) -> None:
        self.handlers = copy_handlers()

    def plan(self, tx: Writer, run: Planning[Copies]) -> Plan[AtStep, Nothing]:
        asked = run.request
        request = CopyRequest(asked.tables, asked.shard_bytes, asked.stream, asked.omit_indexes)
        step = current_step(tx.conn)
        parts = plan_copy(tx, run, request, step)
        if asked.drop_streams:
            parts += plan_drops(tx, run, require_streams(tx.conn, asked.drop_streams))
        return Plan(parts, AtStep(step=step), Nothing())

    def finish(self, tx: Writer, run: Run[Copies, AtStep, Nothing]) -> Copied:
        return Copied(step=run.body.step, tables=len(run.request.tables))


def copy_request(
    *pairs: tuple[str, str],
    stream: StreamSpec | None = None,
    omit_indexes: bool = False,
    drop_streams: tuple[str, ...] = (),
    shard_bytes: int = 2**28,
) -> Copies:
    """The request to copy each first path of a pair to the second."""
    return Copies(
        tables=pairs,
        stream=stream,
        omit_indexes=omit_indexes,
        drop_streams=drop_streams,
        shard_bytes=shard_bytes,
    )
