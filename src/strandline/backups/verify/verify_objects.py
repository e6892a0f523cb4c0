"""Verification of objects: files and, in a warehouse, inline segments.

An object is verified once, even if several backups share it. Results are stored at intervals, so that a run
that is interrupted keeps what it has verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TypeVar

from strandline.backups.verify.verification_history import (
    LEVELS,
    Level,
    Looked,
    keep_lot,
    keep_seen,
    key_of,
    object_results,
    tidy,
)
from strandline.cancellation import phase
from strandline.catalog import chains
from strandline.chunks import batches
from strandline.errors import StrandlineError
from strandline.model import Segment, TableSchema
from strandline.operations.kind import pause_after
from strandline.retry import tries
from strandline.runtime import Runtime
from strandline.storage.order import Finding
from strandline.storage.segment import label
from strandline.threads import within

T = TypeVar("T")

TOGETHER = 1000
"""Maximum number of objects in one batch, and in one stored lot."""
KEPT_EVERY = 64
"""Maximum number of batches between two writes of the results."""


@dataclass(frozen=True)
class Object:
    """An object to verify. It is verified once, even if several backups share it.

    Attributes:
        backup: The first backup that holds it.
        schema: Schema of its table in that backup.
    """

    key: str
    segment: Segment
    backup: str
    schema: TableSchema

    def differs(self, segment: Segment) -> bool:
        """Return True if a segment describes the same object differently."""
        return _facts(segment) != _facts(self.segment)


def _facts(segment: Segment) -> tuple[object, ...]:
    return segment.checksum, segment.bytes, segment.rows, segment.min_key, segment.max_key


class Objects:
    """The objects of a collection, or of some of its backups.

    Attributes:
        looked: Results of earlier verifications.
        all: All these objects, by key.
        checked: Objects that this run has verified.
        findings: The damage that this run has found, by object key.
    """

    def __init__(self, runtime: Runtime, collection_id: int, known: Looked, level: Level) -> None:
        self._runtime = runtime
        self._collection_id = collection_id
        self._level = level
        self.looked = known
        self.all: dict[str, Object] = {}
        self._ids: dict[str, set[int]] = {}
        self._described_twice: dict[str, Finding] = {}
        self.checked: list[Object] = []
        self.findings: dict[str, Finding] = {}

    def add(self, backup: str, segments: Iterable[Segment], schema: TableSchema) -> None:
        for segment in segments:
            key = key_of(segment)
            known = self.all.setdefault(key, Object(key, segment, backup, schema))
            if segment.file is not None and known.differs(segment):
                message = f"the {label(segment)} is described in two ways, by {known.backup} and by {backup}"
                self._described_twice[key] = Finding("corrupt_file", message)
            self._ids.setdefault(key, set()).add(segment.id)

    def due(self, *, sample: int | None, again: bool) -> list[Object]:
        """Return the objects to verify: those that were never verified, and damaged ones.

        Args:
            sample: Instead of the objects that were never verified, return this percentage of all objects:
                those that have waited longest. Damaged objects are always included. So after a hundred
                samples of one percent, all objects that existed before the first sample are verified, even if
                new objects arrive each time.
            again: Return all objects.
        """
        times = {key: self.looked.at(key, self._level) for key in self.all}
        if sample is not None:
            seen = {key: self.looked.since(key, self._level) for key in self.all}
            ordered = sorted(seen, key=lambda key: (seen[key], times[key] is not None, key))
            ordered = ordered[: ceil(len(ordered) * sample / 100)]
        else:
            ordered = sorted(times, key=lambda key: (times[key] or 0.0, key))
            ordered = [key for key in ordered if again or times[key] is None]
        damaged = sorted(set().union(*self.looked.damaged.values()) & self.all.keys())
        return [self.all[key] for key in dict.fromkeys([*ordered, *damaged])]

    def look_at(self, due: Iterable[Object], *, some: bool) -> None:
        """Verify objects, and store the results.

        Args:
            some: True: the collection may have objects that are not in ``all``. The results of these objects
                are kept.
        """
        kept, wanted = 0, list(due)
        try:
            for number, batch in enumerate(self._watch(wanted), start=1):
                found = patiently(self._runtime, partial(self._findings, batch))
                self.checked += batch
                self.findings.update(found)
                if number % KEPT_EVERY == 0 or len(self.checked) - kept >= TOGETHER:
                    self._keep(self.checked[kept:])
                    kept = len(self.checked)
        finally:
            self._keep(self.checked[kept:])
        self._forget_collected()
        self._tidy(some=some)

    def _watch(self, wanted: Sequence[Object]) -> Iterator[list[Object]]:
        """Yield batches of about the size of a shard. If storage fails, only one batch is retried."""
        most = self._runtime.settings.shard_bytes
        with phase("verifying", sum(o.segment.bytes for o in wanted), "bytes") as verifying:
            for batch in batches(wanted, lambda each: each.segment.bytes, most, TOGETHER):
                yield batch
                verifying.advance(sum(o.segment.bytes for o in batch))

    def _findings(self, batch: Sequence[Object]) -> dict[str, Finding]:
        segments = present(self._runtime, [each.segment for each in batch])
        checks = self._runtime.store.checks
        if self._level == "files":
            looked_at = checks.losses(segments)
        else:
            looked_at = checks.damages(segments, [each.schema for each in batch])
        found = {
            o.key: finding or self._described_twice.get(o.key)
            for o, finding in zip(batch, looked_at, strict=True)
        }
        return {key: finding for key, finding in found.items() if finding is not None}

    def _keep(self, looked_at: Sequence[Object]) -> None:
        well = [o.key for o in looked_at if o.key not in self.findings]
        bad = [o.key for o in looked_at if o.key in self.findings]
        if looked_at:
            with self._runtime.catalog.write() as tx:
                keep_lot(tx, self._collection_id, self._level, well, bad)

    def _forget_collected(self) -> None:
        """Drop findings about objects that the catalog has deleted meanwhile."""
        with self._runtime.catalog.read() as conn:
            known = chains.select_existing(conn, {id_ for key in self.findings for id_ in self._ids[key]})
        self.findings = {key: found for key, found in self.findings.items() if self._ids[key] & known}

    def _tidy(self, *, some: bool) -> None:
        """Update the list of damaged objects, and delete results that are not needed any more.

        An object stays listed as damaged until the same or a higher level finds it intact.
        """
        well = {each.key for each in self.checked}.difference(self.findings)
        closely = LEVELS.index(self._level)
        with self._runtime.catalog.write() as tx:
            now = object_results(tx.conn, self._collection_id)
            damaged = {
                level: {key for key in keys if some or key in self.all}.difference(
                    well if LEVELS.index(level) <= closely else ()
                )
                for level, keys in now.damaged.items()
            }
            live = set(self.all)
            if some:
                live.update(key for keys in now.times.values() for key in keys)
            tidy(tx, self._collection_id, live, damaged)
            keep_seen(tx, self._collection_id, self.all, TOGETHER)
            self.looked = object_results(tx.conn, self._collection_id)

    def known_results(self, segments: Iterable[Segment]) -> tuple[float | None, str | None]:
        """Return the verification time of segments, and the damage of one of them.

        The time is the earliest of the times when each segment was last found intact. It is None if a segment
        was never found intact. The damage is None if no segment is damaged.
        """
        keys = [key_of(segment) for segment in segments]
        damage = next((self.findings[key].message for key in keys if key in self.findings), None)
        return self.looked.oldest(keys, self._level), damage


def note_damage(runtime: Runtime, collection_id: int, segments: Sequence[Segment]) -> None:
    """Check segments after work on them has failed, and record which ones are damaged."""
    findings = runtime.store.checks.damages(present(runtime, segments))
    bad = {key_of(s) for s, found in zip(segments, findings, strict=True) if found is not None}
    with runtime.catalog.write() as tx:
        keep_lot(tx, collection_id, "checksums", (), sorted(bad))


def present(runtime: Runtime, segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments, with the data of inline segments as the catalog has it now."""
    inline = {s.id: replace(s, data=None) for s in segments if s.file is None}
    with runtime.catalog.read() as conn:
        for id_, data, checksum in chains.inline_rows(conn, inline):
            inline[id_] = replace(inline[id_], data=data, checksum=checksum)
    return [inline.get(s.id, s) for s in segments]


def patiently(runtime: Runtime, act: Callable[[], T]) -> T:
    """Call ``act``; retry it while storage is unavailable or does not answer in time."""
    settings = runtime.settings
    for number in tries(runtime.clock, settings.pauses.__getitem__):
        try:
            return within(
                runtime.clock,
                settings.shard_seconds,
                act,
                name="strandline-verify",
                what="a shard that is verified",
            )
        except StrandlineError as error:
            if pause_after(error, number + 1, settings.pauses) is None:
                raise
    raise AssertionError("tries without a limit have no end")
