from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.errors import InputError, UsageError
from setpoint.score.sources import Source, from_iterable, rows
from tests.score.sources.reading import all_chunks, places_of, rows_of, same, table_of


def test_a_list_of_texts_with_things_that_are_none() -> None:
    texts = ["a", None, math.nan, "", " ", "\N{GRINNING FACE}", "\ud800", 3, b"x", ["a"], {"k": 1}]
    source = from_iterable(texts)
    assert source.name == "list of 11 rows"
    assert isinstance(source, Source)
    found = [row.get("text", "absent") for row in rows_of(source)]
    assert same(found[:10], texts[:10])
    assert rows_of(source)[10] == {"k": 1}
    assert places_of(source)[3] == "input row 4"


def test_an_empty_list() -> None:
    source = from_iterable([])
    assert source.columns() == ["text"]
    assert source.estimate().num_rows == 0
    assert all_chunks(source) == []


def test_mappings_and_pairs() -> None:
    source = from_iterable([{"text": "a", "id": 1}, {"id": 2, 7: "seven"}, "plain", ("one", "two"), ["x", "y"]])
    assert source.columns() == ["text", "id", "7", "text_pair"]
    assert rows_of(source) == [
        {"text": "a", "id": 1},
        {"id": 2, "7": "seven"},
        {"text": "plain"},
        {"text": "one", "text_pair": "two"},
        {"text": "x", "text_pair": "y"},
    ]


def test_values_of_numpy_and_pandas() -> None:
    items = [np.str_("a"), np.float64("nan"), np.int64(3), pd.NA, pd.NaT, None]
    (chunk,) = all_chunks(from_iterable(items))
    assert chunk.table.column("text").to_pylist() == ["a", None, "3", None, None, None]
    assert same(chunk.values("text"), ["a", math.nan, 3, None, None, None])
    assert [row["text"] for row in rows_of(from_iterable(np.array(["x", "y"])))] == ["x", "y"]


def test_a_generator_is_read_once_and_lazily() -> None:
    taken = []

    def texts() -> Iterator[str]:
        for i in itertools.count():
            taken.append(i)
            yield f"t{i}"

    source = from_iterable(texts())
    assert source.name == "generator"
    assert source.columns() == ["text"]
    assert source.estimate().rows is None
    assert taken == [0]
    chunks = source.chunks(max_rows=5)
    first, second = next(chunks), next(chunks)
    assert first.values("text") + second.values("text") == [f"t{i}" for i in range(10)]
    assert len(taken) <= 11
    with pytest.raises(InputError, match="the generator can be read only once; pass a list"):
        source.chunks()


def test_the_start_of_a_generator_can_be_dropped() -> None:
    source = from_iterable(f"t{i}" for i in range(7))
    assert [row["text"] for row in rows_of(source, start_row=5)] == ["t5", "t6"]


def test_an_exception_of_the_generator_comes_through() -> None:
    def broken() -> Iterator[str]:
        yield "a"
        raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="the caller's own"):
        rows_of(from_iterable(broken()), max_rows=1)


def test_other_collections() -> None:
    assert len(rows_of(from_iterable(deque(["a", "b"])))) == 2
    assert len(rows_of(from_iterable({"a", "b"}))) == 2
    assert len(rows_of(from_iterable(("a", "b", "c")))) == 3
    assert len(rows_of(from_iterable(map(str, range(4))))) == 4


@pytest.mark.parametrize("items", ["text", b"text", 5, None, {"text": ["a"]}])
def test_what_has_no_rows(items: Any) -> None:
    with pytest.raises(UsageError, match="rows must come as a list or another iterable, not as a "):
        from_iterable(items)


def test_arrow_tables_batches_and_readers() -> None:
    table = pa.table({"text": ["a", None, "c"], "n": [1, 2, 3]})
    assert table_of(from_iterable(table), max_rows=2).equals(table)
    assert table_of(from_iterable(table.to_batches()[0])).equals(table)
    reader = from_iterable(table.to_reader(max_chunksize=2))
    assert reader.columns() == ["text", "n"]
    assert rows_of(reader, start_row=1, columns=["n"]) == [{"n": 2}, {"n": 3}]
    with pytest.raises(InputError, match="only once"):
        reader.chunks()
    with pytest.raises(InputError, match="column names repeat: 'a'"):
        from_iterable(pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]))


def test_frames_of_other_libraries() -> None:
    class Frame:
        def __init__(self, table: pa.Table) -> None:
            self._table = table

        def __iter__(self) -> Iterator[str]:
            return iter(self._table.column_names)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self._table.__arrow_c_stream__(requested_schema)

    assert rows_of(from_iterable(Frame(pa.table({"text": ["a"]})))) == [{"text": "a"}]


def test_pandas() -> None:
    frame = pd.DataFrame(
        {
            "text": np.array(["a", None, math.nan, 3, "\ud800"], dtype=object),
            "n": [1, 2, 3, 4, 5],
            "at": pd.to_datetime(["2020-01-02", None, "2020-01-03", None, None]),
        },
        index=[9, 8, 7, 6, 5],
    )
    source = from_iterable(frame)
    assert source.columns() == ["text", "n", "at"]
    assert [row["n"] for row in rows_of(source, max_rows=2)] == [1, 2, 3, 4, 5]
    found = rows_of(source)
    assert same([row["text"] for row in found], ["a", None, math.nan, 3, "\ud800"])
    assert [row["n"] for row in found] == [1, 2, 3, 4, 5]
    assert str(table_of(source).schema.field("at").type).startswith("timestamp")
    assert rows_of(source, start_row=3, columns=["n"]) == [{"n": 4}, {"n": 5}]
    assert [row["text"] for row in rows_of(from_iterable(frame["text"][:1]))] == ["a"]
    assert source.identity() == from_iterable(frame.copy()).identity()


def test_datasets() -> None:
    import datasets

    dataset = datasets.Dataset.from_list([{"text": f"t{i}", "n": i} for i in range(10)])
    source = from_iterable(dataset)
    assert source.columns() == ["text", "n"]
    assert source.estimate().num_rows == 10
    assert rows_of(source, max_rows=4, start_row=3) == [{"text": f"t{i}", "n": i} for i in range(3, 10)]
    picked = dataset.select([5, 2]).filter(lambda row: row["n"] > 2)
    assert rows_of(from_iterable(picked)) == [{"text": "t5", "n": 5}]
    assert from_iterable(dataset).identity() == source.identity() != from_iterable(picked).identity()
    assert len(rows_of(from_iterable(dataset.to_iterable_dataset()))) == 10
    with pytest.raises(UsageError, match="choose one of its splits: train, test"):
        from_iterable(datasets.DatasetDict({"train": dataset, "test": dataset}))


def test_identity_follows_the_content() -> None:
    assert from_iterable(["a", "b"]).identity() == from_iterable(("a", "b")).identity()
    assert from_iterable(["a", "b"]).identity() != from_iterable(["a", "c"]).identity()
    assert from_iterable(["a\ud800"]).identity() != from_iterable(["a\ud801"]).identity()
    table = pa.table({"text": ["a", "b"]})
    assert from_iterable(table).identity() == from_iterable(pa.concat_tables([table[:1], table[1:]])).identity()
    assert from_iterable(table).identity() != from_iterable(table[:1]).identity()
    assert from_iterable(iter(["a"])).identity() == {"kind": "python", "type": "list_iterator"}


def test_no_rows_are_lost_where_they_are_too_large_for_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_CHUNK_BYTES", 100)
    table = pa.table({"text": ["x" * 60] * 7})
    for items in (table, table.to_pylist(), table.to_pandas()):
        assert [chunk.num_rows for chunk in from_iterable(items).chunks(max_rows=3)] == [1] * 7


items_of_any_kind = st.lists(
    st.none() | st.text(max_size=5) | st.integers() | st.floats() | st.binary(max_size=3) | st.booleans(),
    max_size=20,
)


@given(items=items_of_any_kind, max_rows=st.integers(1, 7), start=st.integers(0, 20))
def test_whatever_is_in_a_list_comes_out_in_order(items: list[Any], max_rows: int, start: int) -> None:
    found = [row["text"] for row in rows_of(from_iterable(items), max_rows=max_rows, start_row=start)]
    assert len(found) == len(items[start:])
    for value, item in zip(found, items[start:]):
        assert value == item or (value != value and item != item)
    if items:
        assert table_of(from_iterable(items), max_rows=max_rows).num_rows == len(items)
