"""The benchmark beside Delta and Iceberg: what it writes, and that it runs with their classes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import comparison, peers
from bench.comparison import Compared, Disagreement, Setting
from bench.peer_data import Orders
from bench.peer_systems import matching

ROOT = Path(__file__).resolve().parent.parent
WHERE = Setting("2026-01-27", "a processor, 2 cores", "Strandline 0.1.0", "python bench/peers.py --rows 1000")
LOAD, SCAN = "load with two indexes", "scan of one column, after the changes"


def measured(**scan: float) -> Compared:
    found = Compared(1000, "text")
    for name, seconds in (("Strandline", 2.0), ("Delta", 4.0), ("Iceberg", 3.0)):
        found.add(LOAD, name, seconds)
    for name, seconds in scan.items():
        found.add(SCAN, name, seconds)
    return found


def test_what_a_peer_does_faster_comes_first() -> None:
    page = comparison.page([measured(Strandline=0.5, Delta=0.25, Iceberg=0.4)], [], WHERE)
    behind, rest = page.split("| date | 2026-01-27 |")
    assert f"- {SCAN}, 1,000 rows, a text key: Delta takes 0.25 s, Strandline 0.50 s" in behind
    assert LOAD not in behind
    assert f"| {LOAD} | **2.00** | 4.00 | 3.00 | 1.50x |" in rest
    assert f"| {SCAN} | 0.50 | **0.25** | 0.40 | 0.50x |" in rest


def test_the_page_says_when_no_peer_was_faster() -> None:
    page = comparison.page([measured(Strandline=0.1, Delta=0.25, Iceberg=0.4)], [], WHERE)
    assert "no peer was faster" in page.split("| date |")[0]
    assert "`python bench/peers.py --rows 1000`" in page


def test_of_several_times_the_shortest_counts() -> None:
    found = measured(Strandline=0.5, Delta=0.25, Iceberg=0.4)
    found.add(SCAN, "Strandline", 0.2)
    found.add(SCAN, "Strandline", 0.9)
    line = next(line for line in found.lines() if line.work == SCAN)
    assert (line.seconds["Strandline"], line.best, line.ratio) == (0.2, "Delta", 1.25)


def test_the_share_of_reads_that_differ_is_on_the_page() -> None:
    beside = [Disagreement("Strandline", 40, 0, 300), Disagreement("Delta", 8, 6, 3)]
    page = comparison.page([measured(Strandline=1.0, Delta=2.0)], beside, WHERE)
    assert "| Strandline | 40 | 0 | 0 % | 300 |" in page
    assert "| Delta | 8 | 6 | 75 % | 3 |" in page


def test_keys_become_a_condition_that_skips_files() -> None:
    assert matching(Orders("number", 10), [(1,), (2,)]) == "id IN (1, 2)"
    both = matching(Orders("composite", 10), [("shop 1", 2), ("shop 3", 4)])
    assert both == "(shop = 'shop 1' AND number = 2) OR (shop = 'shop 3' AND number = 4)"


def test_without_the_classes_the_run_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "JARS", tmp_path)
    with pytest.raises(SystemExit, match="run make peers, which needs mvn and a network"):
        peers.main(["--rows", "10"])


def test_the_versions_on_the_page_are_those_of_the_classes() -> None:
    names = [
        "delta-spark_4.1_2.13-4.4.0.jar",
        "delta-storage-9.9.jar",
        "iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
    ]
    told = Setting.of_this_machine("", map(Path, names)).versions
    assert re.fullmatch(r"Strandline \S+, Delta 4\.4\.0, Iceberg 1\.12\.0, PySpark \S+, Python \S+", told)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("jvm")
@pytest.mark.skipif(not list(peers.JARS.glob("*.jar")), reason="needs the classes that make peers fetches")
@pytest.mark.parametrize("kind", ["composite"])
def test_a_small_run_compares_all_systems(tmp_path: Path, kind: str) -> None:
    """The run itself compares the rows of all tables, indexes and lookups, and ends if they differ."""
    page = tmp_path / "comparison.md"
    sizes = ["--rows", "1000", "--keys", kind, "--rounds", "1", "--seconds", "1"]
    command = [
        sys.executable,
        "bench/peers.py",
        *sizes,
        "--write",
        str(page),
        "--folder",
        str(tmp_path / "work"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    works = re.findall(
        r"^\| (.+?) \| [*\d.]+ \| [*\d.]+ \| [*\d.]+ \| [\d.]+x \|$", page.read_text("utf-8"), re.MULTILINE
    )
    assert len(works) == 11
