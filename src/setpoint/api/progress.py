"""A progress bar on stderr for those who ask for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def progress(results: Iterator[T], *, shown: bool) -> Iterator[T]:
    """Pass results on, counting them in a bar if `shown`."""
    if not shown:
        return results
    return _counted(results)


def _counted(results: Iterator[T]) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,} rows"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        counter = bar.add_task("rows")
        for result in results:
            yield result
            bar.advance(counter)
