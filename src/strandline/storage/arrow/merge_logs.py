"""Merge log segments into one, so that readers open fewer segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from strandline.errors import Internal
from strandline.model import PENDING, Segment, TableSchema
from strandline.storage.digest import checksum_of
from strandline.storage.file_router import Destination, object_name
from strandline.storage.files import Files
from strandline.storage.keys import codes
from strandline.storage.segment import NEVER, Inline, Sink, read_segment, write_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import check_healed, has_object
from strandline.storage.throttle import Throttle

__all__ = ["ObjectSink", "merge_logs", "pack", "pack_bytes"]


def merge_logs(
    cache: SegmentCache,
    schema: TableSchema,
    segments: Sequence[Segment],
    name: str,
    *,
    into: Sink | None = None,
    inline: Inline = NEVER,
) -> Segment:
    """Merge consecutive, committed log segments into one segment that has every change.

    Changes are not folded, so streams and reads of earlier steps get the same rows as before.

    Args:
        segments: the log segments, oldest first.
        into: writes the file. None: write it to the warehouse.
        inline: maximum size of a merged segment that is stored inline in the catalog.
    """
    if not segments or any(s.role != "log" or s.upto >= PENDING for s in segments):
        raise Internal("only committed log segments can be merged")
    if any(later.upto < earlier.upto for earlier, later in pairwise(segments)):
        raise Internal("the log segments to merge are not in the order of their steps")
    table = pa.concat_tables([read_segment(cache, schema, segment) for segment in segments])
    fresh = (
        all(s.fresh for s in segments) and codes([table.column(n) for n in schema.key])[1] == table.num_rows
    )
    return write_segment(
        cache.files if into is None else into,
        schema,
        table,
        name=name,
        role="log",
        fresh=fresh,
        stepped=True,
        # The minimum: among segments of a backup's shards, a later segment may begin at an earlier step.
        after=min(s.after for s in segments),
        upto=segments[-1].upto,
        inline=inline,
    )


@dataclass(frozen=True)
class ObjectSink:
    """Writes new files as objects of a repository, named by their content."""

    files: Files
    target: Destination
    throttle: Throttle

    def name(self, checksum: str) -> str:
        return object_name(self.files, checksum, self.target.avoided)

    def store(self, chunks: Iterable[bytes]) -> str:
        """Write an object from chunks of bytes and return its name, which is derived from its content."""
        data = b"".join(chunks)
        name = self.name(checksum_of(data))
        self.write(name, data)
        return name

    def write(self, name: str, data: bytes) -> None:
        with self.throttle.room():
            self.throttle.pay(len(data))
            checksum = checksum_of(data)
            named = self.name(checksum)
            if self.files.write_if_absent(named, data):
                return
            if not has_object(self.files, self.target, named, len(data)):
                self.files.replace(named, (data,))
                check_healed(self.files, self.target, named, checksum)


def pack(cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], there: ObjectSink) -> Segment:
    """Merge consecutive inline segments into one object of a repository."""
    made = merge_logs(cache, schema, segments, "", into=there)
    return replace(made, file=there.name(made.checksum))


@dataclass
class _Memory:
    """Keeps one new file in memory."""

    data: bytes = b""

    def write(self, name: str, data: bytes) -> None:
        self.data = data


def pack_bytes(
    cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], checksum: str
) -> bytes | None:
    """Return the bytes of the object that ``pack`` would write; None if its checksum is not ``checksum``."""
    memory = _Memory()
    made = merge_logs(cache, schema, segments, "", into=memory)
    return memory.data if made.checksum == checksum else None
