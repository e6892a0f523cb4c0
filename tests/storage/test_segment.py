from __future__ import annotations

import os
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import Corrupted, Unavailable
from strandline.model import OP, PENDING, STEP, WAS_HI, WAS_LO, KeyRange, Segment, TableSchema, order
from strandline.storage import segment as segments
from strandline.storage.digest import checksum_of
from strandline.storage.files import LocalFiles
from strandline.storage.segment import Inline, footer_of, read_segment, rows_between, write_segment
from strandline.storage.segment_cache import SegmentCache
from strandline.types import parse_type
from strandline.types.arrays import column_to_python, python_to_array
from tests.quick_files import QuickFiles
from tests.storage.damage import describe_file
from tests.storage.examples import SCHEMAS, schema, values

KV = schema("k Int64 NOT NULL", "v Utf8", key="k")
SMALL = Inline(2_000, 1 << 18)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


def rows_of(table: TableSchema, found: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column_to_python(table[n].type, found.column(n)) for n in table.names), strict=True))


def base(files: LocalFiles, count: int = 20_000, name: str = "t/base.parquet") -> Segment:
    table = pa.table({"k": range(count), "v": [f"v{i}" for i in range(count)], STEP: [1] * count})
    return write_segment(files, KV, table, name=name, role="base", fresh=True, stepped=True, upto=1)


def log(files: LocalFiles, keys: list[int], inline: Inline = SMALL, **more: Any) -> Segment:
    count = len(keys)
    table = pa.table(
        {
            "k": keys,
            "v": ["x"] * count,
            OP: ["U"] * count,
            WAS_HI: pa.nulls(count, pa.int64()),
            WAS_LO: pa.nulls(count, pa.int64()),
        }
    )
    return write_segment(
        files, KV, table, name="t/log.parquet", role="log", fresh=True, stepped=False, inline=inline, **more
    )


def damage(files: LocalFiles, name: str, content: bytes) -> None:
    with open(files.path(name), "wb") as file:
        file.write(content)


def test_a_small_log_stays_inline(files: LocalFiles) -> None:
    segment = log(files, [3, 1, 2])
    assert segment.file is None
    assert segment.data is not None
    assert (segment.bytes, segment.checksum) == (len(segment.data), checksum_of(segment.data))
    assert (segment.rows, segment.min_key, segment.max_key, segment.upto) == (3, (1,), (3,), PENDING)
    assert list(files.names()) == []
    assert read_segment(SegmentCache(files), KV, segment).column("k").to_pylist() == [1, 2, 3]


def test_a_log_with_many_rows_or_many_bytes_becomes_a_file(files: LocalFiles) -> None:
    segment = log(files, [3, 1, 2], Inline(2, 1 << 18))
    assert (segment.file, segment.data) == ("t/log.parquet", None)
    assert (segment.bytes, segment.checksum) == (files.size("t/log.parquet"), files.checksum("t/log.parquet"))
    files.remove("t/log.parquet")
    assert log(files, [3, 1, 2], Inline(2_000, 20)).file == "t/log.parquet"


def test_an_empty_base_is_a_file_without_rows(files: LocalFiles) -> None:
    segment = base(files, 0)
    assert (segment.rows, segment.min_key, segment.max_key) == (0, None, None)
    assert read_segment(SegmentCache(files), KV, segment).num_rows == 0


def test_a_large_base_has_small_row_groups_with_statistics(files: LocalFiles) -> None:
    segment = base(files)
    footer = footer_of(SegmentCache(files), segment)
    assert footer.rows.tolist() == [8192, 8192, 3616]
    assert footer.groups_with(KV, [pa.array([8191])]) == [0]
    assert footer.groups_with(KV, [pa.array([-1, 8192, 20_000])]) == [1]
    assert footer.groups_between(KV, KeyRange((8000,), (8192,), closed=True)) == [0, 1]
    assert footer.groups_between(KV, KeyRange(None, (8191,), closed=True)) == [0]


def test_wide_rows_make_smaller_row_groups(files: LocalFiles) -> None:
    wide = pa.table({"k": range(1000), "v": ["x" * 10_000] * 1000, STEP: [1] * 1000})
    segment = write_segment(files, KV, wide, name="wide", role="base", fresh=True, stepped=True, upto=1)
    assert footer_of(SegmentCache(files), segment).rows.tolist() == [256, 256, 256, 232]


def test_only_the_asked_columns_and_row_groups_are_read(files: LocalFiles) -> None:
    segment = base(files)
    found = read_segment(SegmentCache(files), KV, segment, ["v", STEP], [2])
    assert found.column_names == ["v", STEP]
    assert found.num_rows == 3616
    assert found.column("v")[0].as_py() == "v16384"


def test_kept_row_groups_are_decoded_once(files: LocalFiles) -> None:
    cache, segment = SegmentCache(files), base(files)
    expected = read_segment(cache, KV, segment, row_groups=[0, 2])
    assert read_segment(cache, KV, segment, row_groups=[2], keep=True).num_rows == expected.num_rows - 8192
    assert read_segment(cache, KV, segment, row_groups=[0, 2], keep=True).equals(expected)
    assert segment.file is not None
    files.remove(segment.file)
    assert read_segment(cache, KV, segment, ["v"], [0, 2], keep=True).equals(expected.select(["v"]))
    with pytest.raises(Corrupted):
        read_segment(cache, KV, segment, row_groups=[0, 2])


@given(st.lists(st.tuples(st.none() | st.integers(0, 4), st.sampled_from("abc")), unique=True), st.data())
def test_the_rows_of_a_small_segment_in_a_range_are_a_slice(
    keys: list[tuple[int | None, str]], data: st.DataObject
) -> None:
    two = schema("k Int64", "t Utf8 NOT NULL", key="k t")
    columns = {
        "k": pa.array([k for k, _ in keys], pa.int64()),
        "t": pa.array([t for _, t in keys], pa.string()),
    }
    told = {
        OP: ["U"] * len(keys),
        WAS_HI: pa.nulls(len(keys), pa.int64()),
        WAS_LO: pa.nulls(len(keys), pa.int64()),
    }
    files = QuickFiles(Path("/nonexistent"))
    segment = write_segment(
        files, two, pa.table(columns | told), name="x", role="log", fresh=True, stepped=False, inline=SMALL
    )
    bound = st.none() | st.tuples(st.none() | st.integers(0, 4)) | st.sampled_from([(None, "b"), (2, "b")])
    lower, upper, closed = data.draw(bound), data.draw(bound), data.draw(st.booleans())
    found = rows_between(SegmentCache(files), two, segment, KeyRange(lower, upper, closed))
    expected = [
        key
        for key in sorted(keys, key=order)
        if (lower is None or order(key) >= order(lower))
        and (
            upper is None
            or (order(key[: len(upper)]) <= order(upper) if closed else order(key) < order(upper))
        )
    ]
    assert rows_of(two, read_segment(SegmentCache(files), two, segment))[found] == expected


def test_meta_columns_are_filled_where_the_segment_has_none(files: LocalFiles) -> None:
    found = read_segment(SegmentCache(files), KV, log(files, [1, 2], upto=7, after=6), [STEP, OP])
    assert found.to_pydict() == {STEP: [7, 7], OP: ["U", "U"]}
    assert read_segment(SegmentCache(files), KV, base(files, 2), [OP, WAS_HI]).to_pydict() == {
        OP: ["U", "U"],
        WAS_HI: [None, None],
    }


@pytest.mark.parametrize("count", [2, 20_000])
def test_a_column_added_later_reads_as_null_and_one_added_again_does_not_bring_values_back(
    files: LocalFiles, count: int
) -> None:
    segment = base(files, count)
    longer = KV.with_column("n", parse_type("Uint64"))
    found = read_segment(SegmentCache(files), longer, segment)
    assert found.column("n").null_count == count
    assert found.column("n").type == pa.decimal128(20, 0)
    again = KV.without_column("v").with_column("v", parse_type("Int32"))
    assert read_segment(SegmentCache(files), again, segment).column("v").null_count == count
    assert read_segment(SegmentCache(files), again, segment, ["v"]).num_rows == count


def test_text_of_any_arrow_kind_is_normalised(files: LocalFiles) -> None:
    table = pa.table({"k": pa.array([1, 2], pa.int64()), "v": pa.array(["a", None], pa.large_string())})
    pq.write_table(table, files.path("spark.parquet"))
    segment = describe_file(files, KV, "spark.parquet", role="base", fresh=True, stepped=False, upto=3)
    assert read_segment(SegmentCache(files), KV, segment).schema.field("v").type == pa.string()
    assert read_segment(SegmentCache(files), KV, segment).column("v").to_pylist() == ["a", None]


def test_null_sorts_before_every_value(files: LocalFiles) -> None:
    table = schema("a Utf8", "b Int32", key="a b")
    rows = pa.table(
        {
            "a": pa.array(["x", None, "", None, "x"]),
            "b": pa.array([None, 5, 1, None, -1], pa.int32()),
            STEP: pa.array([1] * 5),
        }
    )
    segment = write_segment(files, table, rows, name="n", role="base", fresh=True, stepped=True, upto=1)
    assert rows_of(table, read_segment(SegmentCache(files), table, segment)) == [
        (None, None),
        (None, 5),
        ("", 1),
        ("x", None),
        ("x", -1),
    ]
    assert (segment.min_key, segment.max_key) == ((None, None), ("x", -1))


@settings(deadline=None)
@given(st.data())
def test_every_value_comes_back_in_the_order_of_keys(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = data.draw(st.sampled_from(SCHEMAS))
    key = st.tuples(
        *(values(c.type) if c.not_null else st.none() | values(c.type) for c in table.key_columns)
    )
    keys = data.draw(st.lists(key, unique=True, max_size=20))
    rows = [dict(zip(table.key, k, strict=True)) for k in keys]
    for row in rows:
        row.update({c.name: data.draw(st.none() | values(c.type)) for c in table.value_columns})
    arrays = {c.name: python_to_array(c.type, [row[c.name] for row in rows]) for c in table.columns}
    arrays[STEP] = pa.array([1] * len(rows), pa.int64())
    files = QuickFiles(tmp_path_factory.mktemp("s"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ROW_GROUP_ROWS", 4)
        written = write_segment(
            files, table, pa.table(arrays), name="f", role="base", fresh=True, stepped=True, upto=1
        )
        described = describe_file(files, table, "f", role="base", fresh=True, stepped=True, upto=1)
        found = rows_of(table, read_segment(SegmentCache(files), table, written))
    assert described == written
    expected = sorted(rows, key=lambda row: order(tuple(row[n] for n in table.key)))
    assert found == [tuple(row[n] for n in table.names) for row in expected]


def test_describe_needs_the_columns_of_the_role(files: LocalFiles) -> None:
    pq.write_table(pa.table({"k": [1], "v": ["a"], WAS_HI: [None]}), files.path("f"))
    with pytest.raises(Corrupted, match=f"file f has no column {OP}"):
        describe_file(files, KV, "f", role="log", fresh=True, stepped=False)


def test_a_log_of_new_keys_may_leave_out_what_its_rows_did(files: LocalFiles) -> None:
    pq.write_table(pa.table({"k": pa.array([1], pa.int64()), "v": ["a"]}), files.path("f"))
    described = describe_file(files, KV, "f", role="log", fresh=True, stepped=False, upto=7)
    assert read_segment(SegmentCache(files), KV, described, ["k", OP, WAS_HI, STEP]).to_pylist() == [
        {"k": 1, OP: "U", WAS_HI: None, STEP: 7}
    ]
    with pytest.raises(Corrupted, match=f"file f has no column {OP}"):
        describe_file(files, KV, "f", role="log", fresh=False, stepped=False)


def test_describe_does_not_trust_statistics(files: LocalFiles) -> None:
    table = schema("k String", key="k")
    low, high = b"\0" * 9000, b"\xff" * 9000
    pq.write_table(
        pa.table({"k": pa.array([low, high], pa.binary())}), files.path("f"), write_statistics=False
    )
    segment = describe_file(files, table, "f", role="base", fresh=True, stepped=False, upto=1)
    assert (segment.min_key, segment.max_key, segment.rows) == ((low,), (high,), 2)


def test_a_damaged_footer_is_noticed(files: LocalFiles) -> None:
    segment = base(files)
    content = files.read("t/base.parquet")
    for back in range(9, 2_000, 97):
        at = len(content) - back
        damage(files, "t/base.parquet", content[:at] + bytes([content[at] ^ 8]) + content[at + 1 :])
        with pytest.raises(Corrupted, match=r"t/base\.parquet"):
            footer_of(SegmentCache(files), segment)


@pytest.mark.parametrize(
    ("count", "checked"), [(5, 1 << 20), (20_000, 1 << 20), (20_000, 0)], ids=["small", "medium", "large"]
)
def test_a_missing_short_or_changed_file_is_named(
    files: LocalFiles, count: int, checked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "CHECKED_BYTES", checked)
    segment = base(files, count)
    content = files.read("t/base.parquet")
    middle = len(content) // 3
    flipped = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
    damages = [
        b"",
        content[:-1],
        content[: len(content) // 2],
        content + b"x",
        b"PAR1" * (len(content) // 4),
        flipped,
    ]
    for damaged in damages:
        damage(files, "t/base.parquet", damaged)
        with pytest.raises(Corrupted, match=r"t/base\.parquet"):
            read_segment(SegmentCache(files), KV, segment)
    files.remove("t/base.parquet")
    with pytest.raises(Corrupted, match=r"t/base\.parquet is missing"):
        read_segment(SegmentCache(files), KV, segment)


def test_a_file_replaced_by_another_one_is_noticed(files: LocalFiles) -> None:
    segment = base(files, 20_000)
    other = base(files, 20_001, name="t/other.parquet")
    os.replace(files.path("t/other.parquet"), files.path("t/base.parquet"))
    with pytest.raises(Corrupted, match=r"t/base\.parquet has"):
        read_segment(SegmentCache(files), KV, segment)
    assert other.rows == 20_001


def test_damaged_inline_data_is_noticed(files: LocalFiles) -> None:
    segment = log(files, [1, 2, 3])
    assert segment.data is not None
    for data in (segment.data[:-9], b"", None, segment.data[::-1]):
        broken = Segment(**{**vars(segment), "data": data})
        with pytest.raises(Corrupted, match="inline segment"):
            read_segment(SegmentCache(files), KV, broken)
    garbage = Segment(**{**vars(segment), "data": b"garbage", "checksum": checksum_of(b"garbage")})
    with pytest.raises(Corrupted, match="inline segment cannot be read"):
        read_segment(SegmentCache(files), KV, garbage)


def test_a_file_that_may_not_be_read_is_no_damage(files: LocalFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = base(files)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(segments, "_open", refuse)
    with pytest.raises(Unavailable, match=r"t/base\.parquet: Permission denied"):
        read_segment(SegmentCache(files), KV, segment)


def test_exact_values_of_every_type_survive(files: LocalFiles) -> None:
    table = schema(
        "k Uint64",
        "a Decimal(38,10)",
        "b Date",
        "c Timestamp",
        "d String",
        "e Float",
        "f Bool",
        "g Int8",
        key="k",
    )
    row = (
        2**64 - 1,
        Decimal("-9999999999999999999999999999.9999999999"),
        date(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc),
        b"\x00\xff",
        0.5,
        True,
        -128,
    )
    arrays = {c.name: python_to_array(c.type, [v]) for c, v in zip(table.columns, row, strict=True)}
    segment = write_segment(
        files, table, pa.table({**arrays, STEP: [1]}), name="f", role="base", fresh=True, stepped=True, upto=1
    )
    assert rows_of(table, read_segment(SegmentCache(files), table, segment)) == [row]
    assert segment.min_key == (2**64 - 1,)
