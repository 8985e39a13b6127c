from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.errors import InputError
from setpoint.score.sources import open_source, rows
from tests.score.sources.reading import all_chunks, places_of, rows_of, same, table_of


def sample(num_rows: int = 10) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(num_rows), pa.int64()),
            "text": pa.array([None if i % 4 == 3 else f"text {i}" for i in range(num_rows)]),
            "score": pa.array([math.nan if i % 3 == 0 else i / 2 for i in range(num_rows)], pa.float32()),
            "tags": pa.array([[f"t{i}"] * (i % 3) for i in range(num_rows)]),
        }
    )


def write(folder: Path, table: pa.Table, name: str, **options: Any) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".parquet"):
        pq.write_table(table, path, **options)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table, **options)
    else:
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, **options)
    return str(path)


KINDS = [("t.parquet", "row_group_size"), ("t.arrow", "max_chunksize"), ("t.ipc", "max_chunksize")]


@pytest.mark.parametrize(("name", "cut"), KINDS)
def test_types_nulls_and_nan_are_kept(tmp_path: Path, name: str, cut: str) -> None:
    table = sample()
    source = open_source(write(tmp_path, table, name, **{cut: 3}))
    assert source.columns() == table.column_names
    found = table_of(source, max_rows=4)
    assert found.schema == table.schema
    assert same(found.to_pylist(), table.to_pylist())
    assert places_of(source)[4] == f"{name} row 5"
    assert source.estimate().num_rows == (None if name == "t.ipc" else 10)


@pytest.mark.parametrize(("name", "cut"), KINDS)
@settings(max_examples=25, deadline=None)
@given(
    num_rows=st.integers(0, 25),
    cut_rows=st.integers(1, 9),
    max_rows=st.integers(1, 12),
    start=st.integers(0, 25),
)
def test_chunks_are_full_and_the_same_from_any_row(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    cut: str,
    num_rows: int,
    cut_rows: int,
    max_rows: int,
    start: int,
) -> None:
    source = open_source(write(tmp_path_factory.mktemp("t"), sample(num_rows), name, **{cut: cut_rows}))
    sizes = [chunk.num_rows for chunk in source.chunks(max_rows=max_rows)]
    assert sizes == [max_rows] * (num_rows // max_rows) + [num_rows % max_rows] * bool(num_rows % max_rows)
    whole = rows_of(source)
    assert len(whole) == num_rows
    assert same(rows_of(source, max_rows=max_rows, start_row=start), whole[start:])
    assert places_of(source, max_rows=max_rows, start_row=start) == places_of(source)[start:]


@pytest.mark.parametrize(("name", "cut"), KINDS)
def test_columns_can_be_chosen(tmp_path: Path, name: str, cut: str) -> None:
    source = open_source(write(tmp_path, sample(), name, **{cut: 3}))
    (chunk,) = all_chunks(source, columns=["tags", "id", "nowhere"])
    assert chunk.table.column_names == ["id", "tags"]
    (chunk,) = all_chunks(source, columns=[])
    assert (chunk.num_rows, chunk.table.column_names) == (10, [])


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.ipc"])
@pytest.mark.parametrize("content", [b"", b"id,text\n1,a\n", b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff\xff\0\0\0"])
def test_files_that_are_something_else(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"{name} is (damaged or in another format|empty)"):
        open_source(str(path)).columns()


def test_a_damaged_parquet_file_fails_where_it_is_damaged(tmp_path: Path) -> None:
    path = Path(write(tmp_path, sample(10_000), "t.parquet", row_group_size=100))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = b"\0" * 2000
    path.write_bytes(data)
    source = open_source(str(path))
    assert source.columns() == sample().column_names
    with pytest.raises(InputError, match=r"t\.parquet (is damaged|cannot be read)"):
        all_chunks(source)


def test_column_names_that_repeat(tmp_path: Path) -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    with pytest.raises(InputError, match=r"t\.arrow: column names repeat: 'text'"):
        open_source(write(tmp_path, table, "t.arrow")).columns()


def test_files_of_a_folder_with_other_columns_and_types(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"text": ["a"], "n": pa.array([1], pa.int64())}), "d/a.parquet")
    write(tmp_path, pa.table({"n": [2.5], "text": ["b"]}), "d/b.parquet")
    write(tmp_path, pa.table({"text": ["c"], "x": [True]}), "d/c.parquet")
    source = open_source(str(tmp_path / "d"))
    assert source.columns() == ["text", "n", "x"]
    (chunk,) = all_chunks(source)
    assert chunk.table.to_pylist() == [
        {"text": "a", "n": 1.0, "x": None},
        {"text": "b", "n": 2.5, "x": None},
        {"text": "c", "n": None, "x": True},
    ]
    assert chunk.is_absent("n", 2)
    assert not chunk.is_absent("n", 0)
    assert [chunk.where(i) for i in range(3)] == [f"d/{name}.parquet row 1" for name in "abc"]


def test_integers_beyond_a_double_are_not_rounded(tmp_path: Path) -> None:
    big = 2**60 + 1
    write(tmp_path, pa.table({"n": pa.array([big, 1], pa.int64())}), "d/a.parquet")
    write(tmp_path, pa.table({"n": [2.5]}), "d/b.parquet")
    for max_rows in (1, 2, 3):
        found = table_of(open_source(str(tmp_path / "d")), max_rows=max_rows)
        assert found.column("n").to_pylist() == [str(big), "1", "2.5"]


def test_strings_that_are_not_utf8(tmp_path: Path) -> None:
    offsets = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    bad = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xffok"))
    nested = pa.StructArray.from_arrays([bad], ["x"])
    source = open_source(write(tmp_path, pa.table({"text": bad, "s": nested}), "t.arrow"))
    (chunk,) = all_chunks(source)
    assert chunk.table.column("text").to_pylist() == ["a\ufffd", "ok"]
    assert chunk.values("text") == ["a\udcff", "ok"]
    assert chunk.table.column("s").to_pylist() == [{"x": "a\ufffd"}, {"x": "ok"}]
    assert chunk.values("s")[0] == {"x": "a\udcff"}


def test_encodings_are_resolved_and_metadata_dropped(tmp_path: Path) -> None:
    table = pa.table(
        {
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "view": pa.array(["x", None, "y"], pa.string_view()),
            "uuid": pa.array([b"0" * 16] * 3, pa.uuid()),
        }
    ).replace_schema_metadata({"pandas": "{}", "huggingface": "{}"})
    (chunk,) = all_chunks(open_source(write(tmp_path, table, "t.arrow")))
    assert [str(field.type) for field in chunk.table.schema] == ["string", "large_string", "fixed_size_binary[16]"]
    assert chunk.table.schema.metadata is None
    assert chunk.values("kind") == ["a", "b", "a"]


def test_a_group_of_rows_is_cut_where_it_would_be_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_CHUNK_BYTES", 1000)
    lengths = [10, 400, 400, 400, 5000, 10, 10]
    table = pa.table({"text": ["x" * n for n in lengths]})
    for name in ("t.parquet", "t.arrow"):
        source = open_source(write(tmp_path, table, name))
        assert [chunk.num_rows for chunk in source.chunks()] == [3, 1, 1, 2]
        assert [chunk.num_rows for chunk in source.chunks(start_row=3)] == [1, 1, 2]
    lines = tmp_path / "t.txt"
    lines.write_text("\n".join("x" * n for n in lengths))
    assert [chunk.num_rows for chunk in open_source(str(lines)).chunks()] == [3, 1, 1, 2]


def test_row_groups_before_the_start_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, sample(1000), "t.parquet", row_group_size=100)
    data = bytearray(Path(path).read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(5).column(0)
    first = column.dictionary_page_offset or column.data_page_offset
    data[4:first] = b"\0" * (first - 4)
    Path(path).write_bytes(data)
    assert len(rows_of(open_source(path), start_row=500)) == 500
    with pytest.raises(InputError):
        rows_of(open_source(path))


def test_an_arrow_stream_through_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, sample().schema) as out:
        out.write_table(sample(), max_chunksize=4)
    raw = io.BytesIO(sink.getvalue().to_pybytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(raw)))  # type: ignore[arg-type]
    source = open_source("-", format="arrow")
    assert source.columns() == sample().column_names
    assert same(table_of(source, max_rows=3).to_pylist(), sample().to_pylist())


def test_parquet_streams_a_large_row_group(tmp_path: Path) -> None:
    import psutil

    num_rows = 100_000
    table = pa.table({"text": [f"{i:08d}" + "some text " * 60 for i in range(num_rows)]})
    path = write(tmp_path, table, "t.parquet", row_group_size=num_rows, compression="none", use_dictionary=False)
    del table
    process, first, peak, seen = psutil.Process(), 0, 0, 0
    for chunk in open_source(path).chunks(max_rows=500):
        seen += chunk.num_rows
        peak = max(peak, process.memory_info().rss)
        first = first or peak
    assert seen == num_rows
    assert peak - first < 30 * 1024 * 1024  # the row group has 60
