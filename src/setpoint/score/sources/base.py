"""What every source of rows looks like, wherever the rows come from.

    open_source("tickets.csv")      ->  Source  ->  chunks(start_row=0, max_rows=1024)  ->  Chunk, Chunk, ...
    from_iterable(list_of_texts)    ->

A chunk is a small Arrow table of the original columns plus what such a table cannot say: which records could not be
read at all, which cells hold text that is not valid Unicode, which fields a record does not have, and where in which
file each row stands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from setpoint.domain.row import RowFailure
from setpoint.domain.task import Task
from setpoint.errors import InputError, UsageError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

JSON: TypeAlias = "str | int | float | bool | Sequence[JSON] | Mapping[str, JSON] | None"

DEFAULT_CHUNK_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Where a run of a chunk's rows stands: rows from `first_offset` on come from `name`, one number a row.

    `numbers` counts from 1: lines of a text file (a record that spans lines is named by its first), rows elsewhere.
    """

    first_offset: int
    name: str
    numbers: Sequence[int]
    are_lines: bool = False

    def where(self, offset: int) -> str:
        """Name the row at `offset` of the chunk: `tickets.csv:12`, or `rows.parquet row 12`."""
        number = self.numbers[offset - self.first_offset]
        return f"{self.name}:{number}" if self.are_lines else f"{self.name} row {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of consecutive rows.

    - `first_row`: place of its first row in the whole input, from 0.
    - `table`: the original columns. A cell with invalid Unicode holds U+FFFD there; a column of mixed types holds
      text (JSON for what is not text). Types are inferred a chunk at a time for CSV, JSON and Python values, so two
      chunks may differ: `unify_schemas` and `cast_table` bring them together.
    - `failures`: offset in the chunk -> why the record itself could not be read; its cells are null in the table.
    - `raw`: column -> offset -> the value as it came, for cells that the table cannot hold as they are.
    - `absent`: column -> offsets of records that do not have the field at all (null and absent are not the same).
    - `segments`: where the rows stand, for messages.
    - `fraction`: share of the input's bytes that had been read when the chunk was made, where that is known.
    """

    first_row: int
    table: pa.Table
    failures: Mapping[int, RowFailure] = field(default_factory=dict)
    raw: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    absent: Mapping[str, frozenset[int]] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()
    fraction: float | None = None

    @property
    def num_rows(self) -> int:
        """Rows in the chunk, failed ones included."""
        return int(self.table.num_rows)

    def values(self, column: str) -> list[Any]:
        """Python values of a column as users have them: lone surrogates, numbers among texts, None and NaN included.

        A column that this chunk does not have gives None for every row; `is_absent` tells that from a null.
        """
        if column not in self.table.column_names:
            return [None] * self.num_rows
        values: list[Any] = self.table.column(column).to_pylist()
        for offset, value in self.raw.get(column, {}).items():
            values[offset] = value
        return values

    def is_absent(self, column: str, offset: int) -> bool:
        """Whether the record at `offset` lacks the field `column` altogether."""
        return column not in self.table.column_names or offset in self.absent.get(column, ())

    def where(self, offset: int) -> str:
        """Name the place of the row at `offset` for a person."""
        if not self.segments:
            return f"row {self.first_row + offset + 1}"
        index = bisect_right([segment.first_offset for segment in self.segments], offset) - 1
        return self.segments[index].where(offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEstimate:
    """How much there is to read, as far as it can be known without reading it all.

    `num_rows` is exact where it is given; `approx_rows` extrapolates from a sample of the first bytes (or, for a
    database, counts rows that may change before they are read). `size_bytes` is the size on disk, compressed.
    """

    num_rows: int | None = None
    approx_rows: int | None = None
    size_bytes: int | None = None

    @property
    def rows(self) -> int | None:
        """The best figure there is; None when nothing is known, as for a generator."""
        return self.num_rows if self.num_rows is not None else self.approx_rows


@runtime_checkable
class Source(Protocol):
    """Rows from somewhere. Nothing is read before a method is called; a whole input is never in memory."""

    @property
    def name(self) -> str:
        """What people call it: the file name, the URL without its password, `stdin`, `list of 12 rows`."""
        ...

    def columns(self) -> list[str]:
        """Column names in order, as far as a look at the beginning tells (JSON lines may bring new ones later).

        Raises InputError early: a missing file (with its nearest sibling), a missing header, duplicate names.
        """
        ...

    def notes(self) -> tuple[str, ...]:
        """What was guessed and a person should know, one sentence each: a delimiter, a format. Empty when nothing."""
        ...

    def estimate(self) -> SourceEstimate:
        """How many rows and bytes there are, cheaply."""
        ...

    def identity(self) -> Mapping[str, JSON]:
        """What makes this input this input, for a fingerprint: changes when the content does; JSON all through."""
        ...

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Read from `start_row` (0-based) on, in chunks of at most `max_rows` rows, in input order.

        Boundaries depend on the content, `start_row` and `max_rows` alone, and reading on from any boundary gives
        the same chunks as reading through. A chunk is full except for the last one and for rows so long that the
        chunk would hold more than about `MAX_CHUNK_BYTES`. `columns` limits the tables to those columns (a
        column that does not exist is left out). stdin and generators can be read once.
        """
        ...


MAX_CHUNK_BYTES = 64 * 1024 * 1024

TEXT_NAMES = ("text", "sentence", "content", "body", "prompt", "document", "query", "message", "review", "title")


def require_columns(source_columns: Sequence[str], wanted: Iterable[str], *, source_name: str) -> None:
    """Raise InputError for the first wanted column that the source does not have, with the nearest one."""
    for column in wanted:
        if column not in source_columns:
            has = ", ".join(source_columns) or "no columns at all"
            hint = nearest(column, source_columns)
            raise InputError(f"no column {column!r} in {source_name}{hint}; it has: {has}")


def choose_text_column(columns: Sequence[str], task: Task, *, text_columns: Sequence[str] | None = None) -> str:
    """Choose the column to score when none was named.

    The only column; else the only one that holds text (`text_columns`, where the types are known); else the first
    with a customary name (`TEXT_NAMES`, in that order, whatever the case). Raises UsageError that lists the columns.
    """
    candidates = list(columns if text_columns is None else text_columns)
    if len(candidates) == 1:
        return candidates[0]
    by_name = {column.lower(): column for column in reversed(candidates)}
    for name in TEXT_NAMES:
        if name in by_name:
            return by_name[name]
    if not candidates and columns:
        raise UsageError(f"no column holds text; name one with --column. The columns are: {', '.join(columns)}")
    raise UsageError(f"which column should {task} read? Name it with --column; the columns are: {', '.join(columns)}")
