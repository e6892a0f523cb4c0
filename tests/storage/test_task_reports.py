"""Task reports compared with the driver's view. Two folders represent one path on two machines."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import Corrupted, Unavailable
from strandline.model import Segment
from strandline.names import MARKER
from strandline.storage import segment_files
from strandline.storage.digest import checksum_of
from strandline.storage.encrypted_files import EncryptedFiles
from strandline.storage.files import LocalFiles, MissingFile, read_checked
from strandline.storage.keyring import UserKey, create
from strandline.storage.order import Finding
from strandline.storage.probe import answer_question, check_answers, write_question
from strandline.storage.task_reports import (
    TaskReport,
    check_reports,
    check_written,
    explain_damage,
    is_whole,
    report,
    sizes_of,
)


@pytest.fixture
def here(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "there")


def segment(file: str | None, rows: int = 1, size: int = 3) -> Segment:
    return Segment(
        id=0, role="base", after=0, upto=1, rows=rows, bytes=size, min_key=None, max_key=None, file=file,
        data=None, checksum="xxh3-128:0", fresh=True, stepped=False,
    )  # fmt: skip


def test_written_files(here: LocalFiles, there: LocalFiles) -> None:
    here.write("d/a", b"abc")
    there.write("d/b", b"abc")
    check_written(here, [segment("d/a"), segment(None)])
    for wrong, said in ((segment("d/b"), "is not there"), (segment("d/a", size=4), "has 3 bytes there")):
        with pytest.raises(Unavailable, match=said):
            check_written(here, [segment("d/a"), wrong])


def test_written_files_that_are_encrypted(here: LocalFiles) -> None:
    """Their sizes are those of the content."""
    files = EncryptedFiles(here, create(here, UserKey(bytes(32))))
    files.write("objects/a", b"abc")
    check_written(files, [segment("objects/a")])
    for wrong in (segment("objects/b"), segment("objects/a", size=4)):
        with pytest.raises(Unavailable, match="executors do not write"):
            check_written(files, [wrong])


def _content(files: LocalFiles, segment: Segment) -> bytes:
    """Read a file as a task that copies it does."""
    return b"".join(map(bytes, read_checked(files, segment.file or "", checksum_of(b"abc"))))


def _run(files: LocalFiles, work: Callable[[LocalFiles, Segment], Any], each: Segment) -> TaskReport[Any]:
    """Return what a task reports where the warehouse's path leads to ``files``."""
    found = report(files, partial(work, files), (each, sizes_of([each])))
    return cast("TaskReport[Any]", pickle.loads(pickle.dumps(found)))


@pytest.mark.parametrize("name", ["d/missing", "d/shorter"])
@pytest.mark.parametrize("work", [segment_files.loss, segment_files.damage, _content])
def test_a_file_that_is_lost_only_for_a_task_is_not_damaged(
    here: LocalFiles, there: LocalFiles, name: str, work: Callable[[LocalFiles, Segment], Any]
) -> None:
    here.write(name, b"abc")
    there.write("d/shorter", b"ab")
    found = _run(there, work, segment(name))
    with pytest.raises(Unavailable, match=f"executors do not see the file .*/here/{name}"):
        check_reports(here, [TaskReport(None), found])


@pytest.mark.parametrize("content", [None, b"a"])
def test_a_file_that_is_lost_for_the_driver_too_is_damaged(
    here: LocalFiles, there: LocalFiles, content: bytes | None
) -> None:
    if content is not None:
        here.write("d/a", content)
    loss = _run(there, segment_files.loss, segment("d/a"))
    assert check_reports(here, [loss]) == [Finding("missing_file", "the file d/a is missing")]
    with pytest.raises(Corrupted, match="the file d/a is missing"):
        check_reports(here, [_run(there, _content, segment("d/a"))])


def test_a_file_of_the_recorded_size_is_damaged_without_a_look(there: LocalFiles) -> None:
    there.write("d/a", b"abd")
    with pytest.raises(Corrupted, match="does not have the checksum"):
        _run(there, _content, segment("d/a"))
    assert _run(there, segment_files.damage, segment("d/a")).lost == []


def test_a_file_that_spark_cannot_read_is_whole_if_this_process_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"k": list(range(5000))})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    content = path.read_bytes()
    assert is_whole(str(path))
    assert not is_whole(str(tmp_path / "b.parquet"))
    middle = len(content) // 3
    for damaged in (
        content[:-1],
        b"",
        content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
    ):
        path.write_bytes(damaged)
        assert not is_whole(str(path))
    (tmp_path / "folder.parquet").mkdir()
    assert is_whole(str(tmp_path / "folder.parquet"))


def test_a_task_that_cannot_ask_looks_for_the_warehouse_itself(here: LocalFiles, there: LocalFiles) -> None:
    here.write(MARKER, b"{}")
    error = MissingFile("the file a is missing")
    assert explain_damage(there, error).code == "UNAVAILABLE"
    for found in (error, Corrupted("the file a has 2 bytes")):
        said = explain_damage(here, found)
        assert (said.code, said.message) == ("CORRUPTED", found.message)
        assert "If it finds no damage, executors do not see the warehouse's folder" in said.hint
    own = Corrupted("the path leads through a link", "Remove the link.")
    assert explain_damage(here, own) is own


def test_the_question_before_the_first_job(here: LocalFiles, there: LocalFiles) -> None:
    content = write_question(here, "staged/1-a")
    seen = [answer_question(here, "staged/1-a", content, number) for number in range(3)]
    check_answers(here, content, seen)
    unseen = answer_question(there, "staged/1-a", content, 3)
    with pytest.raises(Unavailable, match="does not see a file that this process wrote there"):
        check_answers(here, content, [*seen, unseen])
    with pytest.raises(Unavailable, match="is not there for this process"):
        check_answers(here, content, [*seen, replace(seen[0], file="staged/1-a/9-x")])
