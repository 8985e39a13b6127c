from __future__ import annotations

import csv
import datetime
import decimal
import errno
import gzip
import io
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.errors import UsageError
from setpoint.score import formats
from setpoint.score.formats import Kind, OutputFormat, merge, output_format, unify_schemas, write_table, write_tables
from setpoint.score.sources import open_source
from tests.score.sources.reading import same, table_of

ALL = ["t.parquet", "t.arrow", "t.jsonl", "t.jsonl.gz", "t.jsonl.zst", "t.csv", "t.csv.gz", "t.csv.zst", "t.tsv"]


def vectors(rows: list[list[float] | None], size: int) -> pa.Array:
    return pa.array(rows, pa.list_(pa.float32(), size))


def results(num_rows: int = 7, first: int = 0) -> pa.Table:
    """What a job stores: kept columns, result columns, null where a row failed."""
    numbers = range(first, first + num_rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": pa.array([None if i % 5 == 4 else f'te,"xt"\n{i} \N{SNOWMAN}' for i in numbers]),
            "label": pa.array([None if i % 5 == 4 else "good" for i in numbers]),
            "score": pa.array([None if i % 5 == 4 else i / 10 for i in numbers], pa.float32()),
            "embedding": vectors([None if i % 5 == 4 else [i, 0.1, -1e-9] for i in numbers], 3),
            "entities": pa.array(
                [[{"word": f"w{i}", "score": 0.5, "start": 0}] * (i % 3) for i in numbers],
                pa.list_(pa.struct({"word": pa.string(), "score": pa.float32(), "start": pa.int32()})),
            ),
            "num_tokens": pa.array([i + 2 for i in numbers], pa.int32()),
            "error": pa.array(["empty_text" if i % 5 == 4 else None for i in numbers], pa.string()),
        }
    )


def shards(folder: Path, tables: list[pa.Table]) -> list[Path]:
    paths = []
    for i, table in enumerate(tables):
        paths.append(folder / f"{i:05d}.arrow")
        write_table(table, paths[-1], OutputFormat(kind=Kind.ARROW))
    return paths


def merged(folder: Path, tables: list[pa.Table], name: str) -> Path:
    path = folder / name
    schema = unify_schemas(table.schema for table in tables)
    num_rows = merge(shards(folder, tables), path, output_format(path), schema)
    assert num_rows == sum(table.num_rows for table in tables)
    return path


def test_formats_by_ending_and_by_name() -> None:
    assert output_format("a/b.PARQUET") == OutputFormat(kind=Kind.PARQUET)
    assert output_format("x.feather").kind is Kind.ARROW
    assert output_format("x.csv.gz") == OutputFormat(kind=Kind.CSV, compression="gzip")
    assert output_format("out/", name="jsonl.zst") == OutputFormat(kind=Kind.JSONL, compression="zstd")
    assert output_format("out/", name="ndjson").kind is Kind.JSONL
    assert output_format("x.tsv.zst").ending == ".tsv.zst"
    assert str(output_format("x.jsonl.gz")) == "jsonl.gz"


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("x.parqet", None, r"'\.parqet' of x\.parqet \(did you mean '\.parquet'\?\); known endings: \.parquet"),
        ("x", None, r"cannot tell the output's format from the ending '' of x; known"),
        ("x.csv.bz2", None, "known endings"),
        ("x", "josnl", r"unknown output format 'josnl' \(did you mean 'jsonl'\?\)"),
        ("x.parquet.gz", None, r"parquet is compressed inside; leave out '\.gz': x\.parquet"),
    ],
)
def test_formats_that_are_not(path: str, name: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        output_format(path, name=name)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_typed_formats_keep_everything(tmp_path: Path, name: str) -> None:
    table = results()
    path = merged(tmp_path, [table[:3], table[3:3], table[3:]], name)
    found = formats.read_table(path)
    assert found.schema.equals(table.schema)
    assert found.schema.field("embedding").type == pa.list_(pa.float32(), 3)
    assert same(found.to_pylist(), table.to_pylist())


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
def test_json_lines_read_back(tmp_path: Path, name: str) -> None:
    table = results()
    found = table_of(open_source(str(merged(tmp_path, [table[:3], table[3:]], name)))).to_pylist()
    assert [row["text"] for row in found] == table.column("text").to_pylist()
    assert [row["label"] for row in found] == table.column("label").to_pylist()
    for row, original in zip(found, table.to_pylist()):
        for column in ("score", "embedding"):
            value, expected = row[column], original[column]
            assert (value is None) == (expected is None)
            assert value is None or np.array_equal(np.float32(value), np.float32(expected))
        assert row["entities"] == original["entities"]


def test_json_lines_are_plain_json(tmp_path: Path) -> None:
    table = pa.table(
        {
            "f": [math.nan, math.inf, 1.0, 0.1],
            "v": vectors([[math.nan, 1, 2], None, [0.1, -0.0, 3e38], [1e-40, 16777216, 5]], 3),
            "t": ['"\\\n\t\0\x1f', "\u2028\N{SNOWMAN}", "", None],
            "b": [b"\xff", None, b"", b"a"],
            "d": [datetime.date(2020, 1, 2), None, None, None],
            "dec": [decimal.Decimal("1.50"), None, None, None],
            "n": pa.nulls(4),
            "bool": [True, False, None, True],
            "m": pa.array([[("k", 1)], None, [], [("é", None)]], pa.map_(pa.string(), pa.int64())),
            "mi": pa.array([[(1, 1)], None, [], []], pa.map_(pa.int64(), pa.int64())),
            "s": [{"a": [1, None], "b": {"c": "x"}}, None, {"a": None, "b": None}, {"a": [], "b": {"c": None}}],
            "big": pa.array([2**63 - 1, -(2**63), 0, None], pa.int64()),
            "cat": pa.array(["x", None, "y", "x"]).dictionary_encode(),
            "mat": pa.array([[[1, 2]], None, [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.float32(), 2))),
            'k"ey': ["a", "b", "c", "d"],
        }
    )
    path = merged(tmp_path, [table], "t.jsonl")
    rows = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    assert [row["f"] for row in rows] == [None, None, 1.0, 0.1]
    assert isinstance(rows[2]["f"], float)
    assert rows[0]["v"] == [None, 1, 2]
    assert rows[1]["v"] is None
    assert np.array_equal(np.float32(rows[2]["v"] + rows[3]["v"]), np.float32([0.1, -0.0, 3e38, 1e-40, 16777216, 5]))
    assert [row["t"] for row in rows] == table.column("t").to_pylist()
    assert [row["b"] for row in rows] == ["/w==", None, "", "YQ=="]
    assert (rows[0]["d"], rows[0]["dec"]) == ("2020-01-02", "1.50")
    assert [row["bool"] for row in rows] == [True, False, None, True]
    assert [row["m"] for row in rows] == [{"k": 1}, None, {}, {"é": None}]
    assert [row["s"] for row in rows] == table.column("s").to_pylist()
    assert [row["big"] for row in rows] == table.column("big").to_pylist()
    assert [row["cat"] for row in rows] == ["x", None, "y", "x"]
    assert [row["mat"] for row in rows] == [[[1, 2]], None, [], [[3, 4], [5, 6]]]
    assert [row['k"ey'] for row in rows] == ["a", "b", "c", "d"]
    assert "0.1," in path.read_text().split("\n")[2]
    assert "\N{SNOWMAN}" in path.read_text()


@pytest.mark.parametrize(("name", "sign"), [("t.csv", ","), ("t.tsv", "\t"), ("t.csv.gz", ","), ("t.csv.zst", ",")])
def test_csv_read_back(tmp_path: Path, name: str, sign: str) -> None:
    table = results()
    path = merged(tmp_path, [table[:3], table[3:]], name)
    found = table_of(open_source(str(path))).to_pylist()
    assert [row["text"] or None for row in found] == table.column("text").to_pylist()
    assert [row["error"] for row in found] == ["", "", "", "", "empty_text", "", ""]
    assert [row["num_tokens"] for row in found] == [str(i + 2) for i in range(7)]
    assert json.loads(found[2]["entities"]) == table.column("entities")[2].as_py()
    assert np.array_equal(np.float32(json.loads(found[1]["embedding"])), np.float32([1, 0.1, -1e-9]))
    assert found[4]["embedding"] == ""


def test_csv_cells(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a,b": ["x", 'q"q', "l\nl", "c\rc", "", None],
            "f": [1.0, math.nan, math.inf, 0.1, -0.0, None],
            "b": [True, False, None, True, True, True],
        }
    )
    path = merged(tmp_path, [table], "t.csv")
    assert path.read_bytes() == (
        b'"a,b",f,b\nx,1.0,true\n"q""q",NaN,false\n"l\nl",inf,\n"c\rc",0.1,true\n,-0.0,true\n,,true\n'
    )


def test_a_single_empty_cell_is_still_a_row(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "", None, "b", ""]})
    path = merged(tmp_path, [table], "t.csv")
    assert table_of(open_source(str(path))).column("text").to_pylist() == ["a", "", "", "b", ""]
    with open(path, newline="") as file:
        assert list(csv.reader(file)) == [["text"], ["a"], [""], [""], ["b"], [""]]


@pytest.mark.parametrize("name", ALL)
def test_no_rows(tmp_path: Path, name: str) -> None:
    empty = results(0)
    path = merged(tmp_path, [empty], name)
    if "jsonl" not in name:
        assert open_source(str(path)).columns() == empty.column_names
    assert list(open_source(str(path)).chunks()) == []
    assert write_tables([], io.BytesIO(), output_format(name), empty.schema) == 0


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=5).map(sorted))
def test_the_bytes_do_not_depend_on_the_shards(
    tmp_path_factory: pytest.TempPathFactory, name: str, cuts: list[int]
) -> None:
    table = results(60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "GROUP_ROWS", 16)
        patch.setattr(formats, "TEXT_ROWS", 16)
        folder = tmp_path_factory.mktemp("merge")
        whole = merged(folder, [table], name).read_bytes()
        bounds = [0, *cuts, 60]
        parts = [table[first:last] for first, last in itertools.pairwise(bounds)]
        assert merged(folder, parts, name).read_bytes() == whole


def test_row_groups_are_cut_by_rows_and_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "GROUP_ROWS", 100)
    monkeypatch.setattr(formats, "GROUP_BYTES", 20_000)
    table = pa.table({"text": ["x" * 10] * 250 + ["y" * 1000] * 50})
    path = merged(tmp_path, [table[:33], table[33:]], "t.parquet")
    found = pq.ParquetFile(path).metadata
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [100, 100, 69, 20, 11]


def test_shards_of_different_types_meet(tmp_path: Path) -> None:
    tables = [
        pa.table({"n": [1, 2], "x": [1, 2]}),
        pa.table({"n": [2.5], "late": ["new"], "x": ["text"]}),
        pa.table({"n": pa.nulls(1), "x": [[1]]}),
    ]
    found = formats.read_table(merged(tmp_path, tables, "t.parquet")).to_pylist()
    assert [row["n"] for row in found] == [1.0, 2.0, 2.5, None]
    assert [row["x"] for row in found] == ["1", "2", "text", "[1]"]
    assert [row["late"] for row in found] == [None, None, "new", None]


def test_notes_for_merging_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"n": 1152921504606846977}\n')
    table = table_of(open_source(str(path)))
    out = merged(tmp_path, [table], "t.parquet")
    assert pq.ParquetFile(out).schema_arrow.field("n").metadata is None or (
        b"setpoint.wide_ints" not in pq.ParquetFile(out).schema_arrow.field("n").metadata
    )
    assert formats.read_table(out).column("n").to_pylist() == [2**60 + 1]


def test_a_full_disk_comes_through_as_such() -> None:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    for name in ALL:
        with pytest.raises(OSError, match="No space left") as caught:
            write_tables([results(5000)], Full(), output_format(name), results(1).schema)  # type: ignore[arg-type]
        assert caught.value.errno == errno.ENOSPC


def test_compressed_text_is_what_other_tools_read(tmp_path: Path) -> None:
    plain = merged(tmp_path, [results()], "t.csv").read_bytes()
    assert gzip.decompress(merged(tmp_path, [results()], "t.csv.gz").read_bytes()) == plain
    with pa.input_stream(str(merged(tmp_path, [results()], "t.csv.zst"))) as stream:
        assert stream.read() == plain


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl", "t.csv"])
def test_memory_does_not_grow_with_the_number_of_shards(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "GROUP_BYTES", 4 * 1024 * 1024)
    numbers = np.random.default_rng(0).random((1000, 64), dtype=np.float32)
    table = pa.table(
        {
            "text": ["some text " * 40] * 1000,
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), 64),
        }
    )
    process, seen = psutil.Process(), []

    def tables() -> Any:
        for _ in range(120):
            seen.append(process.memory_info().rss)
            yield table

    with open(tmp_path / name, "wb") as sink:
        assert write_tables(tables(), sink, output_format(name), table.schema) == 120_000
    assert max(seen) - seen[20] < 35 * 1024 * 1024  # the rows have 77


cells = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(),
        "tags": st.none() | st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=3),
    }
)
SCHEMA = pa.schema([("text", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.jsonl.zst", "t.csv.gz"])
@settings(max_examples=30, deadline=None)
@given(rows=st.lists(cells, min_size=1, max_size=12), cut=st.integers(0, 12))
def test_rows_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, name: str, rows: list[dict[str, Any]], cut: int
) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    path = merged(tmp_path_factory.mktemp("trip"), [table[:cut], table[cut:]], name)
    found = table_of(open_source(str(path)), max_rows=5).to_pylist()
    assert len(found) == len(rows)
    for row, original in zip(found, rows):
        if name.endswith(("parquet", "arrow")):
            assert all(same(row[key], value) for key, value in original.items())
        elif "jsonl" in name:
            finite = original["f"] is not None and math.isfinite(original["f"])
            expected = {**original, "f": original["f"] if finite else None}
            assert row == {key: expected[key] for key in row}
        else:
            assert row["text"] == (original["text"] or "")
            assert row["n"] == ("" if original["n"] is None else str(original["n"]))
            assert row["tags"] == "" if original["tags"] is None else json.loads(row["tags"]) == original["tags"]
            assert row["f"] == "" if original["f"] is None else same(float(row["f"]), original["f"])
