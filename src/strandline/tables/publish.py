"""The catalog transaction that makes files part of chains, and what becomes of the files when it fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from strandline.catalog.writer import Writer
from strandline.model import Segment
from strandline.runtime import Runtime
from strandline.work import Interrupted


@contextmanager
def publishing(runtime: Runtime, segments: Iterable[Segment]) -> Iterator[Writer]:
    """A write transaction for what was planned outside it, which is to be proved inside. What becomes of new
    ``segments`` if it is refused: their files are removed. If the catalog does not say whether it took place,
    they stay: a file too many is an orphan, which the collector finds; one too few is a table that cannot be
    read."""
    decided = False
    try:
        with runtime.catalog.write() as tx:
            yield tx
            decided = True
    except (Exception, Interrupted) as error:
        if not decided or isinstance(error, Interrupted):
            runtime.store.discard(segments)
        raise
