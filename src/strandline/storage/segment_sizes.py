"""Estimate how many bytes some columns of segments take in their files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from strandline.model import Segment, TableSchema
from strandline.storage.segment import footer_of
from strandline.storage.segment_cache import SegmentCache

__all__ = ["projected_bytes"]

GROUPS = 8
"""Maximum number of row groups whose sizes are read."""


def projected_bytes(
    cache: SegmentCache, schema: TableSchema, segments: Sequence[Segment], columns: Collection[str]
) -> int:
    """Estimate how many bytes ``columns`` take in all the segments together.

    Assumes that these columns have the same share of each file as of the largest file.
    """
    total = sum(s.bytes for s in segments)
    largest = max((s for s in segments if s.file is not None), key=lambda s: s.bytes, default=None)
    if largest is None:
        return total
    metadata = footer_of(cache, largest).metadata
    groups = [metadata.row_group(i) for i in range(min(GROUPS, metadata.num_row_groups))]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    wanted = {schema[name].physical for name in columns if name in schema}
    size = sum(chunk.total_compressed_size for chunk in chunks)
    share = sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in wanted)
    return total * share // size if size else total
