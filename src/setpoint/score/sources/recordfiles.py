"""Sources over files that are read a record at a time: CSV, TSV, JSON lines, JSON arrays, text, documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from setpoint.score.sources.base import DEFAULT_CHUNK_ROWS, JSON, Chunk, SourceEstimate
from setpoint.score.sources.delimited import DelimitedReader
from setpoint.score.sources.files import Head, InputFile
from setpoint.score.sources.find import Format, Found
from setpoint.score.sources.jsontext import JsonLinesReader, JsonReader
from setpoint.score.sources.lines import Progress
from setpoint.score.sources.rows import Record, Skip, chunks_from_records
from setpoint.score.sources.textual import DocumentReader, LineReader

MAX_FILES_LOOKED_AT = 100  # for column names
MAX_FILES_COUNTED = 20  # for the estimate of rows


class RecordReader(Protocol):
    """How one format turns a file into records."""

    are_lines: bool

    def columns(self, file: InputFile) -> list[str]:
        """Column names, from the beginning of the file."""
        ...

    def notes(self, file: InputFile) -> list[str]:
        """What was guessed about the file."""
        ...

    def records(self, file: InputFile, skip: Skip, progress: Progress) -> Iterator[Record]:
        """The file's rows, after those to skip."""
        ...

    def count(self, file: InputFile, head: Head) -> int:
        """How many whole rows the head holds."""
        ...


def reader_for(kind: Format) -> RecordReader:
    """The reader of a format that is read a record at a time."""
    match kind:
        case Format.CSV | Format.TSV:
            return DelimitedReader(kind)
        case Format.JSONL:
            return JsonLinesReader()
        case Format.JSON:
            return JsonReader()
        case Format.TEXT:
            return LineReader()
        case Format.DOCUMENTS:
            return DocumentReader()
        case _:
            raise ValueError(f"{kind} is read as tables")


class RecordFiles:
    """Rows from one or many files of such a format, in the files' order; the columns are those of all the files."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._reader = reader_for(found.format)

    @property
    def name(self) -> str:
        """The input as it was named."""
        return self._found.name

    def columns(self) -> list[str]:
        """The columns of all files together (of the first hundred). Raises InputError."""
        names: dict[str, None] = {}
        for file in self._found.files[:MAX_FILES_LOOKED_AT]:
            names.update(dict.fromkeys(self._reader.columns(file)))
        return list(names)

    def notes(self) -> tuple[str, ...]:
        """What was guessed: the format, a delimiter (of the first file)."""
        return (*self._found.notes, *self._reader.notes(self._found.files[0]))

    def estimate(self) -> SourceEstimate:
        """Count the rows at the beginning of the first files, and take the rest to be like them."""
        files = self._found.files
        sizes = [file.size_bytes for file in files]
        total = sum(size for size in sizes if size is not None) if None not in sizes else None
        if self._found.format is Format.DOCUMENTS:
            return SourceEstimate(num_rows=len(files), size_bytes=total)
        num_rows = num_bytes = 0
        is_exact = len(files) <= MAX_FILES_COUNTED
        for file in files[:MAX_FILES_COUNTED]:
            head = file.head()
            num_rows += self._reader.count(file, head)
            num_bytes += head.num_file_bytes
            is_exact = is_exact and head.is_whole
        if is_exact:
            return SourceEstimate(num_rows=num_rows, size_bytes=total)
        if total is None or not num_bytes:
            return SourceEstimate(size_bytes=total)
        return SourceEstimate(approx_rows=round(num_rows * total / num_bytes), size_bytes=total)

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
        """Read on from `start_row`; the rows before are parsed as far as it takes to count them."""
        progress = Progress(self._found.files)
        return chunks_from_records(
            self._records(Skip(start_row), progress),
            start_row=start_row,
            max_rows=max_rows,
            known=self.columns(),
            only=columns,
            are_lines=self._reader.are_lines,
            fraction=progress.fraction,
        )

    def _records(self, skip: Skip, progress: Progress) -> Iterator[tuple[str, Record]]:
        for file in self._found.files:
            for record in self._reader.records(file, skip, progress):
                yield file.name, record
