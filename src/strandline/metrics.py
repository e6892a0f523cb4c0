"""Metrics and log lines of this process.

Each database has one ``Metrics`` object, shared by all threads. Only the logger is global. The catalog keeps
the sums of all processes (``catalog/metrics_buffer.py``).

A log line is an event name and a JSON object, so that a person can read it and a program can parse it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from strandline.errors import mask_urls

log = logging.getLogger("strandline")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """Counters and histograms of one database, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.claims = self._counter("claims", "Claims of a path's next version, by result.", "result")
        self.publications = self._counter(
            "publications", "Publications of one or more descriptions under one generation."
        )
        self.published_paths = self._counter("published_paths", "Descriptions published.")
        self.mismatches = self._counter(
            "schema_mismatches",
            "Plans whose versions did not fit: seen (each time), then cured by a retry, or failed.",
            "result",
        )
        self.part_transitions = self._counter(
            "part_transitions", "Transitions of parts, by the state they entered.", "state"
        )
        self.part_retries = self._counter("part_retries", "Parts that failed and were tried again.", "kind")
        self.operations = self._counter(
            "operations", "Operations that ended, by kind and result.", "kind", "result"
        )
        self.resumed = self._counter(
            "operations_resumed", "Operations taken over from a process that died.", "kind"
        )
        self.publication_delay = self._histogram(
            "publication_delay_seconds",
            "Time from the last part of an operation to the publication of its paths.",
        )
        self.delivery_delay = self._histogram(
            "delivery_delay_seconds",
            "Time from a publication to its arrival in the cache of a process, which is when that looks at "
            "the catalog next.",
        )
        for result in ("seen", "cured", "failed"):
            self.mismatches.labels(result)  # a counter with value 0 can be monitored before the first event

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"strandline_{name}", help_, labels, registry=self.registry)

    def _histogram(self, name: str, help_: str) -> Histogram:
        return Histogram(f"strandline_{name}", help_, registry=self.registry, buckets=_SECONDS)

    def count_publication(
        self, generation: int, step: int, operation_id: str | None, versions: dict[str, int]
    ) -> None:
        """Count and log a publication; ``operation_id`` is None for DDL in a single transaction."""
        self.publications.inc()
        self.published_paths.inc(len(versions))
        event("publication", operation=operation_id, generation=generation, step=step, paths=versions)

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield the current values: name, labels and value."""
        for family in self.registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_created"):  # not a count, but the start time
                    yield sample.name, sample.labels, sample.value


def is_logged() -> bool:
    """Return whether events are logged."""
    return log.isEnabledFor(logging.INFO)


def event(name: str, **fields: Any) -> None:
    """Write a structured log line; handlers find its fields in ``record.strandline``."""
    if is_logged():
        shown = {key: mask_urls(value) if isinstance(value, str) else value for key, value in fields.items()}
        log.info(
            "%s %s", name, json.dumps(shown, default=str), extra={"strandline": {"event": name, **shown}}
        )
