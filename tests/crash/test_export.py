"""A process may crash at any write of an export: the target is the old one or the complete new one."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.settings import Settings
from strandline.storage.outgoing import ExportTarget, export, targets
from tests.catalogs import Death
from tests.crash.mortal import Fate, MortalFiles

ROWS = {"before": pa.table({"k": [1]}), "after": pa.table({"k": [1, 2, 3]})}


def found(place: Path) -> str | None:
    """Return which of the known rows the target has; None if it does not exist."""
    if not place.exists():
        return None
    table = pq.read_table(place)
    return next(name for name, rows in ROWS.items() if rows.equals(table))


class Apart(MortalFiles):
    """Files of a system that cannot exchange two names atomically."""

    def _exchange(self, path: str, name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("name", "overwrite", "files", "left"),
    [
        ("rows.parquet", False, MortalFiles, {None}),
        ("rows.parquet", True, MortalFiles, {"before"}),
        ("rows", False, MortalFiles, {None}),
        ("rows", True, MortalFiles, {"before"}),
        ("rows", True, Apart, {"before", None}),
    ],
)
def test_a_death_leaves_no_part_of_an_export(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    overwrite: bool,
    files: type[MortalFiles],
    left: set[str | None],
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
            patch.setattr(targets, "place_of", lambda *_, at=folder, fate=fate: (files(at, fate), name))
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
    assert outcomes - {"after"} == left
