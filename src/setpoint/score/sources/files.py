"""Files by path, folder, glob or URL: found, opened, decompressed, sampled and fingerprinted.

Local paths and URLs take one road, pyarrow's filesystems; a scheme that pyarrow does not know goes through fsspec
where that is installed. What can be read only once (stdin, a FIFO) is a `Pipe`, whose beginning is kept so that it
can be looked at before it is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs

from setpoint.errors import InputError
from setpoint.score.sources.base import JSON

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}

MIB = 1024 * 1024
HEAD_BYTES = MIB
MAX_HEAD_BYTES = 64 * MIB
FULL_DIGEST_BYTES = 1024 * MIB
FULL_DIGEST_BYTES_REMOTE = 64 * MIB
DIGEST_BLOCKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The decompressed beginning of a file, and how many bytes of the file itself that took."""

    data: bytes
    num_file_bytes: int
    is_whole: bool


@dataclass(slots=True)
class ByteStream:
    """A file open for reading once, decompressed; `position` says how many bytes of the file itself were taken."""

    reader: io.BufferedIOBase
    position: Callable[[], int]
    close: Callable[[], None]

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file that can be opened again and again. `name` is for messages, `spec` the path as it was given."""

    name: str
    spec: str
    path: str
    filesystem: pafs.FileSystem
    size_bytes: int | None
    compression: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    def open(self) -> ByteStream:
        """Open from the beginning. Raises InputError."""
        with reading(self.name):
            raw = self.filesystem.open_input_file(self.path)  # an input stream could not tell its position
            return _byte_stream(raw, self.compression)

    def open_random(self) -> pa.NativeFile:
        """Open for random access, undecompressed (Parquet and Arrow files). Raises InputError."""
        with reading(self.name):
            return self.filesystem.open_input_file(self.path)

    def head(self, num_bytes: int = HEAD_BYTES) -> Head:
        """Read the first `num_bytes` of the content."""
        with reading(self.name), self.open() as stream:
            data = stream.reader.read(num_bytes)
            taken = len(data) if self.compression is None else stream.position()
            return Head(data=data, num_file_bytes=taken, is_whole=not stream.reader.read(1))

    def identity(self) -> dict[str, JSON]:
        """Path as given, size, and a digest of the content.

        All of the content up to 1 GiB (64 MiB for a file that is not on this machine); beyond that the size and 66
        blocks of 1 MiB: the first, the last, and 64 spread evenly between.
        """
        with reading(self.name), self.filesystem.open_input_file(self.path) as file:
            size = file.size()
            limit = FULL_DIGEST_BYTES if self.is_local else FULL_DIGEST_BYTES_REMOTE
            digest = hashlib.blake2b(digest_size=20)
            if size <= limit:
                while block := file.read(4 * MIB):
                    digest.update(block)
            else:
                for i in range(DIGEST_BLOCKS + 2):
                    file.seek((size - MIB) * i // (DIGEST_BLOCKS + 1))
                    digest.update(file.read(MIB))
            return {"path": self.spec, "size_bytes": size, "blake2b": digest.hexdigest()}


@dataclass(slots=True, kw_only=True)
class Pipe:
    """What can be read only once: stdin, a FIFO, a process substitution.

    Opened by `opener` when first needed, and closed at its end unless it is `borrowed`.
    """

    name: str
    opener: Callable[[], BinaryIO]
    borrowed: bool = False
    compression: str | None = None
    size_bytes: int | None = None
    _stream: ByteStream | None = field(default=None, init=False)
    _head: bytearray = field(default_factory=bytearray, init=False)
    _head_is_whole: bool = field(default=False, init=False)
    _was_read: bool = field(default=False, init=False)

    def head(self, num_bytes: int = HEAD_BYTES) -> Head:
        """Look at the first `num_bytes`; waits until they have come or the pipe has ended."""
        with reading(self.name):
            stream = self._open_once()
            while len(self._head) < num_bytes and not self._head_is_whole and not self._was_read:
                block = stream.reader.read1(num_bytes - len(self._head))
                self._head += block
                self._head_is_whole = not block
            if self._head_is_whole:
                self._close()
            data = bytes(self._head[:num_bytes])
            is_whole = self._head_is_whole and len(self._head) <= num_bytes
            return Head(data=data, num_file_bytes=len(data), is_whole=is_whole)

    def open(self) -> ByteStream:
        """Read from the beginning: once, or again as long as all that came fitted into the part that is kept."""
        with reading(self.name):
            stream = self._open_once()
        if self._head_is_whole:
            return ByteStream(io.BytesIO(bytes(self._head)), lambda: 0, lambda: None)
        if self._was_read:
            raise InputError(f"{self.name} can be read only once; save it to a file to read it again")
        self._was_read = True
        joined = io.BufferedReader(_Joined(bytes(self._head), stream.reader), MIB)
        return ByteStream(joined, lambda: 0, self._close)

    def open_random(self) -> pa.NativeFile:
        """Not possible."""
        raise InputError(f"{self.name} is a stream, and this format must be read from a file; save it to a file first")

    def identity(self) -> dict[str, JSON]:
        """The name alone: reading it would use it up."""
        return {"path": self.name}

    def _open_once(self) -> ByteStream:
        if self._stream is None:
            raw = self.opener()
            if self.compression is None and hasattr(raw, "peek"):
                start = raw.peek(4)[:4]
                self.compression = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
            self._stream = _byte_stream(raw, self.compression)
        return self._stream

    def _close(self) -> None:
        if self._stream is not None and not self.borrowed:
            self._stream.close()


InputFile: TypeAlias = StoredFile | Pipe


class _Joined(io.RawIOBase):
    """The part that was looked at, then the rest."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase) -> None:
        self._head = memoryview(head)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        block = self._rest.read1(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _byte_stream(raw: Any, compression: str | None) -> ByteStream:
    source = raw if compression is None else pa.CompressedInputStream(raw, compression)
    reader = io.BufferedReader(source, MIB) if isinstance(source, pa.NativeFile) else source  # it has no readline
    position = raw.tell if _can_tell(raw) else lambda: 0

    def close() -> None:
        reader.close()
        raw.close()

    return ByteStream(reader, position, close)


def _can_tell(raw: Any) -> bool:
    try:
        raw.tell()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn what goes wrong while the file `name` is read into an InputError that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{name} is not there any more; put it back and run the same command again") from error
    except PermissionError as error:
        raise InputError(f"no permission to read {name}; check its mode and owner") from error
    except IsADirectoryError as error:
        raise InputError(f"{name} is a folder, and a file was expected") from error
    except UnicodeError as error:
        raise InputError(f"the name of {name!a}, or of a file in it, is not UTF-8; rename it") from error
    except pa.ArrowInvalid as error:
        raise InputError(f"{name} is damaged or in another format: {first_line(error)}") from error
    except (OSError, EOFError) as error:
        if "Truncated" in str(error) or isinstance(error, EOFError):
            raise InputError(f"{name} is cut off: its compressed data end too early; fetch it again") from error
        raise InputError(f"{name} cannot be read: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the trace that C++ libraries append."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def split_ending(path: str) -> tuple[str, str | None]:
    """Return the ending that names the format, in lower case, and the compression: `a.csv.gz` -> `.csv`, `gzip`."""
    pure = PurePosixPath(path.replace("\\", "/"))
    compression = COMPRESSIONS.get(pure.suffix.lower())
    if compression is not None:
        pure = pure.with_suffix("")
    return pure.suffix.lower(), compression
