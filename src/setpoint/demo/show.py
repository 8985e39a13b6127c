"""The demonstration's table and its words, for a terminal and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from setpoint.demo.figures import Work, limit_of, mfu_of, waste_of
from setpoint.demo.race import Result
from setpoint.domain.units import format_duration
from setpoint.measure.stats import Percentile, min_samples


def print_table(console: Console, results: Sequence[Result], work: Work, peaks: Mapping[str, float | None]) -> None:
    """One row a way."""
    table = Table(title=None, expand=False, pad_edge=False)
    for name in ("way", "with"):
        table.add_column(name, overflow="fold")
    for name in ("texts/s", "median call", "p99 call", "padding", "MFU", "limit texts/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        repeats = result.items_per_s
        spread = "" if repeats.low is None or repeats.high is None else f"\n{repeats.low:.1f}–{repeats.high:.1f}"
        mfu, limit = mfu_of(result, work, peaks), limit_of(result, work, peaks)
        table.add_row(
            result.way.title,
            result.way.tool,
            f"{repeats.median:.1f}{spread}",
            _percentile(result.call_p50, result, 0.5),
            _percentile(result.call_p99, result, 0.99),
            f"{waste_of(result, work):.1%}",
            "–" if mfu is None else f"{mfu:.0%}",
            "–" if limit is None else f"{limit:.0f}",
        )
    console.print(table)
    console.print(
        f"texts/s: median and 95% interval of {len(results[0].laps)} rounds, tokenizing included. A call is one batch: "
        "every text in it waits that long;\nintervals are of order statistics, and a p99 needs "
        f"{min_samples(0.99)} calls. MFU: operations on useful tokens (linear layers and attention) a second,\n"
        "over the peak of matrix products measured here in the same dtype; limit: what MFU 100% would give.",
        style="dim",
        highlight=False,
    )


def to_json(results: Sequence[Result], work: Work, peaks: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """The same figures as data, with every lap's raw seconds."""
    return [
        {
            "way": result.way.title,
            "tool": result.way.tool,
            "dtype": result.way.dtype,
            "items_per_s": {
                "median": result.items_per_s.median,
                "low": result.items_per_s.low,
                "high": result.items_per_s.high,
            },
            "call_s": {"p50": _as_json(result.call_p50), "p99": _as_json(result.call_p99), "max": result.slowest_call},
            "num_calls": result.num_calls,
            "padding_waste": waste_of(result, work),
            "mfu": mfu_of(result, work, peaks),
            "limit_items_per_s": limit_of(result, work, peaks),
            "lap_s": [lap.seconds for lap in result.laps],
        }
        for result in results
    ]


def _as_json(found: Percentile | None) -> dict[str, float | int] | None:
    if found is None:
        return None
    return {"value": found.value, "low": found.low, "high": found.high, "num_samples": found.num_samples}


def _percentile(found: Percentile | None, result: Result, q: float) -> str:
    if found is None:
        return f"–\n{result.num_calls} calls" if q > 0.5 else "–"
    return f"{format_duration(found.value)}\n{format_duration(found.low)}–{format_duration(found.high)}"
