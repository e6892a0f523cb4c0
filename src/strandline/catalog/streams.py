"""The record of a stream's path."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.records import Record


@dataclass(frozen=True, kw_only=True)
class StreamBody(Record):
    """The record of a stream.

    ``owner``: the id of the backup collection that the stream belongs to, None for a user's stream.
    ``cursor``: the step at which the stream begins, None while it is being created: it never had earlier
    changes. How far it has been read is stored in its hold.
    """

    mode: str
    format: str
    owner: int | None
    table_id: int
    created_step: int
    cursor: int | None
