"""The cases in ``conformance/*.yaml``: statements and what they must lead to, on both catalogs.

A case has an ``id`` and ``steps``. It begins in an empty warehouse, and its steps run in order. Its clock
starts at 2026-01-01 00:00:00 UTC and moves only by ``later``. A case with ``needs_spark: true`` has a
statement that only Spark can carry out; every other one must do without. A case with ``spark: true`` runs
once more with every change and every query on Spark.

    sql: TEXT                  is run and succeeds
    sql: TEXT, rows: [[..]]    gives these rows, in this order; ``columns: [NAME, ..]``: only these columns
    sql: TEXT, changed: N      changes N rows
    sql: TEXT, result: {..}    is an operation whose result has these fields
    sql: TEXT, error: CODE     is refused with that code and a hint, and nothing is changed;
                               with ``message: PART`` the message has this part
    refused: [[TEXT, CODE, PART], ..]   the same for many statements
    exists: PATH               can be described
    missing: PATH              cannot (PATH_NOT_FOUND)
    tree: {PATH: TYPE, ..}     is all there is; with ``below: PATH`` all there is below it
    describe: PATH, has: {..}  the description has these fields, and a dictionary in it those that are named
    streams: {PATH: N}         PATH has N streams
    same_streams: [PATH, ..]   each has one stream, and all of these have the same name
    versions_agree: TABLE      the table, each of its indexes and that index's implementation table name the
                               same version of the index
    records: PATH, are: [..]   the changefeed has these records
    later: SECONDS             the clock moves on
    maintain: PATH             housekeeping of all that is below
    compact: PATH              the table is compacted
    collect: true              garbage is collected

``by: NAME`` in a step lets another connection to the same warehouse carry it out, ``in: NAME`` a connection
to another warehouse. ``$c.0``, ``$c.1``, ... stand for the names of the backups in the collection c, in
order, and ``$folder`` for a folder of the case outside its warehouses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

import strandline
from strandline import Database, Settings
from strandline.errors import StrandlineError
from tests.backups.reading import hurry
from tests.catalogs import ManualClock, place_catalog
from tests.quick_files import QuickFiles
from tests.tables.examples import ARROW, SPARK, NoSpark, picture

Case = dict[str, Any]
CASES: list[Case] = [
    case
    for file in sorted(Path(__file__).with_name("conformance").glob("*.yaml"))
    for case in yaml.load(file.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
]
START = 1767225600.0  # 2026-01-01 00:00:00 UTC
COLLECTIONS = "/.backups/collections"
NAME = re.compile(r"\$(\w+)\.(\d+)")
HERE = replace(ARROW, workers=1, carry_on_seconds=0.0)
THERE = replace(SPARK, workers=1, carry_on_seconds=0.0)
WHERE = {"by", "in"}
"""Keys that say which connection a step is for."""
MORE = {
    "sql": {"rows", "columns", "changed", "result", "error", "message"},
    "tree": {"below"},
    "describe": {"has"},
    "records": {"are"},
}
"""Keys that go with the first one of a step."""


@dataclass
class Runner:
    """Carries out the steps of one case."""

    folder: Path
    catalog: str | None
    spark: Any
    settings: Settings
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    opened: dict[str, Database] = field(default_factory=dict)

    def run(self, step: dict[str, Any]) -> None:
        db = self._connection(step)
        given = {key: self._named(db, value) for key, value in step.items() if key not in WHERE}
        kind, value = next(iter(given.items()))
        assert given.keys() - {kind} <= MORE.get(kind, set()), step
        check: Callable[..., None] = getattr(self, f"_{kind}")
        check(db, value, **{key: more for key, more in given.items() if key != kind})

    def close(self) -> None:
        for db in self.opened.values():
            db.close()

    def _connection(self, step: dict[str, Any]) -> Database:
        name = f"{step.get('in', 'warehouse')} {step.get('by', '')}"
        if name not in self.opened:
            folder, catalog = (
                self.folder / step.get("in", "warehouse"),
                None if "in" in step else self.catalog,
            )
            if catalog is None:
                place_catalog(folder / "catalog.sqlite")
            self.opened[name] = strandline.connect(
                folder,
                catalog=catalog,
                files=QuickFiles(folder),
                spark=self.spark,
                settings=self.settings,
                clock=self.clock,
            )
            hurry(self.opened[name])
        return self.opened[name]

    def _named(self, db: Database, value: Any) -> Any:
        """Return the value with the names of backups in the place of ``$c.0``, ``$c.1``, ..."""
        if isinstance(value, dict):
            return {self._named(db, key): self._named(db, each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._named(db, each) for each in value]
        if not isinstance(value, str):
            return value
        text = value.replace("$folder", str(self.folder / "elsewhere"))
        return NAME.sub(lambda match: _backups(db, match[1])[int(match[2])], text)

    def _sql(self, db: Database, text: str, **expected: Any) -> None:
        if "error" in expected:
            self._refused(db, [(text, expected["error"], expected.get("message", ""))])
            return
        found = db.sql(text)
        if "rows" in expected:
            columns = expected.get("columns", found.columns)
            places = [found.columns.index(column) for column in columns]
            rows = [[_plain(row[place]) for place in places] for row in found.collect()]
            assert rows == expected["rows"], text
        if "changed" in expected:
            assert (found.rows_changed or 0) == expected["changed"], text
        if "result" in expected:
            result = db.operation(str(found.operation_id)).result
            assert _part_of(result, expected["result"]) == expected["result"], text

    def _refused(self, db: Database, statements: list[tuple[str, str, str]]) -> None:
        before = picture(db)
        for text, code, message in statements:
            with pytest.raises(StrandlineError) as caught:
                db.sql(text).collect()
                pytest.fail(f"is not refused: {text}")
            assert caught.value.code == code, (text, caught.value)
            assert message in caught.value.message, text
            assert caught.value.hint
        assert picture(db) == before, "refused statements leave nothing"

    def _exists(self, db: Database, path: str) -> None:
        assert db.describe(path)["path"] == path

    def _missing(self, db: Database, path: str) -> None:
        with pytest.raises(StrandlineError) as caught:
            db.describe(path)
        assert caught.value.code == "PATH_NOT_FOUND"

    def _tree(self, db: Database, expected: dict[str, str], below: str = "/") -> None:
        assert {entry.path: entry.type for entry in db.ls(below, depth=None)} == expected

    def _describe(self, db: Database, path: str, has: dict[str, Any]) -> None:
        assert _part_of(db.describe(path), has) == has

    def _streams(self, db: Database, numbers: dict[str, int]) -> None:
        assert {path: len(_streams(db, path)) for path in numbers} == numbers

    def _same_streams(self, db: Database, paths: list[str]) -> None:
        found = [_streams(db, path) for path in paths]
        assert len(found[0]) == 1
        assert all(streams == found[0] for streams in found), found

    def _versions_agree(self, db: Database, table: str) -> None:
        for index in db.describe(table)["indexes"]:
            path = f"{table}/{index['name']}"
            assert (
                index["version"]
                == db.describe(path)["version"]
                == db.describe(f"{path}/indexImplTable")["version"]
            ), path

    def _records(self, db: Database, path: str, are: list[dict[str, Any]]) -> None:
        assert [
            {name: _plain(v) for name, v in record.items()} for record in db.stream(path).records()
        ] == are

    def _later(self, db: Database, seconds: float) -> None:
        self.clock.sleep(seconds)

    def _maintain(self, db: Database, path: str) -> None:
        db.maintain(path)

    def _compact(self, db: Database, path: str) -> None:
        assert db.compact(path)

    def _collect(self, db: Database, _: bool) -> None:
        db.collect()


def _backups(db: Database, collection: str) -> list[str]:
    return [entry.name for entry in db.ls(f"{COLLECTIONS}/{collection}") if entry.type == "backup"]


def _streams(db: Database, path: str) -> list[str]:
    return [entry.name for entry in db.ls(path) if entry.type == "stream"]


def _plain(value: Any) -> Any:
    """Return the value as YAML has it: whole numbers as such, other decimals as text."""
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    return bytes(value) if isinstance(value, bytearray) else value


def _part_of(found: Any, expected: Any) -> Any:
    """Return what was found, without the fields of dictionaries that are not expected."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: _part_of(found[key], value) for key, value in expected.items() if key in found}
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        return [_part_of(each, value) for each, value in zip(found, expected, strict=True)]
    return list(found) if isinstance(found, tuple) else found


def _params(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(case, id=case["id"], marks=[pytest.mark.spark] if case.get("needs_spark") else [])
        for case in cases
    ]


@pytest.fixture
def session(case: Case, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("spark") if case.get("needs_spark") else NoSpark()


def carry_out(case: Case, runner: Runner) -> None:
    try:
        for step in case["steps"]:
            runner.run(step)
    finally:
        runner.close()


def test_there_are_cases_with_names_of_their_own() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) >= 200
    assert all(case.keys() <= {"id", "steps", "spark", "needs_spark"} for case in CASES)


@pytest.mark.parametrize("case", _params(CASES))
def test_case(case: Case, session: Any, catalog_url: str | None, tmp_path: Path) -> None:
    carry_out(case, Runner(tmp_path, catalog_url, session, HERE))


@pytest.mark.parametrize("case", _params([case for case in CASES if case.get("spark")]))
def test_case_on_spark(case: Case, spark: Any, tmp_path: Path) -> None:
    carry_out(case, Runner(tmp_path, None, spark, THERE))
