"""From Python values, as CSV, JSON and callers bring them, to Arrow columns that can be stored and written.

Arrow holds neither lone surrogates nor columns of mixed kinds, so what it cannot hold is kept beside the column as
`raw` values and the column gets the nearest thing: U+FFFD for what is not Unicode, JSON text for what is not a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from setpoint.score.sources.schema import (
    MAX_INFERRED_FIELDS,
    cast_array,
    cell_text,
    is_storable,
    json_text,
    mark_wide_ints,
    num_fields,
    plain_type,
)

SURROGATE = re.compile("[\ud800-\udfff]")
PLAIN_KINDS = {str, int, float, bool, list, dict, bytes}
MIN_MAP_KEYS = 16
MAX_SPARSITY = 4  # cells of a struct for each value in it
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Replace every lone surrogate by U+FFFD; text that is valid comes back as it is."""
    return SURROGATE.sub(REPLACEMENT, text)


def has_surrogates(text: str) -> bool:
    """Whether the text holds a lone surrogate: it cannot be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def column_from_values(values: Sequence[Any]) -> tuple[pa.Array, dict[int, Any]]:
    """Infer one column.

    Returns the array, and the values that it does not hold as they came, by position. Strings, ints that fit in 64
    bits, floats, ints with floats (where exact), bools, and whatever Arrow infers without loss get their own type;
    everything else becomes text.
    """
    kinds = {type(value) for value in values if value is not None}
    if not kinds <= PLAIN_KINDS:
        values = [_unwrap(value) for value in values]
        kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values)), {}
    if kinds <= {str}:
        return _text_column(values)
    if kinds == {str, float} and all(math.isnan(value) for value in values if type(value) is float):
        return _text_column(values)
    if (len(kinds) == 1 and not _are_maps(values)) or kinds == {int, float}:
        array, raw = _arrow_column(values)
        if array is not None:
            return array, raw
    return _text_column(values)


def table_from_columns(columns: Mapping[str, Sequence[Any]]) -> tuple[pa.Table, dict[str, dict[int, Any]]]:
    """Infer a table from Python columns of one length; returns it with the raw values by column."""
    arrays, fields, raw = [], [], {}
    for name, values in columns.items():
        array, kept = column_from_values(values)
        arrays.append(array)
        fields.append(mark_wide_ints(pa.field(name, array.type), pa.chunked_array([array])))
        if kept:
            raw[name] = kept
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), raw


def tidy_table(table: pa.Table) -> tuple[pa.Table, dict[str, dict[int, Any]]]:
    """Make a table from a file or database fit for storing; returns it with the raw values by column.

    Metadata goes (a file's notes for its own readers no longer fit once there are more columns), extension types
    become what they store, strings with invalid UTF-8 get U+FFFD, and what Parquet has no type for becomes text.
    """
    arrays, fields, raw = [], [], {}
    for name, column in zip(table.column_names, table.columns):
        column, kept = _tidy_column(column)
        arrays.append(column)
        fields.append(mark_wide_ints(pa.field(name, column.type), column))
        if kept:
            raw[name] = kept
    if not arrays:
        return table, raw  # pyarrow would forget the number of rows
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), raw


def _unwrap(value: Any) -> Any:
    """Turn numpy's and pandas' scalars into Python's own; NaT and NA into None."""
    module = type(value).__module__
    if module == "builtins":
        return value
    if type(value).__name__ in ("NAType", "NaTType") and module.partition(".")[0] == "pandas":
        return None
    if module == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return value.item()
    return str(value) if isinstance(value, str) else value


def _text_column(values: Sequence[Any]) -> tuple[pa.Array, dict[int, Any]]:
    raw = {i: value for i, value in enumerate(values) if value is not None and type(value) is not str}
    texts = [value if type(value) is str else cell_text(value) for value in values]
    try:
        return pa.array(texts, type=pa.string()), raw
    except UnicodeEncodeError:
        for i, text in enumerate(texts):
            if text is not None and has_surrogates(text):
                raw[i] = values[i]
                texts[i] = clean_text(text)
        return pa.array(texts, type=pa.string()), raw


def _are_maps(values: Sequence[Any]) -> bool:
    """Whether objects have so few keys in common that a struct of all of them would be mostly nulls."""
    objects = [value for value in values if isinstance(value, Mapping)]
    num_keys = len({key for value in objects for key in value})
    return num_keys > MIN_MAP_KEYS and num_keys * len(objects) > MAX_SPARSITY * sum(map(len, objects))


def _arrow_column(values: Sequence[Any]) -> tuple[pa.Array | None, dict[int, Any]]:
    """Let Arrow infer the type; None where it can't, or where no file format could hold the result."""
    raw: dict[int, Any] = {}
    try:
        array = pa.array(values)
    except UnicodeEncodeError:  # a lone surrogate inside a list or object
        cleaned = [_clean_nested(value) for value in values]
        raw = {i: value for i, value in enumerate(values) if value != cleaned[i]}
        return (_arrow_column(cleaned)[0], raw) if raw else (None, raw)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None, raw
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array.type, pa.BaseExtensionType) or not is_storable(array.type):
        return None, raw
    return (array, raw) if num_fields(array.type) <= MAX_INFERRED_FIELDS else (None, raw)


def _tidy_column(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[int, Any]]:
    kind = plain_type(column.type)
    if is_storable(kind):
        column = cast_array(column, kind)
    else:
        texts = [None if value is None else clean_text(json_text(value)) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, type=pa.string())]), {}
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return _repair(column)
    return column, {}


def _repair(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[int, Any]]:
    """Rebuild a column whose strings are not all UTF-8. Raises ArrowInvalid when it is broken in another way."""
    kind = plain_type(column.type)
    values = [_decode(value, kind) for value in column.cast(_as_binary(kind)).to_pylist()]
    raw, cleaned = {}, []
    for i, value in enumerate(values):
        clean = _clean_nested(value)
        cleaned.append(clean)
        if clean != value:
            raw[i] = value
    return pa.chunked_array([pa.array(cleaned, type=kind)], type=kind), raw


def _as_binary(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_binary(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_binary(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_as_binary(kind.value_type))
    return kind


def _decode(value: Any, kind: pa.DataType) -> Any:
    """Decode the binary values that `_as_binary` put in the place of strings of the type `kind`."""
    if value is None:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.decode("utf-8", "surrogateescape")
    if pa.types.is_struct(kind):
        return {field.name: _decode(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_decode(item, kind.value_type) for item in value]
    return value


def _clean_nested(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean_nested(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean_nested(item) for key, item in value.items()}
    return value
