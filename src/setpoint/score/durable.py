"""Writing files so that a crash at any moment leaves either the old state or the new one, never half of it.

Two ways to change the disk, and no third:

    write_atomic    tmp file, fsync, rename over the target, fsync of the folder
    append_durable  append and fsync; whoever reads drops a torn end

A file that carries the suffix `.tmp` is never read: it is what a crash left behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TMP_SUFFIX = ".tmp"

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Let `write` fill a new file, put it in the place of `path` in one step, and return its size in bytes.

    Raises what `write` raises, and OSError; the file of before is untouched then.
    """
    tmp = path.with_name(path.name + TMP_SUFFIX)
    try:
        with open(tmp, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size_bytes = os.fstat(file.fileno()).st_size
        os.replace(tmp, path)
    except Exception:
        with contextlib.suppress(OSError):
            os.unlink(tmp)
        raise
    fsync_folder(path.parent)
    return size_bytes


def append_durable(file: BinaryIO, data: bytes) -> None:
    """Append `data` to an unbuffered file open for appending and wait until the disk has it. Raises OSError."""
    view = memoryview(data)
    while view:
        written = file.write(view)
        view = view[written:]
    os.fsync(file.fileno())


def rename_durable(source: Path, target: Path) -> None:
    """Rename within a filesystem, replacing a file in the way, and wait until the disk has it. Raises OSError."""
    os.replace(source, target)
    fsync_folder(target.parent)


def fsync_file(path: Path) -> None:
    """Wait until the disk has the file's content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries: without it a rename may be lost with the power."""
    fsync_file(folder)


def explain(error: OSError, path: Path | str) -> str:
    """Say what went wrong with a file in a person's words, without what to do about it."""
    place = str(error.filename) if isinstance(error.filename, str) else str(path)
    if error.errno in _FULL:
        return f"no space left on the disk that holds {place}"
    if error.errno in _FORBIDDEN:
        return f"not allowed to write {place} ({os.strerror(error.errno)})"
    reason = os.strerror(error.errno) if error.errno is not None else str(error)
    return f"cannot write {place}: {reason}"
