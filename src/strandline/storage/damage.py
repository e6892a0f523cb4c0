"""Segments whose bytes are not what was recorded of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.errors import Corrupted
from strandline.model import Segment
from strandline.storage.digest import checksum_of
from strandline.storage.files import Files
from strandline.storage.order import Finding

__all__ = ["damaged"]


def damaged(files: Files, segments: Iterable[Segment]) -> Iterator[Finding]:
    """Yield what is missing or does not match its checksum. All bytes are read, whatever was read before."""
    for segment in segments:
        if segment.file is None:
            if segment.data is None or checksum_of(segment.data) != segment.checksum:
                yield Finding("corrupt_file", f"the inline segment {segment.id} does not match its checksum")
            continue
        if not files.exists(segment.file):
            yield Finding("missing_file", f"the file {segment.file} is missing")
            continue
        try:
            actual = files.checksum(segment.file)
        except Corrupted as error:
            yield Finding("corrupt_file", error.message)
            continue
        if actual != segment.checksum:
            yield Finding("corrupt_file", f"the file {segment.file} does not match its checksum")
