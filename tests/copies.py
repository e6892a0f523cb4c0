"""Consistent copy as an operation of its own: what a full backup is made of, without the collection around it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from strandline.catalog import board
from strandline.operations.copy import CopyRequest, copy_handlers, plan_copy
from strandline.operations.kind import Kind, Plan, Run
from strandline.operations.streams import StreamSpec


class Copy(Kind):
    """Its result names the step at which the copies were cut."""

    name = "copy"

    def __init__(self) -> None:
        self.handlers = copy_handlers()

    def plan(self, conn: Connection, run: Run) -> Plan:
        body = run.operation.request
        request = CopyRequest(
            tuple((source, target) for source, target in body["tables"]),
            None if body["stream"] is None else StreamSpec.from_json(body["stream"]),
            body["omit_indexes"],
            tuple(body["drop_streams"]),
        )
        step = board.current_step(conn)
        return Plan(plan_copy(conn, run, request, step), {"step": step})

    def finish(self, conn: Connection, run: Run, step: int) -> dict[str, Any]:
        return {"step": run.operation.body["step"], "tables": len(run.operation.request["tables"])}


def copy_request(
    *pairs: tuple[str, str],
    stream: StreamSpec | None = None,
    omit_indexes: bool = False,
    drop_streams: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The request to copy each first path of a pair to the second."""
    return {
        "tables": [list(pair) for pair in pairs],
        "stream": None if stream is None else stream.to_json(),
        "omit_indexes": omit_indexes,
        "drop_streams": list(drop_streams),
    }
