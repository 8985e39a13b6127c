"""What all of them share: a schema number, a kind, writing that cannot be cut off, and errors that show the place."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from setpoint.errors import InputError, OutputError, nearest

SCHEMA = 1
T = TypeVar("T")


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """A reader of a frozen dataclass that takes no unknown keys, and no NaN for a number."""
    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(kind))


def to_document(kind: str, adapter: TypeAdapter[T], value: T) -> dict[str, Any]:
    """The JSON document of a value."""
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
    except ValueError as error:
        is_cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip())
        why = "it was cut off" if is_cut else "it is not JSON"
        raise InputError(f"{path}: {why} ({error}); measure again, or take an older copy") from error
    if not isinstance(found, dict) or "kind" not in found or "schema" not in found:
        raise InputError(f"{path} is not a {kind} of setpoint: it has no schema and kind")
    if found["kind"] != kind:
        raise InputError(f"{path} has the kind {found['kind']!r}, and {kind!r} is wanted here")
    if found["schema"] != SCHEMA:
        is_newer = isinstance(found["schema"], int) and found["schema"] > SCHEMA
        advice = "install a newer setpoint" if is_newer else "measure again with this one"
        raise InputError(f"{path} has schema {found['schema']}, this setpoint reads {SCHEMA}: {advice}")
    return {key: value for key, value in found.items() if key not in ("schema", "kind")}


def parse(path: Path, adapter: TypeAdapter[T], document: Mapping[str, Any]) -> T:
    """The value of a document. Raises InputError with the place and the value of the first thing wrong."""
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = _place(first["loc"])
        if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            known = _keys_beside(adapter, first["loc"])
            raise InputError(f"{path}: unknown key {place}{nearest(str(first['loc'][-1]), known)}") from error
        shown = "" if first["type"] == "missing" else f", not {first['input']!r}"[:200]
        raise InputError(f"{path}: {place}: {first['msg']}{shown}") from error


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
