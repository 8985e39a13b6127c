"""Bounded windows over a stream: what is sorted together, and all that is ever held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from setpoint.errors import UsageError

T = TypeVar("T")


def windows(items: Iterable[T], *, num_tokens: Callable[[T], int], max_rows: int, max_tokens: int) -> Iterator[list[T]]:
    """Cut a stream into consecutive lists of at most `max_rows` items and `max_tokens` tokens.

    An item that alone has more tokens gets a list of its own; items of no tokens (failed rows) count as rows. The same
    stream gives the same windows, whoever reads them and when. A full window is handed out before the next item is
    asked for, and at most one item more than a window is held. An error of the stream passes through, and takes the
    unfinished window with it. Raises UsageError at once for a limit below 1.
    """
    for name, limit in (("max_rows", max_rows), ("max_tokens", max_tokens)):
        if limit < 1:
            raise UsageError(f"{name} of a window must be at least 1, not {limit}")
    return _windows(items, num_tokens, max_rows, max_tokens)


def _windows(items: Iterable[T], num_tokens: Callable[[T], int], max_rows: int, max_tokens: int) -> Iterator[list[T]]:
    window: list[T] = []
    tokens = 0
    for item in items:
        item_tokens = num_tokens(item)
        if window and tokens + item_tokens > max_tokens:
            yield window
            window, tokens = [], 0
        window.append(item)
        tokens += item_tokens
        if len(window) == max_rows or tokens >= max_tokens:
            yield window
            window, tokens = [], 0
    if window:
        yield window
