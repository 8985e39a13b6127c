"""From results to the output's columns, beside the input's own.

A result column whose name the input has already gets the suffix `_out` (`label` stays the input's, `label_out` is the
model's; `label_out_2` if there is a `label_out` too), so nothing is ever overwritten. A prefix avoids that by choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from setpoint.domain.row import RowFailure, RowResult
from setpoint.runners.base import FieldKind, ResultField

NUM_TOKENS = "num_tokens"
TRUNCATED_TOKENS = "truncated_tokens"
ERROR = "error"
BOOKKEEPING = (NUM_TOKENS, TRUNCATED_TOKENS, ERROR)

Results = Sequence[RowResult | RowFailure]


def result_arrays(fields: Sequence[ResultField], results: Results) -> dict[str, pa.Array]:
    """Conventional name -> values [rows], in order; null where a row failed."""
    found: dict[str, pa.Array] = {}
    for field in fields:
        values = [None if isinstance(row, RowFailure) else row.values[field.name] for row in results]
        found[field.name] = _BUILDERS[field.kind](values, field)
    tokens = [None if isinstance(row, RowFailure) else row.num_tokens for row in results]
    truncated = [None if isinstance(row, RowFailure) else row.truncated_tokens for row in results]
    errors = [_printable(str(row)) if isinstance(row, RowFailure) else None for row in results]
    found[NUM_TOKENS] = pa.array(tokens, type=pa.int32())
    found[TRUNCATED_TOKENS] = pa.array(truncated, type=pa.int32())
    found[ERROR] = pa.array(errors, type=pa.string())
    return found


def output_names(fields: Sequence[ResultField], *, taken: Collection[str], prefix: str = "") -> dict[str, str]:
    """Conventional name -> name in the output, one that the input's columns `taken` do not have."""
    names: dict[str, str] = {}
    used = set(taken)
    for name in (*(field.name for field in fields), *BOOKKEEPING):
        wanted = prefix + name
        names[name] = _free_name(f"{wanted}_out", used) if wanted in used else wanted
        used.add(names[name])
    return names


def _free_name(wanted: str, used: Collection[str]) -> str:
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


def _printable(text: str) -> str:
    """Without lone surrogates, which no output format can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(kind: pa.DataType) -> Callable[[list[Any], ResultField], pa.Array]:
    return lambda values, field: pa.array(values, type=kind)


def _build_vectors(values: list[Any], field: ResultField) -> pa.Array:
    """Fixed-size lists [rows, size]; raises ValueError for a vector of another size."""
    size = _size_of(field)
    flat = np.zeros((len(values), size), dtype=np.float32)
    is_null = np.zeros(len(values), dtype=bool)
    for row, value in enumerate(values):
        if value is None:
            is_null[row] = True
        else:
            flat[row] = value
    mask = pa.array(is_null) if is_null.any() else None
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), size, mask=mask)


def _build_matrices(values: list[Any], field: ResultField) -> pa.Array:
    """Lists of fixed-size lists [rows, tokens, size]."""
    size = _size_of(field)
    present = [np.asarray(value, dtype=np.float32).reshape(-1, size) for value in values if value is not None]
    counts = [0 if value is None else len(value) for value in values]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    flat = np.concatenate(present).reshape(-1) if present else np.empty(0, dtype=np.float32)
    inner = pa.FixedSizeListArray.from_arrays(pa.array(flat, type=pa.float32()), size)
    is_null = pa.array([value is None for value in values], type=pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), inner, mask=is_null)


def _size_of(field: ResultField) -> int:
    if field.size is None:
        raise ValueError(f"the result column {field.name!r} is a {field.kind} without a size")
    return field.size


_ENTITY = pa.struct(
    [
        pa.field("entity_group", pa.string()),
        pa.field("score", pa.float32()),
        pa.field("word", pa.string()),
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
    ]
)

_BUILDERS: Mapping[FieldKind, Callable[[list[Any], ResultField], pa.Array]] = {
    FieldKind.STRING: _plain(pa.string()),
    FieldKind.STRINGS: _plain(pa.list_(pa.string())),
    FieldKind.FLOAT: _plain(pa.float32()),
    FieldKind.FLOATS: _plain(pa.list_(pa.float32())),
    FieldKind.VECTOR: _build_vectors,
    FieldKind.MATRIX: _build_matrices,
    FieldKind.INT: _plain(pa.int32()),
    FieldKind.INTS: _plain(pa.list_(pa.int32())),
    FieldKind.ENTITIES: _plain(pa.list_(_ENTITY)),
}
