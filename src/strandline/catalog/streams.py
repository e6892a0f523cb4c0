"""The record of a stream's path."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.records import Record


@dataclass(frozen=True, kw_only=True)
class StreamBody(Record):
    """The record of a stream. Its hold, not this record, has the step up to which the stream has been read.

    Attributes:
        owner: the id of the backup collection that the stream belongs to. None: it is a user's stream.
        cursor: the step at which the stream begins; it has no earlier changes. None: the stream is still
            being created.
    """

    mode: str
    format: str
    owner: int | None
    table_id: int
    created_step: int
    cursor: int | None
