"""Decide when the logs of a table should be merged or compacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strandline.model import Chain, Segment
from strandline.settings import Settings
from strandline.storage.compaction_result import is_good_size, is_too_large

__all__ = ["MEDIUM_ROWS", "MEDIUM_SEGMENTS", "keeps_base", "wants_compaction"]

MEDIUM_ROWS = 200_000
"""Maximum number of rows of a log that is merged again.

Such logs are merged when a chain ends with at least MEDIUM_SEGMENTS of them. Larger logs wait for compaction.
"""
MEDIUM_SEGMENTS = 16


def wants_compaction(chain: Chain, settings: Settings) -> bool:
    """Return True if readers must fold too many rows or open too many segments, or a file is too large.

    Small base files do not count: the only file of a small shard is small, too.
    """
    target = settings.target_file_bytes
    return _has_many_changes(chain, settings) or any(
        is_too_large(s, target) for s in chain.segments if s.fresh
    )


def _has_many_changes(chain: Chain, settings: Settings) -> bool:
    """Return True if readers must fold too many rows or open too many segments.

    Large logs of new keys do not count: they are read like a base.
    """
    fresh = sum(s.rows for s in chain.segments if s.fresh)
    changes = sum(s.rows for s in chain.segments if not s.fresh)
    crumbs = [
        s
        for s in chain.segments
        if s.role == "log" and not (s.fresh and is_good_size(s, settings.target_file_bytes))
    ]
    return len(crumbs) > settings.compact_log_segments or changes > max(
        fresh * settings.compact_log_rows, settings.inline_rows
    )


def keeps_base(base: Sequence[Segment], changes: Sequence[Segment], settings: Settings) -> bool:
    """Return True if the changes should be kept as one log behind the base, instead of rewriting the base.

    Returns False if the base is small enough to be rewritten in one process, or if the chain with the log
    would be due for compaction.
    """
    rows, size = sum(s.rows for s in changes), sum(s.bytes for s in changes)
    is_fresh = all(s.fresh for s in changes)
    log = [replace(s, rows=rows, bytes=size, fresh=is_fresh) for s in changes[:1]]
    chain = Chain((*base, *log), max((s.upto for s in changes), default=0))
    return sum(s.rows for s in base) > settings.bulk_rows and not _has_many_changes(chain, settings)
