"""Cut streams of records or tables into chunks whose boundaries are the same however they are reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from setpoint.domain.row import RowFailure
from setpoint.score.sources.base import MAX_CHUNK_BYTES, Chunk, Segment
from setpoint.score.sources.schema import cast_table, unify_schemas
from setpoint.score.sources.values import table_from_columns, tidy_table

Fraction: TypeAlias = Callable[[int], float | None]  # rows read so far -> share of the input


class Record(NamedTuple):
    """One row as its reader saw it: the fields, or why there are none."""

    value: Mapping[str, Any] | RowFailure
    number: int  # line or row of its file, from 1
    num_chars: int


class Piece(NamedTuple):
    """Consecutive rows of one file as a table; `number` is the first one's row, from 1."""

    table: pa.Table
    name: str
    number: int


class Skip:
    """Counts down the rows to leave out before the first one that is wanted."""

    __slots__ = ("left",)

    def __init__(self, num_rows: int) -> None:
        self.left = num_rows

    def take(self) -> bool:
        """Whether the next row is to be left out; counts it."""
        if self.left:
            self.left -= 1
            return True
        return False

    def take_many(self, num_rows: int) -> int:
        """How many of the next `num_rows` rows are to be left out; counts them."""
        taken = min(self.left, num_rows)
        self.left -= taken
        return taken


@dataclass(slots=True)
class _Rows:
    """The rows of the chunk being collected."""

    are_lines: bool
    values: list[Mapping[str, Any] | RowFailure] = field(default_factory=list)
    places: list[tuple[int, str, list[int]]] = field(default_factory=list)
    num_chars: int = 0

    def add(self, name: str, record: Record) -> None:
        if not self.places or self.places[-1][1] != name:
            self.places.append((len(self.values), name, []))
        self.places[-1][2].append(record.number)
        self.values.append(record.value)
        self.num_chars += record.num_chars

    def build(self, first_row: int, known: Sequence[str], only: Sequence[str] | None) -> Chunk:
        names = dict.fromkeys(known)
        for value in self.values:
            if not isinstance(value, RowFailure):
                names.update(dict.fromkeys(value))
        if only is not None:
            wanted = set(only)
            names = {name: None for name in names if name in wanted}
        absent, columns = {}, {}
        failures = {i: value for i, value in enumerate(self.values) if isinstance(value, RowFailure)}
        rows: list[Mapping[str, Any]] = [{} if isinstance(value, RowFailure) else value for value in self.values]
        for name in names:
            columns[name] = [row.get(name) for row in rows]
            missing = frozenset(i for i, row in enumerate(rows) if name not in row and i not in failures)
            if missing:
                absent[name] = missing
        table, raw = table_from_columns(columns) if columns else (empty_table(len(rows)), {})
        segments = tuple(
            Segment(first_offset=offset, name=name, numbers=numbers, are_lines=self.are_lines)
            for offset, name, numbers in self.places
        )
        return Chunk(first_row=first_row, table=table, failures=failures, raw=raw, absent=absent, segments=segments)


def chunks_from_records(
    records: Iterable[tuple[str, Record]],
    *,
    start_row: int,
    max_rows: int,
    known: Sequence[str],
    only: Sequence[str] | None,
    are_lines: bool,
    fraction: Fraction,
) -> Iterator[Chunk]:
    """Collect records (each with the name of its file), from which `start_row` rows were left out, into chunks.

    `known` columns are in every chunk, then come those that its records bring; `only` limits both.
    """
    first_row, rows = start_row, _Rows(are_lines)
    for name, record in records:
        is_full = len(rows.values) == max_rows or rows.num_chars + record.num_chars > MAX_CHUNK_BYTES
        if rows.values and is_full:
            yield with_fraction(rows.build(first_row, known, only), fraction)
            first_row, rows = first_row + len(rows.values), _Rows(are_lines)
        rows.add(name, record)
    if rows.values:
        yield with_fraction(rows.build(first_row, known, only), fraction)


def chunks_from_pieces(
    pieces: Iterable[Piece],
    *,
    start_row: int,
    max_rows: int,
    known: Sequence[str],
    fraction: Fraction,
    are_lines: bool = False,
) -> Iterator[Chunk]:
    """Cut and join tables, from which `start_row` rows were left out, into chunks."""
    first_row = start_row
    for group in group_rows(pieces, max_rows=max_rows, max_bytes=MAX_CHUNK_BYTES):
        chunk = _chunk_from_group(group, first_row, known, are_lines)
        yield with_fraction(chunk, fraction)
        first_row += chunk.num_rows


def group_rows(pieces: Iterable[Piece], *, max_rows: int, max_bytes: int) -> Iterator[list[Piece]]:
    """Regroup tables: `max_rows` rows each, fewer where they would exceed `max_bytes`.

    Where the groups end depends on the rows alone, not on how they came in pieces. A row that alone is larger makes
    a group of its own.
    """
    group: list[Piece] = []
    num_rows = num_bytes = 0
    for piece in pieces:
        offset, ends = 0, np.cumsum(_row_bytes(piece.table))
        while offset < piece.table.num_rows:
            before = int(ends[offset - 1]) if offset else 0
            room = int(np.searchsorted(ends, before + max_bytes - num_bytes, side="right")) - offset
            take = min(max_rows - num_rows, room, piece.table.num_rows - offset)
            if take <= 0 and not group:
                take = 1
            if take > 0:
                group.append(Piece(_slice(piece.table, offset, take), piece.name, piece.number + offset))
                num_rows += take
                num_bytes += int(ends[offset + take - 1]) - before
                offset += take
            if offset < piece.table.num_rows or num_rows == max_rows:
                yield group
                group, num_rows, num_bytes = [], 0, 0
    if group:
        yield group


def empty_table(num_rows: int) -> pa.Table:
    """A table with rows but no columns."""
    return pa.table({"": pa.nulls(num_rows)}).select([])


def with_fraction(chunk: Chunk, fraction: Fraction) -> Chunk:
    """The same chunk, with the share of the input that was read up to its end."""
    return replace(chunk, fraction=fraction(chunk.first_row + chunk.num_rows))


def _slice(table: pa.Table, offset: int, num_rows: int) -> pa.Table:
    return table.slice(offset, num_rows) if table.num_columns else empty_table(num_rows)


def _row_bytes(table: pa.Table) -> Any:
    """About how many bytes each row takes: exact for text and vectors, 64 for what is nested deeper."""
    total = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
            total += lengths * _fixed_bytes(kind.value_type)
        else:
            total += _fixed_bytes(kind)
    return total


def _fixed_bytes(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _fixed_bytes(kind.value_type)
    return kind.bit_width // 8 + 1 if pa.types.is_primitive(kind) else 64


def _chunk_from_group(group: Sequence[Piece], first_row: int, known: Sequence[str], are_lines: bool) -> Chunk:
    tables, segments = [], []
    raw: dict[str, dict[int, Any]] = {}
    absent: dict[str, set[int]] = {}
    offset = 0
    all_names = list(dict.fromkeys([*known, *(name for piece in group for name in piece.table.column_names)]))
    for piece in group:
        table, kept = tidy_table(piece.table)
        num_rows = table.num_rows
        for name, cells in kept.items():
            raw.setdefault(name, {}).update({offset + i: value for i, value in cells.items()})
        for name in set(all_names).difference(table.column_names):
            absent.setdefault(name, set()).update(range(offset, offset + num_rows))
        numbers = range(piece.number, piece.number + num_rows)
        segments.append(Segment(first_offset=offset, name=piece.name, numbers=numbers, are_lines=are_lines))
        tables.append(table)
        offset += num_rows
    return Chunk(
        first_row=first_row,
        table=_join(tables, all_names),
        raw=raw,
        absent={name: frozenset(offsets) for name, offsets in absent.items()},
        segments=tuple(segments),
    )


def _join(tables: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    if len(tables) == 1 and tables[0].column_names == list(names):
        return tables[0]
    if not names:
        return empty_table(sum(table.num_rows for table in tables))
    unified = unify_schemas([pa.schema([(name, pa.null()) for name in names]), *(table.schema for table in tables)])
    return pa.concat_tables([cast_table(table, unified) for table in tables])
