"""A process may die at any write of an export: what is at its place then is what was there before, or all of
it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.settings import Settings
from strandline.storage.outgoing import ExportTarget, export, targets
from tests.crash.mortal import Fate, MortalFiles
from tests.world import Death

ROWS = {"before": pa.table({"k": [1]}), "after": pa.table({"k": [1, 2, 3]})}


def found(place: Path) -> str | None:
    """Which rows are there; None if there is nothing. What is neither is an error."""
    if not place.exists():
        return None
    table = pq.read_table(place)
    return next(name for name, rows in ROWS.items() if rows.equals(table))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["rows.parquet", "rows"])
def test_a_death_leaves_no_part_of_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, overwrite: bool
) -> None:
    monkeypatch.setattr(targets, "FILE_BYTES", 1)
    outcomes = set()
    for number in count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        target = ExportTarget(place=str(folder / name), overwrite=overwrite, settings=Settings())
        if overwrite:
            export(target, ROWS["before"].to_reader)
        fate = Fate(number)
        with monkeypatch.context() as patch:
            patch.setattr(targets, "place_of", lambda *_, at=folder, fate=fate: (MortalFiles(at, fate), name))
            try:
                export(target, lambda: ROWS["after"].to_reader(max_chunksize=2))
            except Death:
                outcomes.add(found(folder / name))
                others = [file.name for file in folder.iterdir() if file.name != name]
                assert all(other.endswith((".partial", ".replaced")) for other in others), fate.place
                continue
        assert found(folder / name) == "after"
        break
    assert number > 5
    assert outcomes - {"after"} == (
        {"before", None} if overwrite and name == "rows" else {"before"} if overwrite else {None}
    )
