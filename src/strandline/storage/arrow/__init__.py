"""Chains of segments in this process, with Arrow: for few rows, and with no JVM."""

from strandline.storage.arrow import (
    changes,
    check,
    compact,
    digest,
    entries,
    feed,
    follow,
    lookup,
    merge,
    parts,
    portions,
    records,
    scan,
    slices,
    stored,
    write,
)

__all__ = [
    "changes",
    "check",
    "compact",
    "digest",
    "entries",
    "feed",
    "follow",
    "lookup",
    "merge",
    "parts",
    "portions",
    "records",
    "scan",
    "slices",
    "stored",
    "write",
]
