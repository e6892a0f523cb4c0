"""Decide when the logs of a table should be merged or compacted.

Logs are merged in tiers:

1. ``merge_segments`` small commits become one log.
2. ``FAN_IN`` logs of the same level become one log of a higher level. The level of a log is the logarithm of
   its number of rows to the base ``FAN_IN``.

So a table with n changed rows has at most ``merge_segments`` commits, and less than ``FAN_IN`` logs of each
of the log(n) levels, and each row is written at most once per level. A merge takes place in memory, so logs
above ``bulk_bytes`` wait for compaction.

When the logs have more than ``compact_log_rows`` of the rows of the base, a compaction rewrites the base. So
a compaction writes at most ``1 + 1 / compact_log_rows`` rows per changed row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from strandline.model import Chain, Segment
from strandline.settings import Settings
from strandline.storage.compaction_result import is_good_size, is_too_large

__all__ = ["FAN_IN", "adds_upkeep", "find_due_logs", "keeps_base", "pays_off", "wants_compaction"]

FAN_IN = 16
"""Number of logs of the same level that are merged into one."""
MANY_CHANGES = 1000
"""Minimum number of changed rows for which a process compacts a table by itself."""


def adds_upkeep(before: Chain, added: Sequence[Segment], settings: Settings) -> bool:
    """Return True if a commit has made a merge or a compaction of its table due.

    After small commits, only a merge is due. It is followed by a compaction if that is due, too.

    Args:
        before: the chain before the commit.
        added: the segments of the commit.
    """
    if not all(_is_small_commit(s, settings) for s in added):
        after = Chain((*before.segments, *added), before.step)
        return bool(find_due_logs(after.segments, settings)) or pays_off(after, settings)
    if len(before.segments) + len(added) < settings.merge_segments:
        return False
    commits = takewhile(lambda s: _is_small_commit(s, settings), reversed(before.segments))
    return sum(1 for _ in commits) + len(added) >= settings.merge_segments


def find_due_logs(segments: Sequence[Segment], settings: Settings, after: int = 0) -> list[Segment]:
    """Return the consecutive logs of a chain to merge next, oldest first; an empty list if no merge is due.

    Args:
        after: merge only logs whose changes are all later than this step.
    """
    logs = list(takewhile(lambda s: s.role == "log" and s.after >= after, reversed(segments)))
    commits = list(takewhile(lambda s: _is_small_commit(s, settings), logs))
    if len(found := list(_fitting(commits, settings))) >= settings.merge_segments:
        return found[::-1]
    merged = logs[len(commits) :]
    for level in sorted({_level(s) for s in merged}):
        found = list(_fitting(_up_to(merged, level), settings))
        if sum(_level(s) == level for s in found) >= FAN_IN:
            return found[::-1]
    return []


def _is_small_commit(segment: Segment, settings: Settings) -> bool:
    """Return True if a segment is the log of one commit with few rows."""
    return segment.role == "log" and not segment.stepped and segment.rows <= settings.inline_rows


def _up_to(logs: Iterable[Segment], level: int) -> Iterator[Segment]:
    return takewhile(lambda s: _level(s) <= level, logs)


def _level(log: Segment) -> int:
    return (max(log.rows, 1).bit_length() - 1) // (FAN_IN.bit_length() - 1)


def _fitting(logs: Iterable[Segment], settings: Settings) -> Iterator[Segment]:
    """Yield logs until they have more bytes than this process may have in memory."""
    left = settings.bulk_bytes
    for log in logs:
        left -= log.bytes
        if left < 0:
            return
        yield log


def wants_compaction(chain: Chain, settings: Settings) -> bool:
    """Return True if readers must fold too many rows or open too many segments, or a file is too large.

    Small base files do not count: the only file of a small shard is small, too.
    """
    target = settings.target_file_bytes
    return _is_slow_to_read(chain, settings) or any(
        is_too_large(s, target) for s in chain.segments if s.fresh
    )


def pays_off(chain: Chain, settings: Settings) -> bool:
    """Return True if readers fold too many rows, and a process that writes compacts the table itself."""
    return _has_many_changes(chain, settings, least=max(settings.inline_rows, MANY_CHANGES))


def _has_many_changes(chain: Chain, settings: Settings, least: int) -> bool:
    """Return True if readers must fold too many rows, and at least ``least``. New keys do not count."""
    fresh = sum(s.rows for s in chain.segments if s.fresh)
    changes = sum(s.rows for s in chain.segments if not s.fresh)
    return changes > max(fresh * settings.compact_log_rows, least)


def _is_slow_to_read(chain: Chain, settings: Settings) -> bool:
    """Return True if readers must fold too many rows or open too many segments.

    Large logs of new keys do not count: they are read like a base.
    """
    crumbs = [
        s
        for s in chain.segments
        if s.role == "log" and not (s.fresh and is_good_size(s, settings.target_file_bytes))
    ]
    return len(crumbs) > settings.compact_log_segments or _has_many_changes(
        chain, settings, least=settings.inline_rows
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
    return sum(s.rows for s in base) > settings.bulk_rows and not _is_slow_to_read(chain, settings)
