"""CSV and TSV through the standard library's reader, hardened: bad rows fail alone, with their line number.

Cells are kept verbatim as strings: CSV has no types. Quotes work as in RFC 4180 in both formats; a cell may hold line
breaks, NUL characters and millions of characters. Blank lines are passed over, except in a file with a single column,
where a blank line is an empty cell (but blank lines at the end are not rows).
"""

from __future__ import annotations

import csv
import io
from collections import Counter, deque
from collections.abc import Iterator
from typing import BinaryIO, TextIO, cast

from setpoint.domain.row import Reason, RowFailure
from setpoint.errors import InputError
from setpoint.score.sources.files import HEAD_BYTES, MAX_HEAD_BYTES, Head, InputFile
from setpoint.score.sources.find import Format
from setpoint.score.sources.lines import MAX_RECORD_CHARS, Progress, check_encoding
from setpoint.score.sources.rows import Record, Skip
from setpoint.score.sources.values import has_surrogates

MAX_QUOTE_REPAIRS = 100  # each may read up to MAX_RECORD_CHARS characters twice
DELIMITER_NAMES = {"\t": "tabs", ";": "semicolons"}


class DelimitedReader:
    """Reads CSV (delimiter by a look at the header: comma, else tab or semicolon) and TSV."""

    are_lines = True

    def __init__(self, kind: Format) -> None:
        self._delimiter = "\t" if kind is Format.TSV else None

    def columns(self, file: InputFile) -> list[str]:
        """Column names from the header. Raises InputError when there is none, or when names repeat."""
        return self._look(file)[0]

    def notes(self, file: InputFile) -> list[str]:
        """Say so when the delimiter was guessed."""
        delimiter = self._look(file)[1]
        if self._delimiter is not None or delimiter == ",":
            return []
        return [f"the header of {file.name} has no commas, so {DELIMITER_NAMES[delimiter]} separate its cells"]

    def records(self, file: InputFile, skip: Skip, progress: Progress) -> Iterator[Record]:
        """Yield a record for each row after those to skip."""
        with progress.opened(file) as stream:
            yield from self._parse(stream.reader, file.name, skip)

    def count(self, file: InputFile, head: Head) -> int:
        """How many rows begin in the head, a last incomplete one excluded."""
        skip = Skip(len(head.data))
        before = skip.left
        for _ in self._parse(io.BytesIO(head.data), file.name, skip, is_whole=head.is_whole):
            pass
        return max(0, before - skip.left - (0 if head.is_whole else 1))

    def _look(self, file: InputFile) -> tuple[list[str], str]:
        head = file.head()
        check_encoding(file.name, head)
        if not head.is_whole and b"\n" not in head.data and len(head.data) >= HEAD_BYTES:
            head = file.head(MAX_HEAD_BYTES)
        lines = _Lines(_text(io.BytesIO(head.data)), file.name)
        delimiter = self._delimiter or _sniff(lines.peek())
        return _header(_rows(lines, delimiter, file.name), file.name), delimiter

    def _parse(self, stream: io.BufferedIOBase, name: str, skip: Skip, *, is_whole: bool = True) -> Iterator[Record]:
        lines = _Lines(_text(stream), name)
        rows = _rows(lines, self._delimiter or _sniff(lines.peek()), name, is_whole=is_whole)
        header = _header(rows, name)
        blanks: list[int] = []
        for number, cells in rows:
            if not cells:  # a blank line
                if len(header) == 1:
                    blanks.append(number)
                continue
            for blank in blanks:
                if not skip.take():
                    yield Record({header[0]: ""}, blank, 0)
            blanks.clear()
            if skip.take():
                continue
            if isinstance(cells, RowFailure):
                yield Record(cells, number, 0)
            elif len(cells) != len(header):
                detail = f"{name}:{number} has {_cells(len(cells))}, the header has {len(header)}"
                yield Record(RowFailure(reason=Reason.INVALID_RECORD, detail=detail), number, 0)
            else:
                yield Record(dict(zip(header, cells)), number, sum(map(len, cells)))


class _RecordTooLong(Exception):
    """The record being read exceeds MAX_RECORD_CHARS."""


class _Lines:
    """Feeds lines to csv.reader; remembers those of the record being read, so that they can be taken back."""

    def __init__(self, text: TextIO, name: str) -> None:
        self._text = text
        self._name = name
        self._returned: deque[str] = deque()
        self._record: list[str] = []
        self._num_chars = 0
        self._is_cut = False
        self.number = 1  # of the line that comes next
        self.ended_inside = False  # the file ended while a record was open

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else self._text.readline(MAX_RECORD_CHARS + 1)
        if not line:
            self.ended_inside = bool(self._record)
            raise StopIteration
        self.number += 1
        self._record.append(line)
        self._num_chars += len(line)
        if self._num_chars > MAX_RECORD_CHARS:
            while len(line) > MAX_RECORD_CHARS and not line.endswith(("\n", "\r")):
                self._is_cut = True  # its rest is passed over
                line = self._text.readline(MAX_RECORD_CHARS + 1)
            raise _RecordTooLong
        return line

    def peek(self) -> str:
        """The next line that is not blank, or an empty string at the end; blank ones before it are dropped."""
        try:
            line = next((line for line in self if line.strip("\r\n")), "")
        except _RecordTooLong:
            raise InputError(f"the first line of {self._name} is longer than {MAX_RECORD_CHARS:,} characters") from None
        if line:
            self._returned.appendleft(line)
            self.number -= 1
        self.begin()
        return line

    def begin(self) -> None:
        """Forget the lines of the record that has been read."""
        self._record.clear()
        self._num_chars = 0
        self._is_cut = self.ended_inside = False

    def take_back(self) -> None:
        """Give up on the record being read: its first line is lost, the others come again.

        When it holds a line that was too long to keep, all of it is lost.
        """
        if not self._is_cut:
            self._returned.extendleft(reversed(self._record[1:]))
            self.number -= len(self._record) - 1
        self.begin()


def _rows(
    lines: _Lines, delimiter: str, name: str, *, is_whole: bool = True
) -> Iterator[tuple[int, list[str] | RowFailure]]:
    """Yield (line number, cells) for each row; no cells for a blank line, a failure for one that cannot be read.

    Of lines that are only the beginning of a file (not `is_whole`), an unfinished last row is left out.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_CHARS))
    reader = csv.reader(lines, delimiter=delimiter)
    num_repairs = 0
    while True:
        lines.begin()
        number = lines.number
        problem = ""
        cells: list[str] = []
        try:
            cells = next(reader)
        except StopIteration:
            return
        except _RecordTooLong:
            problem = f"is longer than {MAX_RECORD_CHARS:,} characters, or its quote is never closed"
        except csv.Error as error:
            problem = f"is not valid CSV: {error}"
        if not problem and lines.ended_inside:
            if not is_whole:
                return
            problem = "opens a quote that is never closed"
        if not problem:
            yield number, cells
            continue
        num_repairs += 1
        if num_repairs > MAX_QUOTE_REPAIRS:
            raise InputError(f"{name}:{number} {problem}, as are {MAX_QUOTE_REPAIRS} rows before; check its quoting")
        lines.take_back()
        reader = csv.reader(lines, delimiter=delimiter)
        yield number, RowFailure(reason=Reason.INVALID_RECORD, detail=f"{name}:{number} {problem}")


def _header(rows: Iterator[tuple[int, list[str] | RowFailure]], name: str) -> list[str]:
    for number, cells in rows:
        if isinstance(cells, RowFailure):
            raise InputError(f"the header cannot be read: {cells.detail}")
        if not cells:
            continue
        for cell in cells:
            if has_surrogates(cell):
                raise InputError(
                    f"{name}:{number}: the column name {cell!r} is not UTF-8; convert the file first, for example: "
                    f"iconv -f LATIN1 -t UTF-8 {name} > utf8-{name}"
                )
        repeated = [repr(cell) for cell, count in Counter(cells).items() if count > 1]
        if repeated:
            names = ", ".join(repeated)
            raise InputError(f"{name}:{number}: column names repeat: {names}; give each column its own name")
        return cells
    raise InputError(f"{name} is empty; it needs a header line with the column names")


def _sniff(header: str) -> str:
    if "," in header:
        return ","
    best = max(DELIMITER_NAMES, key=header.count)
    return best if best in header else ","


def _text(stream: io.BufferedIOBase) -> TextIO:
    # newline="" leaves line breaks inside quotes as they are
    return io.TextIOWrapper(cast("BinaryIO", stream), encoding="utf-8-sig", errors="surrogateescape", newline="")


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
