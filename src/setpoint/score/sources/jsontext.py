"""JSON lines, and files that hold one JSON array of objects.

A line is an object, or a string, which stands for `{"text": string}`; anything else is an invalid record, and so is
a line that does not parse. Blank lines, inside and at the end, are not rows. NaN and Infinity are read as Python reads
them. Of an array, a broken element means that the rest cannot be found, so the input fails there, by line.
"""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.domain.row import Reason, RowFailure
from setpoint.errors import InputError
from setpoint.score.sources.files import HEAD_BYTES, MAX_HEAD_BYTES, MIB, Head, InputFile
from setpoint.score.sources.lines import MAX_RECORD_CHARS, UTF8_BOM, Progress, check_encoding, decode, iter_lines
from setpoint.score.sources.rows import Record, Skip
from setpoint.score.sources.textual import TEXT, too_long
from setpoint.score.sources.values import has_surrogates

MAX_SAMPLED_ROWS = 1000
BLOCK_BYTES = MIB
WHITESPACE = " \t\n\r"
KIND_NAMES = {list: "a list", int: "a number", float: "a number", bool: "true or false", type(None): "null"}


class JsonLinesReader:
    """Reads .jsonl and .ndjson."""

    are_lines = True

    def columns(self, file: InputFile) -> list[str]:
        """All fields of the first rows (1,000, or 1 MiB of them), in order of appearance."""
        head = file.head()
        check_encoding(file.name, head)
        if not head.is_whole and head.data.count(b"\n") < 2:
            head = file.head(MAX_HEAD_BYTES)
        return _fields(self._parse(io.BytesIO(head.data), file.name, Skip(0)), is_whole=head.is_whole)

    def notes(self, file: InputFile) -> list[str]:
        """Nothing is guessed."""
        return []

    def records(self, file: InputFile, skip: Skip, progress: Progress) -> Iterator[Record]:
        """Yield a record for each row after those to skip."""
        with progress.opened(file) as stream:
            yield from self._parse(stream.reader, file.name, skip)

    def count(self, file: InputFile, head: Head) -> int:
        """How many whole rows there are in the head."""
        num_rows = sum(1 for line in iter_lines(io.BytesIO(head.data)) if line is None or line.strip())
        return num_rows if head.is_whole else max(0, num_rows - 1)

    def _parse(self, stream: io.BufferedIOBase, name: str, skip: Skip) -> Iterator[Record]:
        for number, line in enumerate(iter_lines(stream), start=1):
            if line is not None and not line.strip():
                continue
            if skip.take():
                continue
            where = f"{name}:{number}"
            if line is None:
                yield Record(too_long(where), number, 0)
            else:
                yield Record(parse_line(line, where), number, len(line))


class JsonReader:
    """Reads .json: an array of objects or strings, streamed; or JSON lines under that name."""

    are_lines = True

    def __init__(self) -> None:
        self._lines = JsonLinesReader()

    def columns(self, file: InputFile) -> list[str]:
        """All fields of the first elements, in order of appearance."""
        head = file.head()
        check_encoding(file.name, head)
        if not self._is_array(file, head):
            return self._lines.columns(file)
        fields = self._sampled_fields(file, head)
        if not fields and not head.is_whole and len(head.data) >= HEAD_BYTES:
            fields = self._sampled_fields(file, file.head(MAX_HEAD_BYTES))
        return fields

    def notes(self, file: InputFile) -> list[str]:
        """Say so when a .json file is read as lines."""
        return [] if self._is_array(file, file.head()) else [f"{file.name} holds no array; it is read as JSON lines"]

    def records(self, file: InputFile, skip: Skip, progress: Progress) -> Iterator[Record]:
        """Yield a record for each element after those to skip."""
        if not self._is_array(file, file.head()):
            yield from self._lines.records(file, skip, progress)
            return
        with progress.opened(file) as stream:
            for record in _parse_array(stream.reader, file.name):
                if not skip.take():
                    yield record

    def count(self, file: InputFile, head: Head) -> int:
        """How many whole elements there are in the head."""
        if not self._is_array(file, head):
            return self._lines.count(file, head)
        return sum(1 for _ in _parse_array(io.BytesIO(head.data), file.name, is_whole=head.is_whole))

    def _sampled_fields(self, file: InputFile, head: Head) -> list[str]:
        return _fields(_parse_array(io.BytesIO(head.data), file.name, is_whole=head.is_whole), is_whole=True)

    def _is_array(self, file: InputFile, head: Head) -> bool:
        start = head.data.removeprefix(UTF8_BOM).lstrip()
        if start.startswith(b"["):
            return True
        first_line = start.split(b"\n", 1)[0].strip()
        if start.startswith(b"{") and b"\n" in start and not first_line.endswith(b"}"):
            raise InputError(f"{file.name} is one JSON object; it must be an array of objects, or one object a line")
        return False


def parse_line(line: bytes, where: str) -> Mapping[str, Any] | RowFailure:
    """Parse one JSON line into fields, or say what is wrong with it."""
    try:
        value = json.loads(decode(line))
    except json.JSONDecodeError as error:
        return _invalid(f"{where}: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return _invalid(f"{where}: {error}")
    return _as_fields(value, where)


def _as_fields(value: Any, where: str) -> Mapping[str, Any] | RowFailure:
    if isinstance(value, dict):
        if not all(map(str.isascii, value)) and any(map(has_surrogates, value)):
            return _invalid(f"{where}: a field name is not valid Unicode")
        return value
    if isinstance(value, str):
        return {TEXT: value}
    return _invalid(f"{where}: expected an object, found {KIND_NAMES[type(value)]}")


def _invalid(detail: str) -> RowFailure:
    return RowFailure(reason=Reason.INVALID_RECORD, detail=detail)


def _fields(records: Iterator[Record], *, is_whole: bool) -> list[str]:
    fields: dict[str, None] = {}
    for i, record in enumerate(records):
        if i == MAX_SAMPLED_ROWS:
            break
        if not isinstance(record.value, RowFailure):  # a last line that is cut off does not parse either
            fields.update(dict.fromkeys(record.value))
    return list(fields)


class _ArrayText:
    """A window over the text of an array: what has been read and not yet been taken."""

    def __init__(self, stream: io.BufferedIOBase, *, is_whole: bool) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        self._is_whole = is_whole
        self.text = ""
        self.at = 0
        self.line = 1
        self.has_ended = False

    def grow(self) -> bool:
        """Read on, at least doubling the window; whether there was more."""
        size = max(BLOCK_BYTES, len(self.text) - self.at)
        block = self._stream.read(size)
        self.has_ended = not block
        more = self._decoder.decode(block, final=self.has_ended and self._is_whole)
        self.text, self.at = self.text[self.at :] + more, 0
        return bool(block)

    def skip(self, signs: str) -> str:
        """Pass over whitespace and `signs`; returns the character that comes next, or an empty string at the end."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in signs:
                self.line += self.text[self.at] == "\n"
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.grow():
                return ""

    def take(self, end: int) -> int:
        """Take the text up to `end`; returns how many characters that is."""
        self.line += self.text.count("\n", self.at, end)
        length, self.at = end - self.at, end
        return length


def _parse_array(stream: io.BufferedIOBase, name: str, *, is_whole: bool = True) -> Iterator[Record]:
    """Yield the elements of the array; of a beginning only (not `is_whole`), those that are complete."""
    window = _ArrayText(stream, is_whole=is_whole)
    decoder = json.JSONDecoder()
    window.skip(WHITESPACE)
    window.take(window.at + 1)  # the opening bracket
    is_first = True
    while True:
        sign = window.skip(WHITESPACE)
        if not is_first and sign == ",":
            window.take(window.at + 1)
            sign = window.skip(WHITESPACE)
        elif not is_first and sign not in ("]", ""):
            raise InputError(f"{name}:{window.line}: expected a comma between two elements, found {sign!r}")
        if sign == "]":
            window.take(window.at + 1)
            if window.skip(WHITESPACE):
                raise InputError(f"{name}:{window.line}: there is more after the end of the array")
            return
        if sign == "":
            if is_whole:
                raise InputError(f"{name}:{window.line}: the array is not closed; the file is cut off")
            return
        found = _decode_element(decoder, window, name, is_whole=is_whole)
        if found is None:
            return
        value, end = found
        number = window.line
        num_chars = window.take(end)
        yield Record(_as_fields(value, f"{name}:{number}"), number, num_chars)
        is_first = False


def _decode_element(
    decoder: json.JSONDecoder, window: _ArrayText, name: str, *, is_whole: bool
) -> tuple[Any, int] | None:
    """Decode the element at the window's start, reading on until it is complete; None where the beginning ends."""
    while True:
        problem = "unfinished"
        try:
            value, end = decoder.raw_decode(window.text, window.at)
            if end < len(window.text) or window.has_ended:
                return value, end  # else a number may go on in the next block
        except json.JSONDecodeError as error:
            problem = error.msg
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}:{window.line}: {error}") from error
        if len(window.text) - window.at > MAX_RECORD_CHARS:
            raise InputError(f"{name}:{window.line}: an element is longer than {MAX_RECORD_CHARS:,} characters")
        if not window.grow():
            if not is_whole:
                return None
            if problem != "unfinished":
                raise InputError(f"{name}:{window.line}: {problem}; the rest of the array cannot be read")
