"""Which locations are inside other locations."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.storage.location import is_inside


@pytest.mark.parametrize(
    ("place", "other", "expected"),
    [
        ("s3://bucket/w/r", "s3://bucket/w", True),
        ("s3://bucket/w", "s3://bucket/w", True),
        ("s3://bucket/w", "s3://bucket", True),
        ("s3://bucket/w2", "s3://bucket/w", False),
        ("s3://bucket", "s3://bucket/w", False),
        ("gs://bucket/w/r", "s3://bucket/w", False),
        ("s3://bucket/w", "/bucket", False),
        ("/bucket/w", "s3://bucket", False),
        ("/a/b", "/", True),
        ("/a/bc", "/a/b", False),
    ],
)
def test_a_part_of_a_bucket_or_a_folder(place: str, other: str, expected: bool) -> None:
    assert is_inside(place, other) is expected


def test_a_folder_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    assert is_inside(str(tmp_path / "link" / "new"), str(tmp_path / "there"))
    assert is_inside(str(tmp_path / "there" / "new"), str(tmp_path / "link"))
    assert not is_inside(str(tmp_path / "new"), str(tmp_path / "link"))
