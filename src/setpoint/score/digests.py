"""A digest and a size for each row of a chunk, over everything of it that the output keeps or the model reads.

The digest depends on the values as text, not on how a reader typed or chunked them: 1 and "1" are the same.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from setpoint.score.sources.base import Chunk

_SEPARATOR = b"\x1f"
_NULL = b"\x1e\x00null"
_DIGEST_BYTES = 8


def digest_rows(chunk: Chunk, columns: Sequence[str]) -> tuple[npt.NDArray[np.uint64], list[int]]:
    """Return digests [rows] and sizes in bytes of the rows' cells in `columns`, absent ones being null."""
    values = _joined(chunk, columns)
    for offset, extra in _beyond_the_table(chunk, columns).items():
        values[offset] += extra
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(value, digest_size=_DIGEST_BYTES).digest() for value in values])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64), [len(value) for value in values]


def _joined(chunk: Chunk, columns: Sequence[str]) -> list[bytes]:
    """Each row's cells as bytes, one after the other."""
    present = [column for column in columns if column in chunk.table.column_names]
    if not present or not chunk.num_rows:
        return [b""] * chunk.num_rows
    cells = [_as_binary(chunk.table.column(column)) for column in present]
    separator = pa.scalar(_SEPARATOR, pa.large_binary())
    joined = pc.binary_join_element_wise(*cells, separator, null_handling="replace", null_replacement=_NULL)
    values: list[bytes] = joined.to_pylist()
    return values


def _as_binary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(column), pa.large_binary())])
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_large_binary(kind):
        return column
    if pa.types.is_nested(kind):
        return _nested_as_binary(column)
    try:
        return column.cast(pa.large_string()).cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return _nested_as_binary(column)


def _nested_as_binary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    cells: list[bytes | None] = []
    for array in column.chunks:
        cells.extend(
            _list_bytes(array) or [None if cell is None else repr(cell).encode() for cell in array.to_pylist()]
        )
    return pa.chunked_array([pa.array(cells, type=pa.large_binary())])


def _list_bytes(array: pa.Array) -> list[bytes | None] | None:
    """The cells of a column of vectors of plain numbers, such as embeddings, without making Python numbers of them."""
    kind = array.type
    is_fixed = pa.types.is_fixed_size_list(kind)
    if not (is_fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return None
    if not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        return None
    if is_fixed:
        offsets = (np.arange(len(array) + 1) + array.offset) * kind.list_size
    else:
        offsets = array.offsets.to_numpy(zero_copy_only=False)
    inner = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if inner.null_count:
        return None
    data = inner.to_numpy(zero_copy_only=False).tobytes()
    width = inner.type.bit_width // 8
    ends = ((offsets - offsets[0]) * width).tolist()
    is_null = array.is_null().to_pylist()
    return [None if null else data[start:end] for null, (start, end) in zip(is_null, itertools.pairwise(ends))]


def _beyond_the_table(chunk: Chunk, columns: Sequence[str]) -> dict[int, bytes]:
    """What the table cannot say of a row: unreadable records, values as they came, fields that are absent."""
    extras: dict[int, bytes] = {}

    def add(offset: int, text: str) -> None:
        extras[offset] = extras.get(offset, b"") + _SEPARATOR + text.encode("utf-8", "surrogatepass")

    for offset, failure in chunk.failures.items():
        add(offset, str(failure))
    for column in columns:
        for offset, value in chunk.raw.get(column, {}).items():
            add(offset, f"{column}={_stable_repr(value)}")
        for offset in sorted(chunk.absent.get(column, ())):
            add(offset, f"{column} is absent")
    return extras


def _stable_repr(value: Any) -> str:
    """A repr without addresses, which differ from process to process."""
    return repr(value) if isinstance(value, str | bytes | int | float | bool | list | dict) else type(value).__name__
