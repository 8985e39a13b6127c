"""The front door: from what a person wrote to a Source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from setpoint.errors import InputError, UsageError
from setpoint.score.sources.base import Source
from setpoint.score.sources.columnar import TableFiles
from setpoint.score.sources.find import Format, Found, find_files
from setpoint.score.sources.recordfiles import RecordFiles
from setpoint.score.sources.sql import DUCKDB_ENDINGS, DUCKDB_SCHEME, AdbcSource, DuckDBSource, is_database

Spec: TypeAlias = "str | os.PathLike[str]"


def open_source(spec: Spec | Sequence[Spec], *, format: str | None = None, query: str | None = None) -> Source:
    """Open the input that `spec` names: a file, folder, glob, URL, `-` for stdin, or a database; or several files.

    `format` overrides what the ending says (and says it for stdin); `query` chooses the rows of a database, and makes
    any URL with an ADBC driver of that scheme a database. See `find_files` for the kinds of files, `DuckDBSource` and
    `AdbcSource` for databases. Raises InputError for files that are not there, UsageError for options that don't fit.
    """
    if not isinstance(spec, str | os.PathLike):
        return _open_files(_join([find_files(os.fspath(part), format_name=format) for part in spec]))
    name = os.fspath(spec)
    is_url = "://" in name
    if is_database(name) or (query is not None and is_url):
        if format is not None:
            raise UsageError(f"--input-format {format} does not go with a database")
        if name.partition("://")[0] == DUCKDB_SCHEME or name.lower().endswith(DUCKDB_ENDINGS):
            return DuckDBSource(name, query)
        return AdbcSource(name, query)
    if query is not None:
        raise UsageError(f"--query is for databases, and {name} is not one; use a .duckdb file or a URL")
    return _open_files(find_files(name, format_name=format))


def _open_files(found: Found) -> Source:
    if found.format in (Format.PARQUET, Format.ARROW):
        return TableFiles(found)
    return RecordFiles(found)


def _join(parts: Sequence[Found]) -> Found:
    if not parts:
        raise UsageError("no input was named")
    kinds = {part.format for part in parts}
    if len(kinds) > 1:
        raise InputError(f"the inputs are of several formats: {', '.join(sorted(kinds))}; give one format at a time")
    files = tuple(file for part in parts for file in part.files)
    name = parts[0].name if len(parts) == 1 else f"{parts[0].name} and {len(parts) - 1} more"
    notes = tuple(note for part in parts for note in part.notes)
    return Found(name=name, files=files, format=parts[0].format, notes=notes)
