"""From a source to blocks for the pipeline, and from finished windows to tables for the store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from setpoint.domain.row import RowFailure, RowInput
from setpoint.domain.task import Task
from setpoint.errors import InputError
from setpoint.runners.base import ResultField
from setpoint.score.columns import result_arrays
from setpoint.score.digests import digest_rows
from setpoint.score.inputs import ResolvedInputs, resolve_inputs
from setpoint.score.ledger import Ledger
from setpoint.score.plan import JobPlan
from setpoint.score.sources.base import Chunk, Source, require_columns
from setpoint.score.sources.schema import WIDE_INTS, cast_table, unify_schemas
from setpoint.score.store import InputDigest, JobStore, RowDigests
from setpoint.score.window import Block, FinishedWindow

CHUNK_ROWS = 1_024
BLOCK_ROWS = 512  # tokenized at once: enough for a tokenizer's own threads
BLOCK_BYTES = 2**20
RESULT_MARK = "\x1f"  # before the names of result columns in shards: no input has such a column


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What a block keeps of its rows until they are written: the output's original columns, and the digests."""

    table: pa.Table
    digests: RowDigests


class JobInput:
    """The rows of a job: a source, seen through a plan. Read once, from the beginning."""

    def __init__(self, source: Source, plan: JobPlan, task: Task) -> None:
        """Raises UsageError and InputError where the plan does not fit the source or the task."""
        self.source = source
        self.task = task
        columns = source.columns()
        self.resolved: ResolvedInputs = resolve_inputs(
            plan.inputs, task, columns, source_name=source.name, has_labels=plan.labels is not None
        )
        self._keep = plan.keep
        self._limit = plan.limit_rows
        if plan.keep is not None:
            require_columns(columns, plan.keep, source_name=source.name)
        self.known_columns = list(columns if plan.keep is None else plan.keep)
        self.rows_read = 0
        self.fraction_read: float | None = None
        self.is_exhausted = False
        self._first: Chunk | None = None
        self._chunks: Iterator[Chunk] | None = None

    def describe(self) -> dict[str, object]:
        """For a fingerprint."""
        keep = "all" if self._keep is None else list(self._keep)
        return {**self.resolved.describe(), "keep": keep, "limit_rows": self._limit}

    def sample(self, num_rows: int) -> list[RowInput]:
        """Rows from the beginning of the input, evenly spread; reading still starts with the first row afterwards."""
        if self._chunks is None:
            self._chunks = self._open()
            self._first = next(self._chunks, None)
        if self._first is None:
            return []
        asked = self._ask(self._first)
        rows = [row for row in asked if isinstance(row, RowInput)]
        if len(rows) <= num_rows:
            return rows
        picked = np.unique(np.linspace(0, len(rows) - 1, num_rows).astype(int))
        return [rows[position] for position in picked.tolist()]

    def blocks(self, store: JobStore) -> Iterator[Block]:
        """The rows that are not done, as blocks. Rows that are done are read, too, and checked against the store.

        Raises FingerprintMismatch where they differ, and where the input has fewer rows than were done.
        """
        for chunk in self._all_chunks():
            digests, sizes = digest_rows(chunk, self._digest_columns(chunk))
            done = min(chunk.num_rows, max(0, store.num_rows_resumed - chunk.first_row))
            if done:
                store.verify(chunk.first_row, digests[:done], chunk.where)
            if done < chunk.num_rows:
                yield from self._cut(chunk, digests, sizes, done)
        store.verify_length(self.rows_read)

    def digest(self) -> InputDigest:
        """Read everything, for its digest alone."""
        whole = InputDigest()
        for chunk in self._all_chunks():
            whole.add(digest_rows(chunk, self._digest_columns(chunk))[0])
        return whole

    @staticmethod
    def no_digests() -> RowDigests:
        """The digests of no rows."""
        return np.empty(0, dtype=np.uint64)

    def _open(self) -> Iterator[Chunk]:
        columns = None if self._keep is None else list(dict.fromkeys([*self._keep, *self.resolved.columns]))
        return iter(self.source.chunks(max_rows=CHUNK_ROWS, columns=columns))

    def _all_chunks(self) -> Iterator[Chunk]:
        chunks = self._chunks if self._chunks is not None else self._open()
        first = [self._first] if self._first is not None else []
        self._chunks = self._first = None
        try:
            for chunk in itertools.chain(first, chunks):
                yield self._count(chunk)
                if self._limit is not None and self.rows_read >= self._limit:
                    break
        except OSError as error:
            raise InputError(f"cannot read on in {self.source.name}: {error}") from error
        self.is_exhausted = True

    def _count(self, chunk: Chunk) -> Chunk:
        if chunk.first_row != self.rows_read:
            raise InputError(
                f"{self.source.name} gave row {chunk.first_row + 1} where row {self.rows_read + 1} was due"
            )
        if self._limit is not None and self.rows_read + chunk.num_rows > self._limit:
            chunk = _head(chunk, self._limit - self.rows_read)
        self.rows_read += chunk.num_rows
        self.fraction_read = chunk.fraction
        return chunk

    def _digest_columns(self, chunk: Chunk) -> Sequence[str]:
        if self._keep is None:
            return list(chunk.table.column_names)
        return list(dict.fromkeys([*self._keep, *self.resolved.columns]))

    def _ask(self, chunk: Chunk) -> list[RowInput | RowFailure]:
        return self.resolved.rows(chunk, is_ranking=self.task is Task.TEXT_RANKING)

    def _cut(self, chunk: Chunk, digests: RowDigests, sizes: list[int], start: int) -> Iterator[Block]:
        asked = self._ask(chunk)
        kept = chunk.table
        if self._keep is not None:
            kept = kept.select([name for name in self._keep if name in kept.column_names])
        while start < chunk.num_rows:
            stop = _block_end(sizes, start)
            yield Block(
                first_row=chunk.first_row + start,
                rows=asked[start:stop],
                sizes_bytes=sizes[start:stop],
                payload=Kept(kept.slice(start, stop - start), digests[start:stop]),
                where=lambda offset, start=start: chunk.where(start + offset),  # type: ignore[misc]
            )
            start = stop


def assemble(window: FinishedWindow, fields: Sequence[ResultField]) -> tuple[pa.Table, RowDigests]:
    """A finished window as a shard: original columns, then the result columns under marked names."""
    tables: list[pa.Table] = []
    digests: list[RowDigests] = []
    for piece in window.pieces:
        kept: Kept = piece.block.payload
        tables.append(kept.table.slice(piece.start, piece.stop - piece.start))
        digests.append(kept.digests[piece.start : piece.stop])
    arrays = {f"{RESULT_MARK}{name}": array for name, array in result_arrays(fields, window.results).items()}
    if not any(table.column_names for table in tables):
        return pa.table(arrays), np.concatenate(digests)
    originals = join_tables(tables)
    schema = pa.schema(
        [*originals.schema, *(pa.field(name, array.type) for name, array in arrays.items())],
        metadata=originals.schema.metadata,
    )
    columns = [*originals.columns, *(pa.chunked_array([array]) for array in arrays.values())]
    return pa.Table.from_arrays(columns, schema=schema), np.concatenate(digests)


def join_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """One table after the other; types that were inferred apart are brought together, equal ones stay as they are."""
    schema = common_schema([table.schema for table in tables])
    return pa.concat_tables([fit_table(table, schema) for table in tables])


def common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of tables that come after one another. Integers too wide for a double stay marked as such."""
    first = schemas[0]
    are_alike = all(schema.equals(first) for schema in schemas)
    marked = {field.name for schema in schemas for field in schema if WIDE_INTS in (field.metadata or {})}
    common = first if are_alike else unify_schemas(schemas)
    fields = [field.with_metadata({WIDE_INTS: b"1"}) if field.name in marked else field for field in common]
    return pa.schema(fields, metadata=common.metadata)


def fit_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types and columns of a common schema."""
    if table.schema.equals(schema):
        return pa.Table.from_arrays(table.columns, schema=schema)
    return cast_table(table, schema)


def count_window(window: FinishedWindow, ledger: Ledger, *, num_labels: int | None, windows_rows: bool) -> None:
    """Count a window's rows in a ledger. `windows_rows` says whether long rows become several sequences."""
    results = iter(window.results)
    counts = iter(window.num_sequences)
    row = window.first_row
    for piece in window.pieces:
        for offset in range(piece.start, piece.stop):
            result, num_sequences = next(results), next(counts)
            if isinstance(result, RowFailure):
                ledger.count_failure(result, row=row, where=piece.block.where(offset))
            else:
                is_windowed = windows_rows and num_sequences > _sequences_of(piece.block.rows[offset], num_labels)
                ledger.count_result(result, is_windowed=is_windowed)
            row += 1


def _sequences_of(row: RowInput | RowFailure, num_labels: int | None) -> int:
    """How many sequences a row has that fits into the model's length."""
    if isinstance(row, RowInput) and row.candidates is not None:
        return len(row.candidates)
    return num_labels or 1


def _head(chunk: Chunk, num_rows: int) -> Chunk:
    """The first rows of a chunk."""
    return Chunk(
        first_row=chunk.first_row,
        table=chunk.table.slice(0, num_rows),
        failures={offset: failure for offset, failure in chunk.failures.items() if offset < num_rows},
        raw={
            column: {offset: value for offset, value in cells.items() if offset < num_rows}
            for column, cells in chunk.raw.items()
        },
        absent={
            column: frozenset(offset for offset in offsets if offset < num_rows)
            for column, offsets in chunk.absent.items()
        },
        segments=chunk.segments,
        fraction=chunk.fraction,
    )


def _block_end(sizes: Sequence[int], start: int) -> int:
    """Where the block that begins at `start` ends: a row that alone is too large gets a block of its own."""
    size_bytes = 0
    limit = min(len(sizes), start + BLOCK_ROWS)
    for stop in range(start, limit):
        size_bytes += sizes[stop]
        if size_bytes > BLOCK_BYTES and stop > start:
            return stop
    return limit
