"""The number of ranges and files of a bulk write follows from its size."""

from __future__ import annotations

import pytest

from strandline.storage.partition_plan import (
    FEW_RANGES,
    LEAST_FILE_BYTES,
    MOST_RANGES,
    UNKNOWN_RANGES,
    plan_partitions,
)

MB, GB, TB = 1 << 20, 1 << 30, 1 << 40
TARGET = 128 * MB


def test_ranges_grow_with_the_size_until_each_task_writes_several_files() -> None:
    found = [plan_partitions(size, TARGET).ranges for size in (0, GB, 100 * GB, TB, 100 * TB)]
    assert found == [FEW_RANGES, FEW_RANGES, 3200, MOST_RANGES, MOST_RANGES]
    assert plan_partitions(100 * GB, GB).ranges == 400


def test_a_size_that_is_not_known() -> None:
    plan = plan_partitions(None, TARGET)
    assert (plan.ranges, plan.is_exact, plan.file_bytes) == (UNKNOWN_RANGES, False, TARGET)


def test_the_caller_may_need_a_number_of_files() -> None:
    assert plan_partitions(0, TARGET, files=1).ranges == 1
    assert plan_partitions(10 * MB, TARGET, files=7).ranges == 7
    assert plan_partitions(10 * GB, TARGET, files=7).ranges == 80
    assert plan_partitions(100 * TB, TARGET, files=1).ranges == MOST_RANGES
    assert plan_partitions(1, TARGET, files=MOST_RANGES + 5).ranges == MOST_RANGES + 5
    assert plan_partitions(10 * GB, TARGET, files=7).is_exact


@pytest.mark.parametrize("target", [0, 1, 128 << 10])
def test_small_files_do_not_make_small_tasks(target: int) -> None:
    plan = plan_partitions(1600 * MB, target)
    assert plan.ranges == 400
    assert plan.partition_bytes >= 16 * MB
    assert plan.file_bytes == max(target, LEAST_FILE_BYTES)
