"""Copying and checking segment files: copies are verified, failures leave no files.

An unreachable storage is not reported as damage.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.clock import SystemClock
from strandline.errors import Corrupted, StrandlineError, Unavailable
from strandline.model import Segment
from strandline.settings import Limits, Settings
from strandline.storage import arrow
from strandline.storage.arrow.segment_files import ONE_BY_ONE
from strandline.storage.file_router import FileRouter
from strandline.storage.files import fault
from strandline.storage.order import Finding
from strandline.storage.segment_cache import SegmentCache
from strandline.storage.segment_files import Copies, copy_into
from strandline.storage.throttle import Throttle
from tests.quick_files import QuickFiles
from tests.storage.examples import History, schema

KV = schema("k Int64", "v Utf8", key="k")


@pytest.fixture
def files(tmp_path: Path) -> QuickFiles:
    return QuickFiles(tmp_path)


def three(files: QuickFiles) -> list[Segment]:
    """Return a file, an inline segment and another file."""
    history = History(files, KV)
    for number, inline in enumerate((False, True, False)):
        history.write("UPSERT", ["k", "v"], [(number, "a"), (number + 10, "b")], inline=inline)
    return history.segments


def names(files: QuickFiles) -> set[str]:
    return set(files.names())


def copy(files: QuickFiles, segments: list[Segment], name: str = "data/9/s-1") -> list[Segment]:
    (made,) = arrow.segment_files.copy(
        SegmentCache(files), [Copies(segments, name)], Throttle(Limits(), SystemClock())
    )
    if isinstance(made, StrandlineError):
        raise made
    return made


def spoil(files: QuickFiles, segment: Segment) -> None:
    path = Path(files.path(segment.file or ""))
    content = path.read_bytes()
    path.write_bytes(content[:9] + bytes([content[9] ^ 1]) + content[10:])


def test_copies_have_the_same_rows_under_fresh_names(files: QuickFiles) -> None:
    segments = three(files)
    made = copy(files, segments)
    assert [s.file for s in made] == ["data/9/s-1-0.parquet", None, "data/9/s-1-2.parquet"]
    assert [replace(s, file=None, id=0) for s in made] == [replace(s, file=None, id=0) for s in segments]
    assert set(arrow.segment_files.damages(SegmentCache(files), made)) == {None}


@pytest.mark.parametrize("which", [1, 2], ids=["inline", "file"])
def test_a_copy_that_fails_leaves_no_file(files: QuickFiles, which: int) -> None:
    segments = three(files)
    before = names(files)
    if which == 1:
        segments[1] = replace(segments[1], data=b"other rows")
    else:
        spoil(files, segments[2])
    with pytest.raises(Corrupted):
        copy(files, segments)
    assert names(files) == before


@pytest.mark.parametrize("is_damaged", [False, True])
def test_many_bytes_are_copied_several_files_at_a_time(files: QuickFiles, is_damaged: bool) -> None:
    """Copies keep their order; if one file is damaged, no copy stays."""
    history = History(files, KV)
    for number in range(5):
        text = random.Random(number).randbytes(ONE_BY_ONE // 4).hex()
        history.write("UPSERT", ["k", "v"], [(number, text)], inline=False)
    segments = history.segments
    assert sum(s.bytes for s in segments) > ONE_BY_ONE
    before = names(files)
    if is_damaged:
        spoil(files, segments[1])
        with pytest.raises(Corrupted):
            copy(files, segments)
        assert names(files) == before
    else:
        made = copy(files, segments)
        assert [s.file for s in made] == [f"data/9/s-1-{number}.parquet" for number in range(5)]
        assert [s.checksum for s in made] == [s.checksum for s in segments]
        assert set(arrow.segment_files.damages(SegmentCache(files), made)) == {None}


def test_whoever_tries_again_has_another_name(files: QuickFiles) -> None:
    segment = three(files)[0]
    first, second = (
        copy_into(files, "data/9/s-1", segment, Throttle(Limits(), SystemClock())) for _ in range(2)
    )
    assert first.file != second.file
    assert {first.file, second.file} <= names(files)


def test_what_is_missing_or_changed_is_told(files: QuickFiles) -> None:
    segments = three(files)
    spoil(files, segments[0])
    files.remove(segments[2].file or "")
    segments[1] = replace(segments[1], id=7, data=b"other rows")
    assert arrow.segment_files.damages(SegmentCache(files), segments) == [
        Finding("corrupt_file", f"the file {segments[0].file} does not match its checksum"),
        Finding("corrupt_file", "the inline segment 7 does not match its checksum"),
        Finding("missing_file", f"the file {segments[2].file} is missing"),
    ]


def test_what_is_missing_or_cut_is_told_by_a_look(files: QuickFiles) -> None:
    """A check of names and sizes does not find changed bytes."""
    segments = three(files)
    segments.append(replace(segments[0], file="data/copy.parquet"))
    files.write("data/copy.parquet", files.read(segments[0].file or ""))
    spoil(files, segments[3])
    path = Path(files.path(segments[0].file or ""))
    path.write_bytes(path.read_bytes()[:-1])
    files.remove(segments[2].file or "")
    size = segments[0].bytes
    assert arrow.segment_files.losses(FileRouter(files, Settings()), segments) == [
        Finding("corrupt_file", f"the file {segments[0].file} has {size - 1} bytes instead of {size}"),
        None,
        Finding("missing_file", f"the file {segments[2].file} is missing"),
        None,
    ]


class Silent(QuickFiles):
    """Storage that does not answer."""

    def __init__(self, root: Path, *, size: bool) -> None:
        super().__init__(root)
        self._size = size

    def size(self, name: str) -> int:
        if self._size:
            raise fault("read", name, OSError(errno.EIO, "Input/output error"))
        return super().size(name)

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        raise fault("read", name, OSError(errno.EIO, "Input/output error"))


@pytest.mark.parametrize("size", [True, False])
def test_storage_that_does_not_answer_is_no_damage(tmp_path: Path, size: bool) -> None:
    segments = three(QuickFiles(tmp_path))
    with pytest.raises(Unavailable):
        arrow.segment_files.damages(SegmentCache(Silent(tmp_path, size=size)), segments)
