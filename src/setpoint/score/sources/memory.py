"""Sources over what Python callers have: lists, generators, Arrow tables, DataFrames, datasets.

An item that is a mapping gives its fields; a pair of strings gives `text` and `text_pair`; anything else is the value
of the column `text`, whatever it is, so that a None or a number among texts is that row's failure and no one else's.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from setpoint.domain.row import Reason, RowFailure
from setpoint.errors import InputError, UsageError
from setpoint.score.sources.base import DEFAULT_CHUNK_ROWS, JSON, Chunk, Source, SourceEstimate
from setpoint.score.sources.columnar import check_unique, select_names, sliced
from setpoint.score.sources.rows import Piece, Record, Skip, chunks_from_pieces, chunks_from_records
from setpoint.score.sources.schema import json_text
from setpoint.score.sources.textual import TEXT
from setpoint.score.sources.values import has_surrogates

TEXT_PAIR = "text_pair"
PLACE = "input"
MAX_SAMPLED_ITEMS = 1000
SLICE_ROWS = 4096


def from_iterable(items: Any) -> Source:
    """Wrap what a Python caller has as a Source.

    Takes a list or another sequence, a `datasets.Dataset`, a `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`, a
    pandas DataFrame or Series, and any iterable or generator, which is read once and never held. Raises UsageError for
    what has no rows: a single string, a mapping, a `DatasetDict`.
    """
    kind = type(items).__name__
    if isinstance(items, Mapping):
        hint = f"; choose one of its splits: {', '.join(map(str, items))}" if _is_dataset(items) else ""
        raise UsageError(f"rows must come as a list or another iterable, not as a {kind}{hint}")
    if isinstance(items, str | bytes) or not (hasattr(items, "__iter__") or hasattr(items, "__getitem__")):
        raise UsageError(f"rows must come as a list or another iterable, not as a single {kind}")
    if isinstance(items, pa.RecordBatch):
        items = pa.Table.from_batches([items])
    if isinstance(items, pa.Table):
        name = f"table of {items.num_rows} rows"
        return TableSource(name, items.column_names, items.num_rows, _slice_table(items), _digest_table(items))
    if isinstance(items, pa.RecordBatchReader):
        return BatchSource(items)
    if type(items).__module__.partition(".")[0] == "pandas" and hasattr(items, "iloc"):
        return FrameSource(items) if hasattr(items, "columns") else ItemSource(Series(items))
    if _is_dataset(items) and hasattr(items, "with_format") and hasattr(items, "__len__"):
        return _from_dataset(items)
    if hasattr(items, "__arrow_c_stream__"):  # a frame of another library
        return from_iterable(pa.table(items))
    return ItemSource(items)


class TableSource:
    """Rows that can be sliced as Arrow tables: a table, a dataset."""

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        num_rows: int,
        take: Callable[[int, int], pa.Table],
        digest: Callable[[], str],
    ) -> None:
        """`take(first, last)` gives a table of those rows; `digest()` names the content."""
        check_unique(columns, name)
        self._name = name
        self._columns = list(columns)
        self._num_rows = num_rows
        self._take = take
        self._digest = digest

    @property
    def name(self) -> str:
        """What kind of object, and how many rows."""
        return self._name

    def columns(self) -> list[str]:
        """The object's columns."""
        return list(self._columns)

    def notes(self) -> tuple[str, ...]:
        """Nothing is guessed."""
        return ()

    def estimate(self) -> SourceEstimate:
        """The number of rows is known."""
        return SourceEstimate(num_rows=self._num_rows)

    def identity(self) -> Mapping[str, JSON]:
        """Number of rows and a digest of the content."""
        return {"kind": "python", "num_rows": self._num_rows, "digest": self._digest()}

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Read on from `start_row`."""
        known = select_names(self._columns, columns)
        firsts = range(start_row, self._num_rows, max_rows)
        slices = ((first, self._take(first, min(first + max_rows, self._num_rows))) for first in firsts)
        return chunks_from_pieces(
            (Piece(table.select(known), PLACE, first + 1) for first, table in slices),
            start_row=start_row,
            max_rows=max_rows,
            known=known,
            fraction=lambda rows: rows / self._num_rows,
        )


class FrameSource:
    """A pandas DataFrame; cells as they are, so that a column of objects may hold anything."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._columns = [str(name) for name in frame.columns]
        check_unique(self._columns, self.name)

    @property
    def name(self) -> str:
        """What kind of object, and how many rows."""
        return f"DataFrame of {len(self._frame)} rows"

    def columns(self) -> list[str]:
        """The frame's columns; its index is not one."""
        return list(self._columns)

    def notes(self) -> tuple[str, ...]:
        """Nothing is guessed."""
        return ()

    def estimate(self) -> SourceEstimate:
        """The number of rows is known."""
        return SourceEstimate(num_rows=len(self._frame))

    def identity(self) -> Mapping[str, JSON]:
        """Number of rows and a digest of the content."""
        return {"kind": "python", "num_rows": len(self._frame), "digest": _digest_items(self._rows(0))}

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Read on from `start_row`."""
        return chunks_from_records(
            _records(self._rows(start_row), start_row),
            start_row=start_row,
            max_rows=max_rows,
            known=self._columns,
            only=columns,
            are_lines=False,
            fraction=lambda rows: rows / len(self._frame),
        )

    def _rows(self, start_row: int) -> Iterator[dict[str, Any]]:
        for first in range(start_row, len(self._frame), SLICE_ROWS):
            part = self._frame.iloc[first : first + SLICE_ROWS]
            cells = [part.iloc[:, i].tolist() for i in range(len(self._columns))]
            for i in range(len(part)):
                yield {name: column[i] for name, column in zip(self._columns, cells)}


class BatchSource:
    """A RecordBatchReader: read once."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        check_unique(reader.schema.names, "the record batches")
        self._reader: pa.RecordBatchReader | None = reader
        self._columns = list(reader.schema.names)

    @property
    def name(self) -> str:
        """What kind of object."""
        return "record batches"

    def columns(self) -> list[str]:
        """The columns of the reader's schema."""
        return list(self._columns)

    def notes(self) -> tuple[str, ...]:
        """Nothing is guessed."""
        return ()

    def estimate(self) -> SourceEstimate:
        """Nothing is known."""
        return SourceEstimate()

    def identity(self) -> Mapping[str, JSON]:
        """The kind alone: reading it would use it up."""
        return {"kind": "python", "type": "RecordBatchReader"}

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Read on from `start_row`, once."""
        reader, self._reader = self._reader, None
        if reader is None:
            raise InputError("the record batches can be read only once")
        known = select_names(self._columns, columns)
        return chunks_from_pieces(
            sliced(reader, known, PLACE, Skip(start_row)),
            start_row=start_row,
            max_rows=max_rows,
            known=known,
            fraction=lambda _rows: None,
        )


class ItemSource:
    """Python objects one by one: from a sequence, as often as wanted; from an iterator or generator, once."""

    def __init__(self, items: Any) -> None:
        self._items = items
        self._is_sequence = hasattr(items, "__getitem__") and hasattr(items, "__len__")
        self._is_collection = hasattr(items, "__len__")
        self._iterator: Iterator[Any] | None = None
        self._peeked: list[Any] = []
        self._was_read = False

    @property
    def name(self) -> str:
        """What kind of object, and how many rows where that is known."""
        kind = type(self._items).__name__
        return f"{kind} of {len(self._items)} rows" if self._is_collection else kind

    def columns(self) -> list[str]:
        """All fields of the first thousand items; of an iterator's first item only, so that nothing has to wait."""
        names: dict[str, None] = {}
        for item in self._sample():
            record = _as_fields(item, 0)
            if not isinstance(record, RowFailure):
                names.update(dict.fromkeys(record))
        return list(names) or [TEXT]

    def notes(self) -> tuple[str, ...]:
        """Nothing is guessed."""
        return ()

    def estimate(self) -> SourceEstimate:
        """The number of rows, where the object has a length."""
        return SourceEstimate(num_rows=len(self._items) if self._is_collection else None)

    def identity(self) -> Mapping[str, JSON]:
        """Number and digest of the items; of an iterator the kind alone, since reading would use it up."""
        if not self._is_collection:
            return {"kind": "python", "type": type(self._items).__name__}
        return {"kind": "python", "num_rows": len(self._items), "digest": _digest_items(self._items_from(0))}

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Read on from `start_row`; an iterator only once, and its first rows are dropped."""
        num_rows = self.estimate().num_rows
        known = self.columns()
        if not self._is_collection:
            if self._was_read:
                raise InputError(f"the {self.name} can be read only once; pass a list to read it again")
            self._was_read = True
        return chunks_from_records(
            _records(self._items_from(start_row), start_row),
            start_row=start_row,
            max_rows=max_rows,
            known=known,
            only=columns,
            are_lines=False,
            fraction=lambda rows: rows / num_rows if num_rows else None,
        )

    def _items_from(self, start_row: int) -> Iterator[Any]:
        if self._is_sequence:
            return (self._items[i] for i in range(start_row, len(self._items)))
        return itertools.islice(itertools.chain(self._peeked, self._iterate()), start_row, None)

    def _sample(self) -> Iterable[Any]:
        if self._is_sequence:
            return (self._items[i] for i in range(min(MAX_SAMPLED_ITEMS, len(self._items))))
        if self._is_collection:
            return itertools.islice(self._items, MAX_SAMPLED_ITEMS)
        if not self._peeked and not self._was_read:
            self._peeked = list(itertools.islice(self._iterate(), 1))
        return self._peeked

    def _iterate(self) -> Iterator[Any]:
        if self._is_collection:
            return iter(self._items)
        if self._iterator is None:
            self._iterator = iter(self._items)
        return self._iterator


def _records(items: Iterable[Any], start_row: int) -> Iterator[tuple[str, Record]]:
    for number, item in enumerate(items, start=start_row + 1):
        value = _as_fields(item, number)
        num_chars = 0
        if not isinstance(value, RowFailure):
            num_chars = sum(len(cell) for cell in value.values() if isinstance(cell, str))
        yield PLACE, Record(value, number, num_chars)


def _as_fields(item: Any, number: int) -> Mapping[str, Any] | RowFailure:
    if isinstance(item, Mapping):
        fields = {str(key): value for key, value in item.items()}
        if any(has_surrogates(key) for key in fields if not key.isascii()):
            detail = f"{PLACE} row {number}: a field name is not valid Unicode"
            return RowFailure(reason=Reason.INVALID_RECORD, detail=detail)
        return fields
    if isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return {TEXT: item[0], TEXT_PAIR: item[1]}
    return {TEXT: item}


def _is_dataset(items: Any) -> bool:
    return type(items).__module__.partition(".")[0] == "datasets"


def _from_dataset(dataset: Any) -> TableSource:
    num_rows, tables = len(dataset), dataset.with_format("arrow")
    return TableSource(
        f"Dataset of {num_rows} rows",
        list(dataset.column_names),
        num_rows,
        lambda first, last: tables[first:last],
        lambda: str(dataset._fingerprint),
    )


class Series:
    """A pandas Series by position, whatever its index."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def __len__(self) -> int:
        return len(self._series)

    def __getitem__(self, index: int) -> Any:
        return self._series.iloc[index]


def _slice_table(table: pa.Table) -> Callable[[int, int], pa.Table]:
    return lambda first, last: table.slice(first, last - first)


def _digest_items(items: Iterable[Any]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for item in items:
        digest.update(json_text(item).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _digest_table(table: pa.Table) -> Callable[[], str]:
    def digest() -> str:
        content = hashlib.blake2b(str(table.schema).encode(), digest_size=20)
        for first in range(0, table.num_rows, SLICE_ROWS):
            for batch in table.slice(first, SLICE_ROWS).combine_chunks().to_batches():
                content.update(batch.serialize())
        return content.hexdigest()

    return digest
