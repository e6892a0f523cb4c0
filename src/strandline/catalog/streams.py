"""What the path of a stream keeps."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.records import Record


@dataclass(frozen=True, kw_only=True)
class StreamBody(Record):
    """``owner``: the id of the backup collection that the stream belongs to, None for a user's own.
    ``cursor``: the step at which it begins, None while it is being created; how far it was read is in its
    hold."""

    mode: str
    format: str
    owner: int | None
    table_id: int
    created_step: int
    cursor: int | None
