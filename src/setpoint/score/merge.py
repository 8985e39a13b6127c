"""Put the finished shards together as the output, in one step that either happened or did not.

The output is built beside the shards and renamed into its place. Shards are read one at a time, so memory does not
grow with the output.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from setpoint.errors import JobStopped
from setpoint.runners.base import ResultField
from setpoint.score.columns import BOOKKEEPING, output_names
from setpoint.score.durable import fsync_folder, rename_durable
from setpoint.score.formats import OutputFormat, output_format, write_tables
from setpoint.score.rows import RESULT_MARK, common_schema, fit_table
from setpoint.score.store import JobStore
from setpoint.score.target import Target

FILE_ROWS = 1_000_000  # of each file of an output that is a folder, or
FILE_BYTES = 512 * 2**20  # in memory, whichever comes first
_MERGED = "merged"
_REPLACED = "replaced"


def merge(
    store: JobStore, fields: Sequence[ResultField], *, prefix: str, tick: Callable[[], None] = lambda: None
) -> dict[str, str]:
    """Write the output; returns the names that the result columns have there. `tick` is called between shards.

    Raises OSError, and JobStopped if rows got lost, which would be an error in this program.
    """
    target = store.target
    layout = _Layout(store, fields, prefix=prefix)
    merged = target.parts / _MERGED
    store.begin_merge()
    _remove(merged)
    form = output_format(target.path, name=target.output_format)
    tables = layout.tables(tick)
    if target.is_folder:
        num_rows = _write_folder(merged, form, layout.schema, tables)
    else:
        num_rows = _write_file(merged, form, layout.schema, tables)
    if num_rows != store.num_rows_done:
        raise JobStopped(f"{num_rows} rows were written of {store.num_rows_done}: a bug of setpoint, please report it")
    _put_in_place(merged, target)
    return layout.names


class _Layout:
    """The output's schema, and shards brought to it."""

    def __init__(self, store: JobStore, fields: Sequence[ResultField], *, prefix: str) -> None:
        self._store = store
        schemas = list(store.schemas())
        self._common = common_schema([_originals(schema) for schema in schemas])
        self._order = [*(field.name for field in fields), *BOOKKEEPING]
        self.names = output_names(fields, taken=self._common.names, prefix=prefix)
        # Notes for our own use stay with the shards.
        originals = [pa.field(field.name, field.type, nullable=field.nullable) for field in self._common]
        results = [pa.field(self.names[name], schemas[0].field(RESULT_MARK + name).type) for name in self._order]
        self.schema = pa.schema([*originals, *results], metadata=self._common.metadata)

    def tables(self, tick: Callable[[], None]) -> Iterator[pa.Table]:
        """The rows in input order, a shard at a time."""
        for shard in self._store.tables():
            yield self._fit(shard)
            tick()

    def _fit(self, shard: pa.Table) -> pa.Table:
        names = _originals(shard.schema).names
        originals = fit_table(shard.select(names), self._common).columns if self._common.names else []
        results = [shard.column(RESULT_MARK + name) for name in self._order]
        return pa.Table.from_arrays([*originals, *results], schema=self.schema)


def _originals(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if not field.name.startswith(RESULT_MARK)], metadata=schema.metadata)


def _write_file(path: Path, form: OutputFormat, schema: pa.Schema, tables: Iterator[pa.Table]) -> int:
    with open(path, "wb") as sink:
        num_rows = write_tables(tables, sink, form, schema)
        sink.flush()
        os.fsync(sink.fileno())
    return num_rows


def _write_folder(folder: Path, form: OutputFormat, schema: pa.Schema, tables: Iterator[pa.Table]) -> int:
    folder.mkdir()
    num_rows = number = 0
    first = next(tables, None)
    while first is not None:
        portion = _Portion(first, tables)
        num_rows += _write_file(folder / f"part-{number:05d}{form.ending}", form, schema, iter(portion))
        first = portion.following
        number += 1
    fsync_folder(folder)
    return num_rows


class _Portion:
    """The tables of one file, beginning with `first`; afterwards `following` is the first one of the next file."""

    def __init__(self, first: pa.Table, rest: Iterator[pa.Table]) -> None:
        self.following: pa.Table | None = first
        self._rest = rest

    def __iter__(self) -> Iterator[pa.Table]:
        num_rows = num_bytes = 0
        while self.following is not None and num_rows < FILE_ROWS and num_bytes < FILE_BYTES:
            num_rows += self.following.num_rows
            num_bytes += self.following.nbytes
            yield self.following
            self.following = next(self._rest, None)


def _put_in_place(merged: Path, target: Target) -> None:
    if target.is_folder and os.path.lexists(target.path):
        # A folder that is not empty can't be renamed over. A crash in between finds the shards, and merges again.
        replaced = target.parts / _REPLACED
        _remove(replaced)
        rename_durable(target.path, replaced)
        rename_durable(merged, target.path)
        _remove(replaced)
    else:
        rename_durable(merged, target.path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
