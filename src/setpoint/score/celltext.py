"""Cells as text, for JSON lines and CSV: whole columns at a time, so that a vector costs no Python objects."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from setpoint.score.sources.schema import is_text, plain_type

_quote = json.encoder.encode_basestring  # escapes what JSON must, leaves the rest readable


def json_column(array: pa.Array) -> pa.Array:
    """JSON of each value [rows], as strings without nulls.

    NaN and infinity, which JSON does not have, become null; floats have the shortest form that reads back the same;
    times and decimals are strings in ISO form, binary is base64, a map is an object where its keys are strings.
    """
    kind = array.type
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(array), type=pa.string())
    if pa.types.is_floating(kind):
        return _or_null(pc.if_else(pc.is_finite(array), _floats(array), pa.scalar(None, pa.string())))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _or_null(array.cast(pa.string()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array)
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        return _maps(array)
    texts = text_column(array).to_pylist()
    return pa.array(["null" if text is None else _quote(text) for text in texts], type=pa.string())


def text_column(array: pa.Array) -> pa.Array:
    """Text of each value [rows], as strings with nulls: strings as they are, NaN as `NaN`, lists and such as JSON."""
    kind = array.type
    if is_text(kind):
        return array
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(array), "NaN", _floats(array))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        encoded = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
        return pa.array(encoded, type=pa.string())
    if pa.types.is_nested(kind):
        return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), json_column(array))
    return array.cast(pa.string())


def plain_array(array: pa.Array) -> pa.Array:
    """Decode dictionaries and extension types."""
    kind = plain_type(array.type)
    return array if array.type.equals(kind) else array.cast(kind)


def _or_null(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, "null")


def _floats(array: pa.Array) -> pa.Array:
    """The shortest text of each float; `.0` marks a whole number as a float."""
    texts = array.cast(pa.string())
    is_whole = pc.match_substring_regex(texts, r"^-?\d+$")
    return pc.if_else(is_whole, pc.binary_join_element_wise(texts, ".0", ""), texts)


def _enclose(opening: str, array: pa.Array, closing: str) -> pa.Array:
    return pc.binary_join_element_wise(opening, array, closing, "")


def _lists(array: pa.Array) -> pa.Array:
    """Join the items of each list; `flatten` leaves out the items that lie behind a null."""
    lengths = pc.list_value_length(array)
    offsets = np.concatenate([[0], np.cumsum(pc.fill_null(lengths, 0).to_numpy())]).astype(np.int32)
    items = json_column(array.flatten())
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), ",")
    return pc.if_else(array.is_null(), "null", _enclose("[", joined, "]"))


def _structs(array: pa.Array) -> pa.Array:
    parts = [
        _enclose(f"{_quote(field.name)}: ", json_column(values), "")
        for field, values in zip(array.type, array.flatten())
    ]
    joined = pc.binary_join_element_wise(*parts, ", ") if parts else pa.array([""] * len(array))
    return pc.if_else(array.is_null(), "null", _enclose("{", joined, "}"))


def _maps(array: pa.Array) -> pa.Array:
    if not is_text(array.type.key_type):
        return json_column(array.cast(pa.list_(array.type.field(0).type)))
    texts = []
    for pairs in array.to_pylist():
        if pairs is None:
            texts.append("null")
            continue
        values = json_column(pa.array([value for _, value in pairs], type=array.type.item_type)).to_pylist()
        texts.append("{" + ", ".join(f"{_quote(key)}: {value}" for (key, _), value in zip(pairs, values)) + "}")
    return pa.array(texts, type=pa.string())
