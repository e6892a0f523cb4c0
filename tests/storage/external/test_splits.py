"""Files that are read in parts: the same rows and places of errors as in one piece."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from random import Random

import pytest

from strandline.errors import InvalidArgument
from strandline.settings import Settings
from strandline.storage.external import External, Incoming, open_source, splits
from strandline.types import parse_type

UTF8 = parse_type("Utf8")
VALUES = [
    "",
    "plain",
    'a "word"',
    "two\nlines",
    "three\r\n\r\nlines",
    '"',
    '""',
    ",",
    "ä",
    "\r",
    "\n",
    '\n","',
]


def opened(place: Path, most: int) -> Incoming:
    found = open_source(External(places=(str(place),), settings=Settings()))
    parts = found.split(lambda work, things: [work(thing) for thing in things], most)
    found.spread(lambda work, things: [work(thing) for thing in things], parts)
    return found


def texts(incoming: Incoming, names: list[str]) -> list[list[object]]:
    made = incoming.tables(dict.fromkeys(names, UTF8), frozenset())
    return [list(row.values()) for table in made for row in table.to_pylist()]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_parts_of_a_csv_file_have_its_rows(
    tmp_path: Path, seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "BLOCK_BYTES", block)
    random = Random(seed)
    every = random.random() < 0.5
    # Older versions of Python write a carriage return without quotes.
    values = [value for value in VALUES if every or "\r" not in value]
    rows = [[str(n), *random.choices(values, k=2)] for n in range(60)]
    text = io.StringIO()
    csv.writer(
        text,
        lineterminator=random.choice(["\n", "\r\n"]),
        quoting=csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL,
    ).writerows([["a", "b", "c"], *rows])
    place = tmp_path / "rows.csv"
    place.write_bytes(text.getvalue().encode())
    found = opened(place, random.randrange(20, 300))
    assert len(found.parts) > 1
    whole = open_source(External(places=(str(place),), settings=Settings()))
    assert texts(found, ["a", "b", "c"]) == texts(whole, ["a", "b", "c"])
    assert [row[0] for row in texts(found, ["a", "b", "c"])] == [str(n) for n in range(60)]


@pytest.mark.parametrize("text", ['1,5" disk\n' * 50, '1,"a" b\n' * 50, ', "a\n'.join(map(str, range(50)))])
def test_a_csv_file_with_quotes_elsewhere_is_not_split(tmp_path: Path, text: str) -> None:
    place = tmp_path / "rows.csv"
    place.write_text(f"a,b\n{text}")
    assert len(opened(place, 50).parts) == 1


def test_an_unclosed_quote_is_reported_as_in_one_piece(tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("a,b\n" + "1,x\n" * 50 + '51,"never closed\n')
    found = opened(place, 50)
    assert len(found.parts) == 1
    with pytest.raises(InvalidArgument, match="line 52"):
        texts(found, ["a", "b"])


@pytest.mark.parametrize("bad", [3, 40, 99])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_error_in_a_part_names_its_line(tmp_path: Path, bad: int, kind: str) -> None:
    values = ["x" if n == bad else str(n) for n in range(100)]
    place = tmp_path / f"rows.{kind}"
    if kind == "csv":
        place.write_text("id,t\n" + "".join(f'{value},"two\r\nlines"\n' for value in values))
    else:
        place.write_text("".join(f'{{"id": "{value}", "t": ""}}\n\n' for value in values))
    found = opened(place, 64)
    assert len(found.parts) > 5
    line = 2 + 2 * bad if kind == "csv" else 1 + 2 * bad
    types = {"id": parse_type("Int64"), "t": UTF8}
    with pytest.raises(InvalidArgument, match=rf"rows.{kind}, line {line}: column id .* 'x'"):
        list(found.tables(types, frozenset()))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_types_are_those_that_all_parts_allow(tmp_path: Path, kind: str) -> None:
    rows = [("1", "", "2020-01-01")] * 30 + [("1.5", "", "2020-01-01")] + [("2", "", "x")]
    place = tmp_path / f"rows.{kind}"
    if kind == "csv":
        place.write_text("a,b,c\n" + "".join(f"{','.join(row)}\n" for row in rows))
    else:
        place.write_text("".join(f'{{"a": {a}, "b": null, "c": "{c}"}}\n' for a, _, c in rows))
    found = opened(place, 64)
    assert len(found.parts) > 5
    assert {name: type_.name for name, type_ in found.types({}).items()} == {
        "a": "Double",
        "b": "Utf8",
        "c": "Utf8",
    }
