"""Records come back from their text as they were, also from texts of before they had a number, and whatever
is not exactly one is refused."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytest

from strandline import records
from strandline.backups.backup.full import BackupBody
from strandline.backups.backup.increment_plan import CutSlice
from strandline.backups.backup.incremental import IncrementBody, IncrementProgress
from strandline.backups.collection import BackupResult, CollectionRecord, CollectionRequest
from strandline.backups.record import BackupRecord
from strandline.backups.restore.restore import RestoreResult
from strandline.backups.restore.restore_parts import Rebuilt, RestoreBody, RestoreProgress, Shard
from strandline.backups.restore.restore_plan import RestoreRequest
from strandline.backups.restore.restore_verify import Checked
from strandline.catalog.operations import Failure
from strandline.catalog.streams import StreamBody
from strandline.catalog.tables import TableBody
from strandline.errors import Corrupted, PreconditionFailed
from strandline.model import Digest, IndexDef, TableSchema
from strandline.operations.copy import CopiedIndex, CopiedTable
from strandline.operations.kind import Body
from strandline.operations.streams import AtStep, Cut, DroppedStream, NewStream, StreamPaths, StreamRequest
from strandline.records import NUMBER, Nothing, Record, RecordType, later, stored_as
from strandline.types import parse_type
from tests.effort import EVERY

SAMPLES = Path(__file__).parent / "samples"

KINDS: dict[str, dict[str, type[Record]]] = {
    "operations.request": {
        "backup": CollectionRequest,
        "create stream": StreamRequest,
        "drop collection": CollectionRequest,
        "drop streams": StreamPaths,
        "incremental backup": CollectionRequest,
        "restore": RestoreRequest,
    },
    "operations.body": {
        "backup": BackupBody,
        "create stream": AtStep,
        "drop collection": Body,
        "drop streams": Body,
        "incremental backup": IncrementBody,
        "restore": RestoreBody,
    },
    "operations.progress": {
        "backup": Nothing,
        "create stream": Nothing,
        "drop collection": Nothing,
        "drop streams": Nothing,
        "incremental backup": IncrementProgress,
        "restore": RestoreProgress,
    },
    "operations.result": {
        "backup": BackupResult,
        "create stream": Cut,
        "drop collection": CollectionRequest,
        "drop streams": Nothing,
        "incremental backup": BackupResult,
        "restore": RestoreResult,
    },
    "operations.error": {"backup": Failure},
    "parts.body": {
        "backup: drop stream": DroppedStream,
        "backup: index": CopiedIndex,
        "backup: table": CopiedTable,
        "create stream: stream": NewStream,
        "drop streams: drop stream": DroppedStream,
        "incremental backup: drop stream": DroppedStream,
        "incremental backup: slice": CutSlice,
        "restore: rebuild": Rebuilt,
        "restore: shard": Shard,
        "restore: verify": Checked,
    },
    "paths.body": {
        "backup": BackupRecord,
        "backup (creating)": Nothing,
        "backup_collection": CollectionRecord,
        "directory": Nothing,
        "index": IndexDef,
        "stream": StreamBody,
        "table": TableBody,
    },
    "descriptions.body": {
        "backup": BackupRecord,
        "backup_collection": CollectionRecord,
        "index": IndexDef,
        "stream": StreamBody,
        "table": TableBody,
    },
}
"""The record that each column holds, of each kind of operation, part or path."""


def samples(column: str) -> list[tuple[type[Record], dict[str, Any]]]:
    found = json.loads((SAMPLES / f"{column}.json").read_text())
    assert {sample["of"] for sample in found} == set(KINDS[column])
    return [(KINDS[column][sample["of"]], sample["text"]) for sample in found]


def read(kind: RecordType[records.R], value: Any) -> records.R:
    return records.from_text(kind, json.dumps(value), "the sample")


@pytest.mark.parametrize("column", KINDS)
def test_what_was_written_before_is_read_and_written_as_it_was(column: str) -> None:
    for kind, text in samples(column):
        record = read(kind, text)
        assert type(record) is kind
        again = json.loads(records.to_text(record))
        assert again.pop(NUMBER) == 1
        assert again == text
        assert read(kind, {NUMBER: 1, **text}) == record
        assert records.to_plain(records.to_text(record), "the sample") == text


def objects(value: Any, at: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a text that is a record or a part of one, with its place."""
    if isinstance(value, dict):
        if not any(key.startswith("/") for key in value) and not at.endswith(("bounds", "members")):
            yield at, value
        for key, below in value.items():
            if key != "bounds":
                yield from objects(below, f"{at}.{key}")
    elif isinstance(value, list):
        for below in value:
            yield from objects(below, at)


@pytest.mark.parametrize("column", KINDS)
def test_a_field_too_many_or_too_few_is_refused_wherever_it_is(column: str) -> None:
    for kind, text in samples(column):
        mays = {f.name for f in fields(kind) if f.metadata and f.metadata["kept"].later}
        for at, found in objects(text):
            found["unheard_of"] = 1
            with pytest.raises(Corrupted, match=r"the sample cannot be read.*'unheard_of' is not known"):
                read(kind, text)
            del found["unheard_of"]
            for name in [n for n in found if at != "$" or n not in mays]:
                value = found.pop(name)
                with pytest.raises(Corrupted, match=f"the field '{name}' is missing"):
                    read(kind, text)
                found[name] = value
        assert read(kind, text)


@pytest.mark.parametrize("column", KINDS)
def test_a_value_of_another_type_is_refused_wherever_it_is(column: str) -> None:
    """Of several samples with a field in the same place, one is tried where not everything is."""
    wrong: list[Any] = ["text", 7, True, 1.5, ["text"], [True, {}], {"a": "b"}, [[[]]]]
    tried: set[tuple[object, str, str]] = set()
    for kind, text in samples(column):
        for at, found in objects(text):
            for name, value in list(found.items()):
                if (kind, at, name) in tried and not EVERY:
                    continue
                tried.add((kind, at, name))
                refused = 0
                for other in wrong:
                    found[name] = other
                    try:
                        read(kind, text)
                    except Corrupted as error:
                        assert " @ $." in error.message
                        refused += 1
                # Nothing fits more than one of them: a number, and a place where text is looked up; or a
                # list.
                assert refused >= len(wrong) - 2, f"{kind.__name__} {at}.{name}"
                found[name] = value
        assert read(kind, text)


@pytest.mark.parametrize("column", KINDS)
def test_what_a_newer_version_wrote_is_left_to_it(column: str) -> None:
    for kind, text in samples(column):
        with pytest.raises(PreconditionFailed, match="the sample was written by a newer version") as refused:
            read(kind, {NUMBER: 2, **text, "whatever": 1})
        assert refused.value.hint == "Use the version that wrote it, or a later one."


@pytest.mark.parametrize("number", [0, -1, "1", 1.0, True, None])
def test_a_format_that_is_no_number_is_refused(number: Any) -> None:
    with pytest.raises(Corrupted, match="is not a format number"):
        read(Nothing, {NUMBER: number})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "1"])
def test_a_text_that_holds_no_object_is_refused(text: str) -> None:
    for look in (records.to_plain, lambda text, what: records.from_text(Nothing, text, what)):
        with pytest.raises(Corrupted, match="the sample cannot be read") as refused:
            look(text, "the sample")
        assert "restore the catalog" in refused.value.hint


@dataclass(frozen=True, kw_only=True)
class Example(Record):
    number: int
    exact: float | None
    pairs: tuple[tuple[str, int], ...]
    some: frozenset[str]
    by_name: dict[str, bool]
    kind: Literal["a", "b"]
    sum: Digest
    renamed: str = stored_as(default="", name="RENAMED")
    added: int | None = later()


EXAMPLE = Example(
    number=1,
    exact=1.5,
    pairs=(("a", 1), ("b", 2)),
    some=frozenset({"x", "b"}),
    by_name={"t": True},
    kind="a",
    sum=Digest(2, 255),
)
WRITTEN: dict[str, Any] = {
    NUMBER: 1,
    "number": 1,
    "exact": 1.5,
    "pairs": [["a", 1], ["b", 2]],
    "some": ["b", "x"],
    "by_name": {"t": True},
    "kind": "a",
    "sum": [2, "0" * 30 + "ff"],
    "RENAMED": "",
}


def test_the_form_of_each_kind_of_value() -> None:
    assert json.loads(records.to_text(EXAMPLE)) == WRITTEN
    assert read(Example, WRITTEN) == EXAMPLE
    assert read(Example, {**WRITTEN, "added": 3}).added == 3


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("number", "1", "'1' is not of type int @ $.number"),
        ("number", True, "True is not of type int @ $.number"),
        ("number", None, "None is not of type int @ $.number"),
        ("exact", "1.5", "'1.5' is not of type float @ $.exact"),
        ("pairs", "ab", "'ab' is not a list @ $.pairs"),
        ("pairs", ["ab"], "'ab' is not a list @ $.pairs"),
        ("pairs", [["a"]], "does not have 2 items @ $.pairs"),
        ("pairs", [["a", 1, 2]], "does not have 2 items @ $.pairs"),
        ("some", [1], "1 is not of type str @ $.some"),
        ("by_name", ["t"], "an object was expected @ $.by_name"),
        ("by_name", {"t": 1}, "1 is not of type bool @ $.by_name['t']"),
        ("kind", "c", "c not in literal"),
        ("sum", [1], "@ $.sum"),
        ("sum", ["1", "ff"], "is not a number of rows and a digest @ $.sum"),
        ("sum", [1, "fz"], "@ $.sum"),
        ("added", "3", "'3' is not of type int @ $.added"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(field: str, value: Any, says: str) -> None:
    with pytest.raises(Corrupted) as refused:
        read(Example, {**WRITTEN, field: value})
    assert refused.value.message.startswith("the sample cannot be read: ")
    assert says in refused.value.message


@pytest.mark.parametrize("bounds", ["ab", [1], ["a"], [[{"colour": "red"}]], [[{}]], [[{"date": "noon"}]]])
def test_bounds_that_are_no_keys_are_refused(bounds: Any) -> None:
    schema = TableSchema.of([("k", parse_type("Int64"), True)], ("k",))
    text = json.loads(records.to_text(TableBody(schema=schema)))
    text["schema"]["bounds"] = bounds
    with pytest.raises(Corrupted, match=r"\$\.schema\.bounds"):
        read(TableBody, text)


def kinds_of_records(above: type[Any] = Record) -> Iterator[type[Any]]:
    for kind in above.__subclasses__():
        yield kind
        yield from kinds_of_records(kind)


def test_records_never_change_and_are_made_by_names() -> None:
    """Not by KW_ONLY: cattrs asks for the types of all that a class is annotated with, and in Python 3.10
    that is none."""
    importlib.import_module("strandline.api.operations")  # It knows all kinds of operations.
    kinds = [kind for kind in kinds_of_records() if kind.__module__.startswith("strandline.")]
    assert len(kinds) > 60
    wrong = [
        kind.__name__
        for kind in kinds
        if not kind.__dataclass_params__.frozen
        or not all(field.kw_only for field in dataclasses.fields(kind))
        or "KW_ONLY" in inspect.get_annotations(kind).values()
    ]
    assert wrong == []


def test_a_type_that_is_not_known_is_refused() -> None:
    schema = TableSchema.of([("k", parse_type("Int64"), True)], ("k",))
    text = json.loads(records.to_text(TableBody(schema=schema)))
    text["schema"]["columns"][0]["type"] = "Colour"
    with pytest.raises(Corrupted, match=r"Colour.*\$\.schema\.columns\.type"):
        read(TableBody, text)
