"""Task reports compared with the driver's view. Two folders represent one path on two machines."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.errors import Corrupted, Unavailable
from strandline.model import Segment
from strandline.names import MARKER
from strandline.storage import segment_files
from strandline.storage.encrypted_files import SealedFiles
from strandline.storage.files import LocalFiles, MissingFile
from strandline.storage.keyring import UserKey, create
from strandline.storage.order import Finding
from strandline.storage.probe import answer_question, check_answers, write_question
from strandline.storage.task_reports import check_missing, check_rows, check_written, explain_missing


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


def test_rows(here: LocalFiles) -> None:
    check_rows(here, 5, [segment("a", 2), segment("b", 3)])
    check_rows(here, 0, [])
    for reported, found in ((5, []), (5, [segment("a", 2)]), (0, [segment("a", 1)])):
        with pytest.raises(Unavailable, match="executors do not write to the warehouse's folder"):
            check_rows(here, reported, found)


def test_written_files(here: LocalFiles, there: LocalFiles) -> None:
    here.write("d/a", b"abc")
    there.write("d/b", b"abc")
    check_written(here, [segment("d/a"), segment(None)])
    for wrong, said in ((segment("d/b"), "is not there"), (segment("d/a", size=4), "has 3 bytes there")):
        with pytest.raises(Unavailable, match=said):
            check_written(here, [segment("d/a"), wrong])


def test_written_files_that_are_encrypted(here: LocalFiles) -> None:
    """Their sizes are those of the content."""
    files = SealedFiles(here, create(here, UserKey(bytes(32))))
    files.write("objects/a", b"abc")
    check_written(files, [segment("objects/a")])
    for wrong in (segment("objects/b"), segment("objects/a", size=4)):
        with pytest.raises(Unavailable, match="executors do not write"):
            check_written(files, [wrong])


def test_a_file_that_only_a_task_misses_is_not_a_lost_one(here: LocalFiles, there: LocalFiles) -> None:
    found = segment_files.loss(here, segment("d/a"))
    assert found is not None
    here.write("d/a", b"abc")
    with pytest.raises(MissingFile) as caught:
        there.size("d/a")
    lost = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(lost, Corrupted)
    check_missing([lost, found, None, [lost], Finding("corrupt_file", "")][:1])
    for results in ([found], [[None, found]]):
        with pytest.raises(Unavailable, match=r"executors do not see the file .*/here/d/a"):
            check_missing(results)


def test_a_task_that_cannot_ask_looks_for_the_warehouse_itself(here: LocalFiles, there: LocalFiles) -> None:
    here.write(MARKER, b"{}")
    error = MissingFile("the file a is missing")
    assert explain_missing(here, error) is error
    assert explain_missing(there, error).code == "UNAVAILABLE"


def test_the_question_before_the_first_job(here: LocalFiles, there: LocalFiles) -> None:
    content = write_question(here, "staged/1-a")
    seen = [answer_question(here, "staged/1-a", content, number) for number in range(3)]
    check_answers(here, content, seen)
    unseen = answer_question(there, "staged/1-a", content, 3)
    with pytest.raises(Unavailable, match="does not see a file that this process wrote there"):
        check_answers(here, content, [*seen, unseen])
    with pytest.raises(Unavailable, match="is not there for this process"):
        check_answers(here, content, [*seen, replace(seen[0], file="staged/1-a/9-x")])
