"""What a benchmark prints: plain tables, and one JSON line at the very end of stdout."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.measure.stats import Repeats


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need be; the first to the left, the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    told = []
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        told.append("  ".join(cells).rstrip())
    told.insert(1, "-" * max(map(len, told)))
    return "\n".join(told)


def show(found: Repeats | None, *, digits: int = 1) -> str:
    """A median with its interval, `123.4 (120.1–125.0)`; a dash where there is none."""
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.median:.{digits}f}"
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}–{found.high:.{digits}f})"


def plain(found: Repeats | None) -> dict[str, Any] | None:
    """The same for JSON."""
    if found is None:
        return None
    return {
        "median": rounded(found.median),
        "low": rounded(found.low),
        "high": rounded(found.high),
        "repeats": found.num_repeats,
    }


def rounded(value: float | None) -> float | None:
    """Four significant digits or more; None for what is not a number, which JSON has no word for."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def json_line(
    bench: str,
    *,
    environment: Mapping[str, Any],
    figures: Mapping[str, Any],
    ratios: Mapping[str, float | None],
    targets: Mapping[str, float],
) -> str:
    """The last line of stdout. Raises ValueError for a target without a ratio of its name."""
    lost = [key for key in targets if key not in ratios]
    if lost:
        raise ValueError(f"targets without a ratio: {', '.join(lost)}")
    told = {
        "bench": bench,
        "environment": environment,
        "figures": figures,
        "ratios": {key: rounded(value) for key, value in ratios.items()},
        "targets": dict(targets),
    }
    return json.dumps(told, ensure_ascii=False, allow_nan=False)
