"""Lines of text files, read with bounded memory, and how far the reading has come."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence

from setpoint.errors import InputError
from setpoint.score.sources.files import MIB, ByteStream, Head, InputFile, reading

MAX_RECORD_CHARS = 64 * MIB  # a longer line or cell is a broken file: a quote that is never closed, no line breaks
UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
SKIPPED_BLOCK_BYTES = 4 * MIB


class Progress:
    """Share of an input's bytes that were read, over all of its files in order."""

    __slots__ = ("_done_bytes", "_stream", "_total_bytes")

    def __init__(self, files: Sequence[InputFile]) -> None:
        sizes = [file.size_bytes for file in files]
        self._total_bytes = sum(size for size in sizes if size is not None) if None not in sizes else None
        self._done_bytes = 0
        self._stream: ByteStream | None = None

    @contextlib.contextmanager
    def opened(self, file: InputFile) -> Iterator[ByteStream]:
        """Open the next file and count what is read from it; errors become InputError."""
        with reading(file.name), file.open() as stream:
            self._stream = stream
            yield stream
        self.passed(file)

    def passed(self, file: InputFile) -> None:
        """Count the file as done, whether it was read or skipped."""
        self._stream = None
        self._done_bytes += file.size_bytes or 0

    def fraction(self, _num_rows: int) -> float | None:
        """Share read so far; None for a pipe, whose end nobody knows."""
        if not self._total_bytes:
            return None
        here = self._stream.position() if self._stream is not None else 0
        return min(1.0, (self._done_bytes + here) / self._total_bytes)


def check_encoding(name: str, head: Head) -> None:
    """Refuse UTF-16, which would otherwise come out as rows of garbage."""
    if head.data.startswith(UTF16_BOMS):
        raise InputError(f"{name} is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8 {name} > utf8-{name}")


def iter_lines(stream: io.BufferedIOBase) -> Iterator[bytes | None]:
    """Yield lines without their ends (`\\n` or `\\r\\n`), without a byte-order mark, and without an empty last line.

    A line longer than MAX_RECORD_CHARS bytes comes as None; it is passed over in blocks.
    """
    is_first = True
    while line := stream.readline(MAX_RECORD_CHARS + 1):
        if is_first:
            line, is_first = line.removeprefix(UTF8_BOM), False
            if not line:
                return
        if len(line) > MAX_RECORD_CHARS and not line.endswith(b"\n"):
            while (block := stream.readline(SKIPPED_BLOCK_BYTES)) and not block.endswith(b"\n"):
                pass
            yield None
        else:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def decode(line: bytes) -> str:
    """Decode UTF-8; bytes that are not UTF-8 become lone surrogates, so that the row can be named and nothing lost."""
    return line.decode("utf-8", "surrogateescape")
