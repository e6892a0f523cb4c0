"""Chains of segments on Spark: the same operations as in ``storage.arrow``, for many rows."""

from strandline.storage.spark import (
    batches,
    changes,
    check,
    compact,
    digest,
    entries,
    external,
    feed,
    probe,
    query,
    scan,
    segment_files,
    session,
    unique,
    write,
)

__all__ = [
    "batches",
    "changes",
    "check",
    "compact",
    "digest",
    "entries",
    "external",
    "feed",
    "probe",
    "query",
    "scan",
    "segment_files",
    "session",
    "unique",
    "write",
]
