"""Bring together tables whose types were inferred apart, without losing a character or a digit.

Types widen: null + X is X; ints and floats of any width meet in the narrowest type that holds both; lists and structs
are merged inside. What cannot meet becomes text: strings stay as they are, everything else is written as JSON.

An int64 column may hold numbers that a double cannot (beyond 2^53). `mark_wide_ints` notes that in the field's
metadata, so that merging with floats gives text instead of rounded numbers; the writers leave the note out.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from setpoint.errors import InputError

WIDE_INTS = b"setpoint.wide_ints"
EXACT_IN_DOUBLE = 2**53
MAX_DECIMAL_DIGITS = 76
MAX_INFERRED_FIELDS = 256  # an object with more keys than this is used as a map, and becomes JSON text
TIME_UNITS = ("s", "ms", "us", "ns")


def unify_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Merge schemas: columns in order of first appearance, each with a type that holds all of its values."""
    merged: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = merged.get(field.name)
            merged[field.name] = _bare(field) if known is None else _unify_fields(known, field)
    return pa.schema(list(merged.values()))


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give the table the columns and types of `schema`, which `unify_schemas` made from its own schema and others.

    A column that the table lacks is null. Raises KeyError when the table has a column that the schema lacks, and
    InputError for a value that its column cannot hold (a date beyond the range of nanoseconds).
    """
    extra = set(table.column_names) - set(schema.names)
    if extra:
        raise KeyError(f"columns that the schema lacks: {sorted(extra)}")
    if not schema.names:
        return table
    present = set(table.column_names)
    arrays = []
    for field in schema:
        if field.name not in present:
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)], type=field.type))
            continue
        try:
            arrays.append(cast_array(table.column(field.name), field.type))
        except pa.ArrowInvalid as error:
            raise InputError(f"column {field.name!r} cannot become {field.type}: {error}") from error
    return pa.Table.from_arrays(arrays, schema=schema)


def cast_array(array: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Cast one column to a type from `unify_types`; exact, except that NaN becomes null where it turns into text."""
    if array.type.equals(target):
        return array
    if is_text(target) and not is_text(array.type):
        return pa.chunked_array([pa.array(to_text(array), type=target)], type=target)
    try:
        return array.cast(target)
    except pa.ArrowNotImplementedError:  # some nested casts; the values take the detour through Python
        return pa.chunked_array([pa.array(array.to_pylist(), type=target)], type=target)


def unify_types(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds the values of both exactly; text when there is none."""
    first, second = plain_type(first), plain_type(second)
    if first.equals(second) or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    for rule in (_unify_numbers, _unify_text_or_binary, _unify_times, _unify_lists, _unify_structs):
        merged = rule(first, second)
        if merged is not None:
            return merged
    return pa.string()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Strip what only encodes: dictionaries, run-ends, views, and extension types become what they store."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are strings once decoded."""
    kind = plain_type(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_storable(kind: pa.DataType) -> bool:
    """Whether Parquet, Arrow and this module can all hold the (plain) type."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return bool(names) and len(set(names)) == len(names) and all(is_storable(field.type) for field in kind)
    if _is_list(kind):
        return is_storable(kind.value_type)
    if pa.types.is_map(kind):
        return is_storable(kind.key_type) and is_storable(kind.item_type)
    return not (pa.types.is_union(kind) or pa.types.is_interval(kind))


def num_fields(kind: pa.DataType) -> int:
    """How many struct fields a type has, at any depth."""
    if pa.types.is_struct(kind):
        return sum(1 + num_fields(field.type) for field in kind)
    return num_fields(kind.value_type) if _is_list(kind) else 0


def mark_wide_ints(field: pa.Field, array: pa.ChunkedArray) -> pa.Field:
    """Note on the field that `array` holds, at any depth, integers which a double cannot hold exactly."""
    if any(_has_wide_ints(chunk) for chunk in array.chunks):
        return field.with_metadata({WIDE_INTS: b"1"})
    return field


def _has_wide_ints(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        bounds = pc.min_max(array).as_py()
        return bounds["min"] is not None and (bounds["min"] < -EXACT_IN_DOUBLE or bounds["max"] > EXACT_IN_DOUBLE)
    if pa.types.is_struct(kind):
        return any(_has_wide_ints(child) for child in array.flatten())
    return _is_list(kind) and _has_wide_ints(array.flatten())


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return _has_floats(kind.value_type) if _is_list(kind) else bool(pa.types.is_floating(kind))


def to_text(array: pa.ChunkedArray | pa.Array) -> list[str | None]:
    """Text for each value: strings as they are, times and decimals in ISO form, everything else as JSON."""
    if _prints_itself(array.type):
        return [None if value is None else str(value) for value in array.cast(pa.string()).to_pylist()]
    return [cell_text(value) for value in array.to_pylist()]


def cell_text(value: Any) -> str | None:
    """Text of one Python value for a column of text: strings as they are, None and NaN as None, else JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json_text(value)
    text = _plain(value)
    return text if isinstance(text, str) else json_text(text)


def json_text(value: Any) -> str:
    """JSON of one Python value on one line; NaN and infinity, which JSON does not have, become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (ValueError, TypeError, RecursionError):  # NaN; keys that are no strings; a list that contains itself
        pass
    try:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_plain)
    except (ValueError, TypeError, RecursionError):
        return json.dumps(repr(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    for method in ("isoformat", "tolist"):
        if hasattr(value, method):
            return getattr(value, method)()
    return str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


def _prints_itself(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _bare(field: pa.Field) -> pa.Field:
    wide = {WIDE_INTS: b"1"} if WIDE_INTS in (field.metadata or {}) else None
    return pa.field(field.name, plain_type(field.type), metadata=wide)


def _unify_fields(known: pa.Field, field: pa.Field) -> pa.Field:
    field = _bare(field)
    is_wide = bool(known.metadata or field.metadata)
    merged = unify_types(known.type, field.type)
    if is_wide and _has_floats(merged):
        merged = pa.string()
    return pa.field(known.name, merged, metadata={WIDE_INTS: b"1"} if is_wide else None)


def _unify_numbers(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    pair = (first, second)
    if all(pa.types.is_integer(kind) for kind in pair):
        if all(pa.types.is_signed_integer(kind) for kind in pair) or all(
            pa.types.is_unsigned_integer(kind) for kind in pair
        ):
            return max(pair, key=lambda kind: int(kind.bit_width))
        return None if pa.uint64() in pair else pa.int64()
    if all(pa.types.is_floating(kind) for kind in pair):
        return max(pair, key=lambda kind: int(kind.bit_width))
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in pair):
        return pa.float64()
    if all(pa.types.is_decimal(kind) for kind in pair):
        scale = max(kind.scale for kind in pair)
        precision = scale + max(kind.precision - kind.scale for kind in pair)
        if precision <= MAX_DECIMAL_DIGITS:
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return None


def _unify_text_or_binary(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    pair = (first, second)
    if all(is_text(kind) for kind in pair):
        return pa.large_string()
    if all(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        for kind in pair
    ):
        return pa.large_binary()
    return pa.large_string() if any(pa.types.is_large_string(kind) for kind in pair) else None


def _unify_times(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    pair = (first, second)
    for check, make in (
        (pa.types.is_timestamp, lambda unit: pa.timestamp(unit, first.tz)),
        (pa.types.is_duration, pa.duration),
    ):
        if all(check(kind) for kind in pair):
            if getattr(first, "tz", None) != getattr(second, "tz", None):
                return None
            return make(max((kind.unit for kind in pair), key=TIME_UNITS.index))
    return None


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _unify_inner(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Merge what stands inside a list or struct; None where only text would do.

    Then the whole value becomes JSON text instead, in which every item keeps its kind.
    """
    merged = unify_types(first, second)
    kinds = [kind for kind in (first, second) if not pa.types.is_null(kind)]
    if is_text(merged) and not all(is_text(kind) for kind in kinds):
        return None
    return merged


def _unify_lists(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    if not (_is_list(first) and _is_list(second)):
        return None
    inner = _unify_inner(first.value_type, second.value_type)
    if inner is None:
        return None
    if pa.types.is_fixed_size_list(first) and pa.types.is_fixed_size_list(second):
        if first.list_size == second.list_size:
            return pa.list_(inner, first.list_size)
        return pa.list_(inner)
    if pa.types.is_large_list(first) or pa.types.is_large_list(second):
        return pa.large_list(inner)
    return pa.list_(inner)


def _unify_structs(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_struct(first) and pa.types.is_struct(second)):
        return None
    if not (is_storable(first) and is_storable(second)):
        return None
    merged = {field.name: field.type for field in first}
    for field in second:
        inner = _unify_inner(merged.get(field.name, field.type), field.type)
        if inner is None:
            return None
        merged[field.name] = inner
    struct = pa.struct([pa.field(name, kind) for name, kind in merged.items()])
    return struct if num_fields(struct) <= MAX_INFERRED_FIELDS else None
