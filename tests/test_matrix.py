"""What ``make matrix`` tries of each Python and each PySpark."""

from __future__ import annotations

import sys

import pytest

from tools import matrix


def test_another_python_meets_all_that_is_quick_and_another_pyspark_only_what_is_on_spark() -> None:
    python = matrix.tests(matrix.Pair("3.13", matrix.pinned_pyspark(), "python3.13"), workers=2)
    pyspark = matrix.tests(matrix.Pair("3.11", "4.0.5", sys.executable), workers=2)
    assert list(python) == ["tests without Spark", "tests on Spark"]
    assert list(pyspark) == ["tests on Spark"]
    assert python["tests on Spark"] == pyspark["tests on Spark"]
    assert all((matrix.ROOT / path).exists() for path in pyspark["tests on Spark"])


@pytest.mark.slow
def test_without_a_package_index_nothing_is_said_to_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(SystemExit, match="does not say which PySpark there is"):
        matrix.lines_of_pyspark()
