from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.errors import InputError
from setpoint.score.sources.schema import cast_table, cell_text, json_text, unify_schemas, unify_types
from setpoint.score.sources.values import table_from_columns

STRING = pa.string()


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (pa.null(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int8(), pa.int32(), pa.int32()),
        (pa.uint8(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.int64(), STRING),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), STRING, STRING),
        (pa.bool_(), pa.int64(), STRING),
        (STRING, pa.large_string(), pa.large_string()),
        (pa.binary(), pa.binary(4), pa.large_binary()),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("s"), pa.timestamp("s", "UTC"), STRING),
        (pa.date32(), pa.timestamp("s"), STRING),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), pa.decimal128(7, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 10), pa.decimal256(48, 10)),
        (pa.list_(pa.null()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.list_(pa.int64()), pa.list_(STRING), STRING),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 3)),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 4), pa.list_(pa.float32())),
        (pa.list_(STRING), STRING, STRING),
        (pa.struct({"a": pa.int64()}), pa.struct({"b": STRING}), pa.struct({"a": pa.int64(), "b": STRING})),
        (pa.struct({"a": pa.int64()}), pa.struct({"a": STRING}), STRING),
        (pa.dictionary(pa.int8(), STRING), STRING, STRING),
        (pa.dictionary(pa.int8(), STRING), pa.dictionary(pa.int8(), STRING), STRING),
    ],
)
def test_types_meet(first: Any, second: Any, merged: Any) -> None:
    assert unify_types(first, second) == merged
    if merged != pa.struct({"a": pa.int64(), "b": STRING}):  # fields keep their order of appearance
        assert unify_types(second, first) == merged


def test_columns_keep_their_order_and_missing_ones_are_null() -> None:
    first, second = pa.table({"a": [1], "b": ["x"]}), pa.table({"c": [True], "a": [2.5]})
    schema = unify_schemas([first.schema, second.schema])
    assert schema.names == ["a", "b", "c"]
    assert cast_table(first, schema).to_pylist() == [{"a": 1.0, "b": "x", "c": None}]
    assert cast_table(second, schema).to_pylist() == [{"a": 2.5, "b": None, "c": True}]
    assert unify_schemas([]) == pa.schema([])
    with pytest.raises(KeyError, match="the schema lacks: \\['c'\\]"):
        cast_table(second, first.schema)


def test_what_becomes_text_can_be_read_back() -> None:
    values: list[Any] = [
        [1, 2**62],
        [1.5, math.nan],
        [True, None],
        [[1, 2], []],
        [{"k": "v"}, None],
        [datetime.date(2020, 1, 2), None],
        [decimal.Decimal("1.50"), None],
        [b"\xff", None],
        ["plain", '"quoted"'],
    ]
    tables = [pa.table({"x": column}) for column in values]
    schema = unify_schemas(table.schema for table in tables)
    texts = [cast_table(table, schema).column("x").to_pylist() for table in tables]
    assert texts == [
        ["1", str(2**62)],
        ["1.5", None],
        ["true", None],
        ["[1, 2]", "[]"],
        ['{"k": "v"}', None],
        ["2020-01-02", None],
        ["1.50", None],
        ["/w==", None],
        ["plain", '"quoted"'],
    ]


def test_a_value_that_cannot_be_held_names_its_column() -> None:
    tables = [
        pa.table({"at": pa.array([datetime.datetime(3000, 1, 1)], pa.timestamp("s"))}),
        pa.table({"at": pa.array([0], pa.timestamp("ns"))}),
    ]
    schema = unify_schemas(table.schema for table in tables)
    with pytest.raises(InputError, match=r"column 'at' cannot become timestamp\[ns\]"):
        cast_table(tables[0], schema)


def test_text_of_odd_values() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert cell_text(None) is None
    assert cell_text(math.nan) is None
    assert cell_text(2**100) == str(2**100)
    assert cell_text(datetime.datetime(2020, 1, 2, 3)) == "2020-01-02T03:00:00"
    assert json_text({"a": [math.inf, 1]}) == '{"a": [null, 1]}'
    assert json_text({(1, 2): 3}) == '"{(1, 2): 3}"'
    assert json.loads(json_text(circle)) == "[[...]]"
    assert json_text({"at": datetime.date(2020, 1, 2), "b": b"\xff"}) == '{"at": "2020-01-02", "b": "/w=="}'


scalars = st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats() | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(columns=st.lists(st.lists(values, min_size=1, max_size=4), min_size=1, max_size=4))
def test_merging_loses_no_string_and_no_digit(columns: list[list[Any]]) -> None:
    tables = [table_from_columns({"x": column})[0] for column in columns]
    schema = unify_schemas(table.schema for table in tables)
    assert unify_schemas([unify_schemas([table.schema for table in tables[:2]]), *(t.schema for t in tables[2:])]) == (
        schema
    )
    for column, table in zip(columns, tables):
        merged = cast_table(table, schema)
        assert merged.schema.equals(schema)
        merged.validate(full=True)
        for value, found in zip(column, merged.column("x").to_pylist()):
            if isinstance(value, str):
                assert found == value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") or found == value
            elif isinstance(value, bool):
                assert found in (value, json.dumps(value))
            elif isinstance(value, int):
                # beside floats it may be written as one (0 as "0.0"), but never as another number
                assert found == value or (isinstance(found, str) and decimal.Decimal(found) == value)
            elif value is None:
                assert found is None
