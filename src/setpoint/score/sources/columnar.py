"""Sources over Parquet and Arrow files, which are read as tables, a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from setpoint.errors import InputError
from setpoint.score.sources.base import DEFAULT_CHUNK_ROWS, JSON, Chunk, SourceEstimate
from setpoint.score.sources.files import MIB, InputFile, reading
from setpoint.score.sources.find import Format, Found
from setpoint.score.sources.lines import Progress
from setpoint.score.sources.rows import Piece, Skip, chunks_from_pieces

MAX_FILES_LOOKED_AT = 100
TARGET_BATCH_BYTES = 64 * MIB
ARROW_FILE_MAGIC = b"ARROW1"


class TableReader(Protocol):
    """How one format turns a file into tables."""

    def columns(self, file: InputFile) -> list[str]:
        """Column names."""
        ...

    def count(self, file: InputFile) -> int | None:
        """Number of rows, where the file says it."""
        ...

    def pieces(
        self, file: InputFile, skip: Skip, progress: Progress, max_rows: int, only: Sequence[str] | None
    ) -> Iterator[Piece]:
        """The file's rows after those to skip, and of the columns only those in `only`."""
        ...


class ParquetReader:
    """Row groups are streamed page by page; those to skip are not read at all."""

    def columns(self, file: InputFile) -> list[str]:
        """Column names from the footer."""
        with reading(file.name), file.open_random() as source:
            return list(pq.ParquetFile(source).schema_arrow.names)

    def count(self, file: InputFile) -> int:
        """Number of rows from the footer."""
        with reading(file.name), file.open_random() as source:
            return int(pq.ParquetFile(source).metadata.num_rows)

    def pieces(
        self, file: InputFile, skip: Skip, progress: Progress, max_rows: int, only: Sequence[str] | None
    ) -> Iterator[Piece]:
        """The file's rows after those to skip."""
        with reading(file.name), file.open_random() as source:
            parquet = pq.ParquetFile(source, buffer_size=MIB)  # without a buffer it would read whole column chunks
            metadata = parquet.metadata
            selected = select_names(list(parquet.schema_arrow.names), only)
            first = 0
            for i in range(metadata.num_row_groups):
                group = metadata.row_group(i)
                skipped = skip.take_many(group.num_rows)
                if skipped < group.num_rows:
                    row_bytes = max(1, group.total_byte_size // group.num_rows)
                    batch_rows = max(1, min(max_rows, TARGET_BATCH_BYTES // row_bytes))
                    batches = parquet.iter_batches(
                        batch_rows,
                        row_groups=[i],
                        columns=selected or parquet.schema_arrow.names[:1],  # of no columns it would give no rows
                        use_threads=False,
                    )
                    yield from sliced(batches, selected, file.name, Skip(skipped), first + 1)
                first += group.num_rows
        progress.passed(file)


class ArrowReader:
    """IPC files and IPC streams, told apart by how they begin."""

    def columns(self, file: InputFile) -> list[str]:
        """Column names from the schema."""
        if not self._is_file(file):
            head = file.head()
            with reading(file.name):
                return list(pa.ipc.open_stream(pa.BufferReader(head.data)).schema.names)
        with reading(file.name), file.open_random() as source:
            return list(pa.ipc.open_file(source).schema.names)

    def count(self, file: InputFile) -> int | None:
        """Number of rows of a file; a stream does not say."""
        if not self._is_file(file):
            return None
        with reading(file.name), file.open_random() as source:
            batches = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[0]))
            if not batches.schema.names:
                return 0
            return sum(int(batches.get_batch(i).num_rows) for i in range(batches.num_record_batches))

    def pieces(
        self, file: InputFile, skip: Skip, progress: Progress, max_rows: int, only: Sequence[str] | None
    ) -> Iterator[Piece]:
        """The file's rows after those to skip."""
        if self._is_file(file):
            with reading(file.name), file.open_random() as source:
                batches = pa.ipc.open_file(source)
                found = (batches.get_batch(i) for i in range(batches.num_record_batches))
                yield from sliced(found, select_names(batches.schema.names, only), file.name, skip)
        else:
            with progress.opened(file) as stream:
                batches = pa.ipc.open_stream(pa.PythonFile(stream.reader, mode="r"))
                yield from sliced(batches, select_names(batches.schema.names, only), file.name, skip)
            return
        progress.passed(file)

    def _is_file(self, file: InputFile) -> bool:
        head = file.head(len(ARROW_FILE_MAGIC))
        if not head.data:
            raise InputError(f"{file.name} is empty; it is not an Arrow file")
        return head.data == ARROW_FILE_MAGIC


class TableFiles:
    """Rows from one or many Parquet or Arrow files, in the files' order; the columns are those of all the files."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._reader: TableReader = ParquetReader() if found.format is Format.PARQUET else ArrowReader()

    @property
    def name(self) -> str:
        """The input as it was named."""
        return self._found.name

    def columns(self) -> list[str]:
        """The columns of all files together (of the first hundred). Raises InputError, also where names repeat."""
        names: dict[str, None] = {}
        for file in self._found.files[:MAX_FILES_LOOKED_AT]:
            own = self._reader.columns(file)
            check_unique(own, file.name)
            names.update(dict.fromkeys(own))
        return list(names)

    def notes(self) -> tuple[str, ...]:
        """What was guessed."""
        return self._found.notes

    def estimate(self) -> SourceEstimate:
        """Rows as the files themselves say; for more than a hundred files, as the first ones and all sizes say."""
        files = self._found.files
        sizes = [file.size_bytes or 0 for file in files]
        counts = [self._reader.count(file) for file in files[:MAX_FILES_LOOKED_AT]]
        known = [count for count in counts if count is not None]
        if len(known) == len(files):
            return SourceEstimate(num_rows=sum(known), size_bytes=sum(sizes))
        looked_at = sum(sizes[: len(counts)])
        if len(known) < len(counts) or not looked_at:
            return SourceEstimate(size_bytes=sum(sizes) or None)
        return SourceEstimate(approx_rows=round(sum(known) * sum(sizes) / looked_at), size_bytes=sum(sizes))

    def identity(self) -> Mapping[str, JSON]:
        """Format, and path, size and content digest of each file."""
        return {
            "kind": "files",
            "format": str(self._found.format),
            "files": [file.identity() for file in self._found.files],
        }

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Read on from `start_row`; what lies before is not read where the format allows that."""
        progress, skip = Progress(self._found.files), Skip(start_row)
        known = select_names(self.columns(), columns)
        num_rows = self.estimate().num_rows
        return chunks_from_pieces(
            (
                piece
                for file in self._found.files
                for piece in self._reader.pieces(file, skip, progress, max_rows, columns)
            ),
            start_row=start_row,
            max_rows=max_rows,
            known=known,
            fraction=lambda rows: rows / num_rows if num_rows else progress.fraction(rows),
        )


def check_unique(names: Sequence[str], source_name: str) -> None:
    """Raise InputError when a column name repeats."""
    repeated = [repr(name) for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{source_name}: column names repeat: {', '.join(repeated)}; give each column its own name")


def select_names(names: Sequence[str], only: Sequence[str] | None) -> list[str]:
    """The names that are wanted, in the order they have; all of them where `only` is None."""
    wanted = set(names if only is None else only)
    return [name for name in names if name in wanted]


def sliced(batches: Any, selected: Sequence[str], name: str, skip: Skip, number: int = 1) -> Iterator[Piece]:
    """Turn record batches into pieces without the rows to skip; `number` is that of the first row."""
    for batch in batches:
        skipped = skip.take_many(batch.num_rows)
        if skipped < batch.num_rows:
            yield Piece(pa.Table.from_batches([batch.slice(skipped)]).select(selected), name, number + skipped)
        number += batch.num_rows
