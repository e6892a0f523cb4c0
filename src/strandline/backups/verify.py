"""Checking the backups of a collection without restoring them."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.backups.record import backup_records, chain_to, require_collection, slices_of
from strandline.catalog import chains
from strandline.catalog.stale import Ended
from strandline.errors import StrandlineError
from strandline.model import Chain, Segment
from strandline.operations.kind import RETRY_SECONDS, pause_after
from strandline.retry import tries
from strandline.runtime import Runtime
from strandline.storage.shards import cuts, segments_by_shard
from strandline.tables.check import Problem, damaged_files
from strandline.tables.snapshot import Snapshot, repeat


def verify(runtime: Runtime, collection: str) -> list[Problem]:
    """Every backup is checked: its chain, the arithmetic of its digests, and its files. One that is dropped
    meanwhile stays readable until it ends."""
    return repeat(runtime, lambda: _verify(runtime, collection, Snapshot(runtime)))


def _verify(runtime: Runtime, collection: str, snapshot: Snapshot) -> list[Problem]:
    snapshot.take()
    problems: list[Problem] = []
    with runtime.catalog.read() as conn:
        path = require_collection(conn, collection)
        records = backup_records(conn, path)
    checked: set[int] = set()
    for record in records:
        at = f"{path.path}/{record.name}"
        try:
            chain = chain_to(records, record.name)
            for table, contents in record.tables.items():
                slices_of(chain, table)
                for index in contents.indexes:
                    slices_of(chain, table, index.definition.name)
        except StrandlineError as error:
            problems.append(Problem("broken_chain", at, error.message))
        for slice_ in record.slices:
            if slice_.target_id is not None and slice_.target_id not in checked:
                checked.add(slice_.target_id)
                with runtime.catalog.read() as conn:
                    held = chains.load(conn, slice_.target_id, record.step)
                snapshot.note(held.segments)
                problems += _damaged(runtime, at, held)
    if problems and runtime.moments.lost_since(snapshot.mark):
        raise Ended(0, "what it read has been collected meanwhile")
    return problems


def _damaged(runtime: Runtime, at: str, chain: Chain) -> list[Problem]:
    # A shard at a time: storage that fails now and then costs one of them again, not all.
    shards = segments_by_shard(cuts((), chain.segments, runtime.settings.shard_bytes), chain.segments)
    return [p for found in shards.values() for p in _patiently(runtime, at, found)]


def _patiently(runtime: Runtime, at: str, segments: Sequence[Segment]) -> list[Problem]:
    for number in tries(runtime.clock, RETRY_SECONDS.__getitem__):
        try:
            return list(damaged_files(runtime, at, segments))
        except StrandlineError as error:
            if pause_after(error, number + 1) is None:
                raise
    raise AssertionError("tries without a limit have no end")
