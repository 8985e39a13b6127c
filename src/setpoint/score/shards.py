"""Shard files: Arrow, one record batch each, compressed where that is cheap."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from setpoint.score.durable import write_atomic


def write_shard(path: Path, table: pa.Table) -> int:
    """Write a shard in one step and return its size in bytes. The same table gives the same bytes. Raises OSError."""
    # A file holds one set of dictionaries; chunks of the table may each bring their own.
    whole = table.unify_dictionaries().combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)

    def write(file: object) -> None:
        with pa.ipc.new_file(file, whole.schema, options=options) as writer:
            writer.write_table(whole)

    return write_atomic(path, write)


def read_shard(path: Path) -> pa.Table:
    """Read a shard. Raises OSError, and ArrowInvalid for a damaged one."""
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def read_shard_schema(path: Path) -> pa.Schema:
    """Read a shard's schema alone. Raises OSError, and ArrowInvalid for a damaged one."""
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).schema
