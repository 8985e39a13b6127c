"""Plain text: a row a line, or a row a file. The column is `text`; documents also have `path`."""

from __future__ import annotations

import io
from collections.abc import Iterator

from setpoint.domain.row import Reason, RowFailure
from setpoint.score.sources.files import Head, InputFile
from setpoint.score.sources.lines import (
    MAX_RECORD_CHARS,
    UTF8_BOM,
    Progress,
    check_encoding,
    decode,
    iter_lines,
)
from setpoint.score.sources.rows import Record, Skip

TEXT = "text"
PATH = "path"


class LineReader:
    """A row a line, without the line's end; blank lines are rows too, so that row n is line n."""

    are_lines = True

    def columns(self, file: InputFile) -> list[str]:
        """The single column."""
        check_encoding(file.name, file.head())
        return [TEXT]

    def notes(self, file: InputFile) -> list[str]:
        """Nothing is guessed."""
        return []

    def records(self, file: InputFile, skip: Skip, progress: Progress) -> Iterator[Record]:
        """Yield a record for each line after those to skip."""
        with progress.opened(file) as stream:
            for number, line in enumerate(iter_lines(stream.reader), start=1):
                if skip.take():
                    continue
                if line is None:
                    yield Record(too_long(f"{file.name}:{number}"), number, 0)
                else:
                    text = decode(line)
                    yield Record({TEXT: text}, number, len(text))

    def count(self, file: InputFile, head: Head) -> int:
        """How many whole lines there are in the head."""
        num_lines = sum(1 for _ in iter_lines(io.BytesIO(head.data)))
        return num_lines if head.is_whole else max(0, num_lines - 1)


class DocumentReader:
    """A row a file: its path as found, and all of its text, verbatim."""

    are_lines = False

    def columns(self, file: InputFile) -> list[str]:
        """The two columns."""
        return [PATH, TEXT]

    def notes(self, file: InputFile) -> list[str]:
        """Nothing is guessed."""
        return []

    def records(self, file: InputFile, skip: Skip, progress: Progress) -> Iterator[Record]:
        """Yield the one record of this file, unless it is to be skipped; then the file is not opened."""
        if skip.take():
            progress.passed(file)
            return
        with progress.opened(file) as stream:
            data = stream.reader.read(MAX_RECORD_CHARS + 1)
            if len(data) > MAX_RECORD_CHARS:
                yield Record(too_long(file.name), 1, 0)
                return
            check_encoding(file.name, Head(data=data[:2], num_file_bytes=2, is_whole=False))
            text = decode(data.removeprefix(UTF8_BOM))
            yield Record({PATH: file.name, TEXT: text}, 1, len(text))

    def count(self, file: InputFile, head: Head) -> int:
        """One."""
        return 1


def too_long(where: str) -> RowFailure:
    """The failure of a record that is longer than can be read."""
    detail = f"{where} is longer than {MAX_RECORD_CHARS:,} bytes"
    return RowFailure(reason=Reason.INVALID_RECORD, detail=detail)
