"""Copy, upload and check segment files in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count

from strandline.errors import StrandlineError
from strandline.model import Segment, TableSchema
from strandline.storage import segment_files
from strandline.storage.file_router import Destination, FileRouter
from strandline.storage.order import Finding
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Copies
from strandline.storage.throttle import Throttle
from strandline.threads import in_parallel

__all__ = ["copy", "damages", "losses", "send"]

ONE_BY_ONE = 8 << 20
"""Maximum total size of files that are copied one after the other: threads would not be faster."""
SENDERS = 8
"""Number of files that are checked at the same time."""


def copy(
    cache: SegmentCache, wanted: Sequence[Copies], throttle: Throttle
) -> list[list[Segment] | StrandlineError]:
    """Copy segment files within the warehouse and verify their bytes.

    Return for each item of ``wanted`` its new segments, or the error. The copied files are durable when this
    function returns. The files of an item that failed are deleted.
    """
    made: list[list[Segment] | StrandlineError] = []
    for each in wanted:
        try:
            made.append(_copy_segments(cache, each, throttle))
        except StrandlineError as error:
            made.append(error)
        except BaseException:
            for done in made:
                cache.discard(done if isinstance(done, list) else ())
            raise
    return made


def _copy_segments(cache: SegmentCache, wanted: Copies, throttle: Throttle) -> list[Segment]:
    made: list[Segment] = []

    def copy_one(number: int, segment: Segment) -> Segment:
        name = f"{wanted.name}-{number}.parquet"
        found = segment_files.copy_segment(cache.files, segment, name, throttle, wanted.schema)
        made.append(found)
        return found

    try:
        if sum(s.bytes for s in wanted.segments) <= ONE_BY_ONE:
            return list(map(copy_one, count(), wanted.segments))
        # Copy files in parallel: some are read while others wait for the disk.
        return in_parallel(copy_one, count(), wanted.segments, threads=throttle.limits.copies)
    except BaseException:
        cache.discard(made)
        raise


def send(
    files: FileRouter, segments: Sequence[Segment], target: Destination, throttle: Throttle
) -> list[Segment]:
    """Upload segment files to a repository; return the uploaded segments."""
    # Upload files in parallel: most of the time is spent waiting for the server.
    return in_parallel(
        partial(segment_files.upload_segment, files, target, throttle),
        segments,
        threads=throttle.limits.copies,
    )


def damages(
    cache: SegmentCache, segments: Sequence[Segment], schemas: Sequence[TableSchema] | None = None
) -> list[Finding | None]:
    """Read the bytes of each segment; return a finding for each damaged segment, and None for the others.

    Args:
        schemas: for each segment the schema of its table. If given, the bounds of files in a repository are
            compared with their records, too.
    """
    shapes: Sequence[TableSchema | None] = schemas or [None] * len(segments)
    if sum(s.bytes for s in segments) <= ONE_BY_ONE:
        return list(map(partial(segment_files.damage, cache.files), segments, shapes))
    return in_parallel(partial(segment_files.damage, cache.files), segments, shapes, threads=SENDERS)


def losses(files: FileRouter, segments: Sequence[Segment]) -> list[Finding | None]:
    """Return for each segment a finding if its file is missing or has the wrong size, otherwise None."""
    return in_parallel(partial(segment_files.loss, files), segments, threads=SENDERS)
