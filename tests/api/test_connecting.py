"""The names of folders that ``connect`` accepts and refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import strandline
from strandline.errors import InvalidArgument, PathNotFound, Unavailable
from tests.processes import environment, without_power

NO_FOLDERS = [
    "",
    "hdfs://host/x",
    "s3://",
    "s3:///x",
    "s3://bucket/a//b",
    "s3://bucket/../x",
    "s3://user:word@bucket/x",
    "s3://bucket/x?token=word",
    "a\0b",
    None,
    5,
    b"bytes",
    "~nosuchuser",
    "~nosuchuser/below",
    "~a\0b",
    "~\ud800",
    "n" * 256,
    "ü" * 128,
    "new/" + "n" * 256 + "/below",
    "n/" * 3000,
    "n/" * 300,
    "surrogate\ud800",
    "no text\udcff",
    "file://host/folder",
    "file://",
    "file:",
    "file:///a%00b",
    "file:///a%ffb",
]


@pytest.mark.parametrize("bad", NO_FOLDERS, ids=lambda bad: ascii(bad)[:30])
def test_what_is_no_folder(bad: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument) as refused:
        strandline.connect(bad)  # type: ignore[arg-type]
    assert len(refused.value.message) < 300
    with pytest.raises((InvalidArgument, PathNotFound)):
        strandline.connect(bad, create=False)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_be_called_like_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    strandline.connect("./~nosuchuser").close()
    assert (tmp_path / "~nosuchuser" / "strandline.json").exists()


def test_links_that_lead_nowhere_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "bytes").symlink_to(os.fsencode(tmp_path) + b"/\xff")
    for name in ("nowhere", "round", "bytes"):
        with pytest.raises((InvalidArgument, Unavailable)):
            strandline.connect(tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(Unavailable, match="current folder has been removed"):
        strandline.connect("w")
    strandline.connect(tmp_path / "w").close()


CONNECT = """
import strandline, sys
from strandline.errors import Unavailable
for create in (True, False):
    for name in sys.argv[1:]:
        try:
            strandline.connect(name, create=create)
        except Unavailable as error:
            print(error.message)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_folder_without_rights_is_unavailable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    asked = [closed, closed / "below", closed / "far" / "below"]
    said = subprocess.run(
        [sys.executable, "-c", CONNECT, *asked],
        capture_output=True,
        text=True,
        preexec_fn=without_power,
        env=environment(),
        check=True,
    )
    assert len(said.stdout.splitlines()) == 2 * len(asked), said
    assert "Permission denied" in said.stdout
