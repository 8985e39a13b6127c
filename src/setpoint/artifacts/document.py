"""What all of them share: a schema number, a kind, writing that cannot be cut off, and errors that show the place."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from setpoint.errors import InputError, OutputError, nearest

SCHEMA = 1
T = TypeVar("T")


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """A reader of a frozen dataclass that takes no unknown keys, no text for a number, and no NaN."""
    config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)
    return TypeAdapter(with_config(config)(kind))


def to_document(kind: str, adapter: TypeAdapter[T], value: T) -> dict[str, Any]:
    """The JSON document of a value. Raises OutputError for a number that is NaN or infinite, which JSON has not."""
    for place, number in _not_finite(adapter.dump_python(value)):  # dumped as JSON, it would turn into null
        raise OutputError(f"the {kind} cannot be written: {place} is {number}, which JSON has no word for")
    return {"schema": SCHEMA, "kind": kind, **adapter.dump_python(value, mode="json")}


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write beside, sync, rename: the file is the old one or the new one. Raises OutputError."""
    try:
        handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(document, stream, indent=1, ensure_ascii=False, allow_nan=False)
                stream.write("\n")
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def read_document(path: Path, *, kind: str) -> dict[str, Any]:
    """Read a document of a kind; without its schema and kind. Raises InputError that says what it is instead."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    try:
        found = json.loads(text)
    except RecursionError:
        raise InputError(f"{path} is not a {kind} of setpoint: it is nested too deeply") from None
    except ValueError as error:
        is_cut = isinstance(error, json.JSONDecodeError) and _was_cut_off(text, error)
        why = "it was cut off" if is_cut else "it is not JSON"
        raise InputError(f"{path}: {why} ({error}); measure again, or take an older copy") from error
    if not isinstance(found, dict) or "kind" not in found or "schema" not in found:
        raise InputError(f"{path} is not a {kind} of setpoint: it has no schema and kind")
    if found["kind"] != kind:
        raise InputError(f"{path} has the kind {found['kind']!r}, and {kind!r} is wanted here")
    if type(found["schema"]) is not int:
        raise InputError(f"{path}: schema: a whole number is wanted, not {found['schema']!r}")
    if found["schema"] != SCHEMA:
        is_newer = found["schema"] > SCHEMA
        advice = "install a newer setpoint" if is_newer else "measure again with this one"
        raise InputError(f"{path} has schema {found['schema']}, this setpoint reads {SCHEMA}: {advice}")
    return {key: value for key, value in found.items() if key not in ("schema", "kind")}


def parse(path: Path, adapter: TypeAdapter[T], document: Mapping[str, Any]) -> T:
    """The value of a document. Raises InputError with the place and the value of the first thing wrong."""
    for place, number in _not_finite(document):
        raise InputError(f"{path}: {place}: a finite number is wanted, not {number}")
    try:
        return adapter.validate_json(json.dumps(document))  # as JSON: strict on types, yet lists may become tuples
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = _place(first["loc"])
        if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            known = _keys_beside(adapter, first["loc"])
            raise InputError(f"{path}: unknown key {place}{nearest(str(first['loc'][-1]), known)}") from error
        shown = "" if first["type"] == "missing" else f", not {first['input']!r}"[:200]
        raise InputError(f"{path}: {place}: {first['msg']}{shown}") from error


def _was_cut_off(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the text ends inside of what is wrong: a string without an end, half a word or half a number."""
    rest = text[error.pos :].rstrip()
    if error.msg.startswith("Unterminated string"):
        return "\n" not in rest
    if error.msg.startswith("Invalid \\u"):
        return re.search(r"\\u[0-9a-fA-F]{0,4}$", text) is not None
    is_half_a_number = re.fullmatch(r"-|\.|[eE][-+]?", rest) is not None
    return is_half_a_number or any(word.startswith(rest) for word in ("null", "true", "false"))  # or nothing at all


def _not_finite(value: object, location: tuple[int | str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Place and value of each number that is NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield _place(location), value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _not_finite(inner, (*location, str(key)))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _not_finite(inner, (*location, number))


def _place(location: tuple[int | str, ...]) -> str:
    place = ""
    for part in location:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    return place or "the document"


def _keys_beside(adapter: TypeAdapter[Any], location: tuple[int | str, ...]) -> list[str]:
    """Names of fields anywhere in the kind: enough to guess what was meant."""
    names: set[str] = set()

    def collect(schema: Any) -> None:
        if isinstance(schema, dict):
            names.update(schema.get("properties", {}))
            for value in schema.values():
                collect(value)
        elif isinstance(schema, list):
            for value in schema:
                collect(value)

    collect(adapter.json_schema())
    return sorted(names - {str(location[-1])})


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
