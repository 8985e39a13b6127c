"""One job at a time may write a state folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from setpoint.errors import OutputError

_MAX_TRIES = 100


class FolderLock:
    """An advisory lock on a file in a folder; the system lets go of it when the process ends, however it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, path: Path, *, purpose: str) -> FolderLock:
        """Take the lock, making its folder if need be. Never waits.

        Raises OutputError that names the process that has it, and OSError where the folder cannot be written.
        """
        for _ in range(_MAX_TRIES):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # a job that has just finished removed the folder
                continue
            with contextlib.ExitStack() as undo:
                undo.callback(os.close, descriptor)
                _lock(path, descriptor, purpose)
                # A job that has just finished may have removed the file that is now locked: then take the new one.
                if _is_still_there(path, descriptor):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                    undo.pop_all()
                    return cls(path, descriptor)
        raise OutputError(f"cannot lock {path}: other jobs keep removing it; choose another output")

    def release(self) -> None:
        """Let go of it; harmless when done twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(path: Path, descriptor: int, purpose: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise OutputError(
            f"another job (process {holder}) is writing {purpose}; wait for it, or choose another output"
        ) from None
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise OutputError(f"cannot lock {path} ({reason}); put the output on a disk that has file locks") from error


def _is_still_there(path: Path, descriptor: int) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(descriptor))
