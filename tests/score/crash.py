"""A disk that fails at a chosen step: every change to it goes through a few calls of `os`, and these are counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STEPS = ("fsync", "replace", "unlink", "ftruncate", "rmdir", "open")


class Crash(BaseException):
    """The process dies here: nothing that catches Exception may see it."""


@contextmanager
def failing_disk(step: int | None, error: Callable[[], BaseException] = Crash) -> Iterator[list[str]]:
    """Raise `error()` instead of doing the `step`-th change (from 0), and at every later one.

    A dead process changes nothing more, and a full disk stays full. Yields the names of the calls as they come.
    """
    calls: list[str] = []

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(f"fsync {_file_name(args[0])}" if name == "fsync" else name)
            # What is only removed or read cannot fail for want of space.
            if step is not None and len(calls) > step and not (name == "unlink" and error is not Crash):
                raise error()
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, wrapped(name))
        yield calls


def _file_name(descriptor: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:  # not on Linux: the tests that want to know tear nothing
        return ""
