"""Where rows come from: files, folders, globs, URLs, stdin, databases, and Python objects.

`open_source` and `from_iterable` make a Source; they load pyarrow, so they are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from setpoint.score.sources.base import (
    Chunk,
    Segment,
    Source,
    SourceEstimate,
    choose_text_column,
    require_columns,
)

if TYPE_CHECKING:
    from setpoint.score.sources.memory import from_iterable
    from setpoint.score.sources.opening import open_source

__all__ = [
    "Chunk",
    "Segment",
    "Source",
    "SourceEstimate",
    "choose_text_column",
    "from_iterable",
    "open_source",
    "require_columns",
]


def __getattr__(name: str) -> Any:
    if name == "open_source":
        from setpoint.score.sources.opening import open_source

        return open_source
    if name == "from_iterable":
        from setpoint.score.sources.memory import from_iterable

        return from_iterable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
