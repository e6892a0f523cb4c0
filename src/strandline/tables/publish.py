"""Publish new files in a catalog transaction, and delete them if it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from strandline.cancellation import Interrupted
from strandline.catalog.transactions import Writer
from strandline.model import Segment
from strandline.runtime import Runtime


@contextmanager
def publishing(runtime: Runtime, segments: Iterable[Segment]) -> Iterator[Writer]:
    """Open a write transaction that publishes ``segments``.

    The block must check that what was planned is still valid. If the block raises or is interrupted, the
    files of the segments are deleted. If the outcome of the commit is unknown, the files stay: an orphan file
    is garbage-collected, but a missing file makes a table unreadable.
    """
    decided = False
    try:
        with runtime.catalog.write() as tx:
            yield tx
            decided = True
    except (Exception, Interrupted) as error:
        if not decided or isinstance(error, Interrupted):
            runtime.store.discard(segments)
        raise
