"""Output formats: Parquet, Arrow, JSON lines, CSV and TSV, the last three also compressed.

The same rows give the same bytes, however they come in tables: what a file is made of (row groups, batches, lines)
is cut by the rows themselves. Memory is bounded by one incoming table and one row group.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from setpoint.errors import UsageError, nearest, unknown
from setpoint.score.celltext import json_column, plain_array, text_column
from setpoint.score.sources.rows import Piece, empty_table, group_rows
from setpoint.score.sources.schema import cast_table, unify_schemas

__all__ = [
    "Kind",
    "OutputFormat",
    "cast_table",
    "merge",
    "output_format",
    "read_table",
    "unify_schemas",
    "write_table",
    "write_tables",
]

PathLike: TypeAlias = "str | os.PathLike[str]"

GROUP_ROWS = 65_536
GROUP_BYTES = 64 * 1024 * 1024
TEXT_ROWS = 1_024  # turned into text at once
TEXT_BYTES = 4 * 1024 * 1024
EMPTY_CELL = '""'  # stands alone on its line: a blank line would be no row
GZIP_LEVEL = 6
ZSTD_LEVEL = 3


class Kind(StrEnum):
    """File formats that results are written in."""

    PARQUET = "parquet"
    ARROW = "arrow"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"


ENDINGS = {
    ".parquet": Kind.PARQUET,
    ".pq": Kind.PARQUET,
    ".arrow": Kind.ARROW,
    ".feather": Kind.ARROW,
    ".jsonl": Kind.JSONL,
    ".ndjson": Kind.JSONL,
    ".csv": Kind.CSV,
    ".tsv": Kind.TSV,
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
COMPRESSED_INSIDE = (Kind.PARQUET, Kind.ARROW)
DELIMITERS = {Kind.CSV: ",", Kind.TSV: "\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """A format, and how its bytes are compressed (`gzip`, `zstd`, None)."""

    kind: Kind
    compression: str | None = None

    @property
    def ending(self) -> str:
        """The usual ending of such a file, with its dot."""
        suffix = {"gzip": ".gz", "zstd": ".zst", None: ""}[self.compression]
        return f".{self.kind}{suffix}"

    def __str__(self) -> str:
        return self.ending.removeprefix(".")


def output_format(path: PathLike, *, name: str | None = None) -> OutputFormat:
    """Tell the format by the output's ending, or by `name` (`parquet`, `jsonl.gz`, ...) where that is given.

    Raises UsageError that names the nearest known one.
    """
    text = f"x.{name.strip().lstrip('.')}" if name is not None else os.fspath(path)
    pure = Path(text.lower())
    compression = COMPRESSIONS.get(pure.suffix)
    if compression is not None:
        pure = pure.with_suffix("")
    kind = ENDINGS.get(pure.suffix)
    if kind is None and name is not None:
        raise UsageError(unknown("output format", name, list(Kind)))
    if kind is None:
        raise UsageError(
            f"cannot tell the output's format from the ending {pure.suffix!r} of {os.fspath(path)}"
            f"{nearest(pure.suffix, ENDINGS)}; known endings: {', '.join(ENDINGS)} (text also with .gz or .zst)"
        )
    if compression is not None and kind in COMPRESSED_INSIDE:
        raise UsageError(f"{kind} is compressed inside; leave out {Path(text).suffix!r}: {Path(text).with_suffix('')}")
    return OutputFormat(kind=kind, compression=compression)


def write_table(table: pa.Table, path: PathLike, form: OutputFormat) -> int:
    """Write one table to a file; returns the number of rows. Raises OSError."""
    with open(path, "wb") as sink:
        return write_tables([table], sink, form, table.schema)


def merge(paths: Sequence[PathLike], out: PathLike, form: OutputFormat, schema: pa.Schema) -> int:
    """Write the rows of all shards (Arrow or Parquet files) in order to one file of `schema`; returns their number.

    `schema` comes from `unify_schemas` over the shards' schemas. Raises OSError, and ArrowInvalid for a damaged shard.
    """
    with open(out, "wb") as sink:
        return write_tables((read_table(path) for path in paths), sink, form, schema)


def read_table(path: PathLike) -> pa.Table:
    """Read a whole Arrow or Parquet file. Raises OSError, and ArrowInvalid for a damaged one."""
    with pa.OSFile(os.fspath(path)) as source:
        if source.read(6) == b"ARROW1":
            source.seek(0)
            return pa.ipc.open_file(source).read_all()
        source.seek(0)
        return pq.ParquetFile(source).read()


def write_tables(tables: Iterable[pa.Table], sink: BinaryIO, form: OutputFormat, schema: pa.Schema) -> int:
    """Write tables one after the other as one file of `schema`; returns the number of rows. Raises OSError.

    The sink is flushed and left open.
    """
    # field metadata was for merging; what stays is the types
    bare = pa.schema([pa.field(field.name, field.type) for field in schema])
    pieces = (Piece(cast_table(table, bare), "", 1) for table in tables)
    with _compressed(sink, form.compression) as target:
        match form.kind:
            case Kind.PARQUET:
                num_rows = _write_parquet(pieces, target, bare)
            case Kind.ARROW:
                num_rows = _write_arrow(pieces, target, bare)
            case Kind.JSONL:
                num_rows = _write_jsonl(pieces, target)
            case Kind.CSV | Kind.TSV:
                num_rows = _write_delimited(pieces, target, bare, DELIMITERS[form.kind])
    sink.flush()
    return num_rows


@contextlib.contextmanager
def _compressed(sink: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    if compression == "gzip":
        # without a name and a time, so that the same rows give the same bytes
        with gzip.GzipFile(filename="", mode="wb", fileobj=sink, compresslevel=GZIP_LEVEL, mtime=0) as target:
            yield cast("BinaryIO", target)
    elif compression == "zstd":
        with zstandard.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(sink, closefd=False) as target:
            yield cast("BinaryIO", target)
    else:
        yield sink


def _groups(pieces: Iterable[Piece], max_rows: int, max_bytes: int) -> Iterator[pa.Table]:
    for group in group_rows(pieces, max_rows=max_rows, max_bytes=max_bytes):
        tables = [piece.table for piece in group]
        if tables[0].num_columns:
            yield pa.concat_tables(tables).combine_chunks()
        else:  # joining would lose the number of rows
            yield empty_table(sum(table.num_rows for table in tables))


def _write_parquet(pieces: Iterable[Piece], sink: BinaryIO, schema: pa.Schema) -> int:
    num_rows = 0
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[path for field in schema for path in _dictionary_paths(field.name, field.type)],
    )
    with writer:
        for group in _groups(pieces, GROUP_ROWS, GROUP_BYTES):
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            num_rows += group.num_rows
    return num_rows


def _dictionary_paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Leaves worth a dictionary of distinct values: all but floats, of which no two are equal in a vector."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _dictionary_paths(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _dictionary_paths(f"{path}.key_value.key", kind.key_type)
        yield from _dictionary_paths(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _dictionary_paths(f"{path}.list.element", kind.value_type)
    elif not pa.types.is_floating(kind):
        yield path


def _write_arrow(pieces: Iterable[Piece], sink: BinaryIO, schema: pa.Schema) -> int:
    num_rows = 0
    with pa.ipc.new_file(sink, schema) as writer:
        for group in _groups(pieces, GROUP_ROWS, GROUP_BYTES):
            # taken, so that what lies behind nulls and beyond the end is zero, not what happened to be in the buffers
            whole = group.take(pa.array(range(group.num_rows), pa.int64())) if group.num_columns else group
            writer.write_table(whole.combine_chunks(), max_chunksize=max(1, group.num_rows))
            num_rows += group.num_rows
    return num_rows


def _write_jsonl(pieces: Iterable[Piece], sink: BinaryIO) -> int:
    num_rows = 0
    for table in _groups(pieces, TEXT_ROWS, TEXT_BYTES):
        keys = [json_column(pa.array([name]))[0].as_py() for name in table.column_names]
        columns = [json_column(plain_array(_whole(column))).to_pylist() for column in table.columns]
        lines = zip(*columns) if columns else [()] * table.num_rows
        for cells in lines:
            fields = ", ".join(f"{key}: {cell}" for key, cell in zip(keys, cells))
            sink.write(f"{{{fields}}}\n".encode())
        num_rows += table.num_rows
    return num_rows


def _write_delimited(pieces: Iterable[Piece], sink: BinaryIO, schema: pa.Schema, delimiter: str) -> int:
    num_rows = 0
    sink.write((delimiter.join(_quoted(name, delimiter) for name in schema.names) + "\n").encode())
    for table in _groups(pieces, TEXT_ROWS, TEXT_BYTES):
        columns = [text_column(plain_array(_whole(column))).to_pylist() for column in table.columns]
        for cells in zip(*columns):
            line = delimiter.join("" if cell is None else _quoted(cell, delimiter) for cell in cells)
            sink.write((line or EMPTY_CELL).encode() + b"\n")
        num_rows += table.num_rows
    return num_rows


def _quoted(cell: str, delimiter: str) -> str:
    """Quote a cell where it must be, as RFC 4180 says."""
    if any(sign in cell for sign in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _whole(column: pa.ChunkedArray) -> Any:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
