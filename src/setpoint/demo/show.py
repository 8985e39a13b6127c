"""The demonstration's table and its words, for a terminal and for `--json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from setpoint.demo.figures import Work, limit_of, mfu_of, waste_of
from setpoint.demo.race import Result
from setpoint.domain.units import format_duration
from setpoint.measure.stats import Percentile, min_samples


def print_table(console: Console, results: Sequence[Result], work: Work, peaks: Mapping[str, float | None]) -> None:
    """One row a way, made for 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("way")
    for name in ("texts/s", "median call", "p99 call", "padding", "MFU"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        repeats = result.items_per_s
        mfu = mfu_of(result, work, peaks)
        table.add_row(
            f"{result.way.title}\n[dim]{result.way.label}[/dim]",
            _two_lines(f"{repeats.median:.1f}", _range(repeats.low, repeats.high, lambda rate: f"{rate:.1f}")),
            _call(result.call_p50, result),
            _call(result.call_p99, result),
            f"{waste_of(result, work):.1%}",
            "unknown" if mfu is None else f"{mfu:.0%}",
        )
    console.print(table)
    console.print(_explanation(results, work, peaks), style="dim", highlight=False)


def _explanation(results: Sequence[Result], work: Work, peaks: Mapping[str, float | None]) -> str:
    limits = {result.way.dtype: limit_of(result, work, peaks) for result in results}
    known = ", ".join(f"{limit:.0f} in {dtype}" for dtype, limit in limits.items() if limit is not None)
    return (
        f"texts/s: median and range of {len(results[0].laps)} rounds in shuffled order, tokenizing included. A call is "
        "one batch, and every text in it waits that long; the ranges below are 95% intervals, and a p99 needs "
        f"{min_samples(0.99)} calls to have one. MFU: useful operations (linear layers and attention) a second over "
        f"the peak of matrix products measured here; at 100% it would be {known or 'unknown'} texts/s."
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


def _call(found: Percentile | None, result: Result) -> str:
    if found is None:
        return _two_lines(f"max {format_duration(result.slowest_call)}", f"{result.num_calls} calls")
    return _two_lines(format_duration(found.value), _range(found.low, found.high, format_duration))


def _two_lines(first: str, second: str) -> str:
    return f"{first}\n[dim]{second}[/dim]" if second else first


def _range(low: float | None, high: float | None, form: Callable[[float], str]) -> str:
    """`12.2–14.1 ms`: the unit once where both ends have the same."""
    if low is None or high is None:
        return ""
    (first, _, unit), (last, _, other) = form(low).partition(" "), form(high).partition(" ")
    return f"{first}–{last} {unit}".rstrip() if unit == other else f"{form(low)}–{form(high)}"
