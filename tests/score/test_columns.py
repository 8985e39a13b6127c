"""Results become columns of the right types and names; rows have digests that tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.domain.row import Reason, RowFailure, RowResult
from setpoint.runners.base import FieldKind, ResultField
from setpoint.score.columns import output_names, result_arrays
from setpoint.score.digests import digest_rows
from setpoint.score.ledger import MAX_EXAMPLES, Ledger, total
from setpoint.score.sources.base import Chunk

FAILURE = RowFailure(reason=Reason.NOT_TEXT, detail="a lone \ud800 surrogate")
ENTITY = {"entity_group": "PER", "score": 0.5, "word": "Ada", "start": 0, "end": 3}


def field(kind: FieldKind, size: int | None = None) -> ResultField:
    return ResultField(name="x", kind=kind, size=size)


def result(value: Any) -> RowResult:
    return RowResult(values={"x": value}, num_tokens=7, truncated_tokens=2)


@pytest.mark.parametrize(
    ("kind", "size", "value", "expected", "type_"),
    [
        (FieldKind.STRING, None, "yes", "yes", pa.string()),
        (FieldKind.STRINGS, None, ["a", "b"], ["a", "b"], pa.list_(pa.string())),
        (FieldKind.FLOAT, None, 0.5, 0.5, pa.float32()),
        (FieldKind.FLOAT, None, np.float32(0.5), 0.5, pa.float32()),
        (FieldKind.FLOATS, None, [0.5, 1.0], [0.5, 1.0], pa.list_(pa.float32())),
        (FieldKind.FLOATS, None, np.array([0.5], dtype=np.float32), [0.5], pa.list_(pa.float32())),
        (FieldKind.INT, None, 3, 3, pa.int32()),
        (FieldKind.INTS, None, [3, 1], [3, 1], pa.list_(pa.int32())),
        (FieldKind.VECTOR, 2, np.array([1, 2], dtype=np.float32), [1, 2], pa.list_(pa.float32(), 2)),
        (FieldKind.MATRIX, 2, np.ones((3, 2), np.float32), [[1, 1]] * 3, pa.list_(pa.list_(pa.float32(), 2))),
        (FieldKind.ENTITIES, None, [ENTITY], [ENTITY], None),
        (FieldKind.ENTITIES, None, [], [], None),
    ],
)
def test_every_kind_of_result(kind: FieldKind, size: int | None, value: Any, expected: Any, type_: Any) -> None:
    arrays = result_arrays([field(kind, size)], [result(value), FAILURE, result(value)])
    assert arrays["x"].to_pylist() == [expected, None, expected]
    if type_ is not None:
        assert arrays["x"].type == type_
    assert arrays["num_tokens"].to_pylist() == [7, None, 7]
    assert arrays["truncated_tokens"].to_pylist() == [2, None, 2]
    assert arrays["error"].to_pylist() == [None, "not_text: a lone \\ud800 surrogate", None]
    empty = result_arrays([field(kind, size)], [])
    assert {name: array.type for name, array in empty.items()} == {name: a.type for name, a in arrays.items()}
    assert result_arrays([field(kind, size)], [FAILURE] * 2)["x"].null_count == 2


def test_a_vector_of_another_size_is_no_result() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        result_arrays([field(FieldKind.VECTOR, 3)], [result(np.zeros(2))])


@given(taken=st.lists(st.sampled_from(["x", "x_out", "x_out_2", "error", "p_x", "text"]), unique=True))
def test_names_never_collide(taken: list[str]) -> None:
    for prefix in ("", "p_"):
        names = output_names([field(FieldKind.STRING)], taken=taken, prefix=prefix)
        shown = list(names.values())
        assert len({*taken, *shown}) == len(taken) + len(shown)
    assert output_names([field(FieldKind.STRING)], taken=[])["x"] == "x"


def chunk_of(columns: dict[str, Any], **more: Any) -> Chunk:
    return Chunk(first_row=0, table=pa.table(columns), **more)


def digests(columns: dict[str, Any], names: list[str] | None = None, **more: Any) -> list[int]:
    found, sizes = digest_rows(chunk_of(columns, **more), names or list(columns))
    assert len(sizes) == len(found)
    return [int(digest) for digest in found]


def test_digests_tell_rows_apart() -> None:
    base = digests({"a": ["x", "y", None, ""], "n": [1, 2, 3, 4]})
    assert len(set(base)) == 4
    assert digests({"a": ["x", "z", None, ""], "n": [1, 2, 3, 4]})[1] != base[1]
    assert digests({"a": ["x", "y", "", None], "n": [1, 2, 3, 4]})[2:] != base[2:]
    assert digests({"a": ["xy"], "b": ["z"]}) != digests({"a": ["x"], "b": ["yz"]})


def test_digests_do_not_depend_on_types_and_chunks() -> None:
    numbers = digests({"a": [1, 20, None]})
    assert digests({"a": ["1", "20", None]}) == numbers
    assert digests({"a": pa.array(["1", "20", None], pa.large_string())}) == numbers
    assert digests({"a": pa.array(["1", "20", None]).dictionary_encode()}) == numbers
    assert digests({"a": pa.chunked_array([["1"], ["20", None]])}) == numbers
    whole = pa.table({"a": ["0", "1", "20", None]})
    assert [int(d) for d in digest_rows(Chunk(first_row=0, table=whole.slice(1)), ["a"])[0]] == numbers


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0, 2.0], [3.0], None, []], pa.list_(pa.float32())),
        pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int64(), 2)),
        pa.array([["a"], ["b", None], None, []]),
        pa.array([{"k": 1}, {"k": 2}, None, {"k": None}]),
        pa.array([b"\xff", b"", None, b"x"]),
        pa.array([1.5, float("nan"), None, -0.0]),
        pa.array([True, False, None, True]),
        pa.array([0, 1, None, 2], pa.timestamp("us", tz="UTC")),
        pa.nulls(4),
    ],
)
def test_any_type_has_digests(column: pa.Array) -> None:
    whole = digests({"a": column})
    assert digests({"a": column}) == whole
    assert digests({"a": column.slice(1)}) == whole[1:]
    if pa.types.is_nested(column.type):
        assert len(set(whole)) == 4


def test_what_the_table_cannot_say_is_in_the_digest() -> None:
    columns = {"a": ["x\ufffd", "y"]}
    base = digests(columns)
    assert digests(columns, raw={"a": {0: "x\ud800"}})[0] != base[0]
    assert digests(columns, failures={1: FAILURE})[1] != base[1]
    assert digests(columns, absent={"a": frozenset({1})})[1] != base[1]
    assert digests(columns, names=["a", "missing"]) == base


def test_ledgers_add_up_and_survive_json() -> None:
    ledgers = []
    for first in range(0, 40, 10):
        ledger = Ledger()
        for row in range(first, first + 10):
            if row % 3 == 0:
                ledger.count_failure(RowFailure(reason=Reason.EMPTY_TEXT), row=row, where=f"line {row}")
            else:
                ledger.count_result(result("x"), is_windowed=row % 2 == 0)
        ledgers.append(ledger)
    whole = total(ledgers)
    assert whole.num_rows == 40
    assert whole.num_failed == 14
    assert whole.truncated_rows == 26
    assert whole.truncated_tokens == 52
    assert whole.windowed_rows == 13
    assert [example.row for example in whole.examples[Reason.EMPTY_TEXT]] == [1, 4, 7, 10, 13][:MAX_EXAMPLES]
    assert Ledger.from_json(whole.to_json()) == whole
    with pytest.raises(ValueError, match="not a ledger"):
        Ledger.from_json({"rows": 1})
