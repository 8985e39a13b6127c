"""A sweep as it goes, on a terminal: the curve as a table that fills, and where the time goes.

Without a terminal, a line for each tenth of the budget.
"""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from setpoint.domain.curve import Estimate, Point
from setpoint.domain.units import format_duration
from setpoint.measure.sweep.plan import SweepState

_BAR = 24
_STEPS = 10


class SweepView:
    """Shows a sweep on `stream`; a context manager around the sweep itself."""

    def __init__(self, stream: TextIO, *, is_quiet: bool) -> None:
        self._console = Console(file=stream, highlight=False)
        self._is_quiet = is_quiet
        self._live: Live | None = None
        self._step = -1

    def note(self, text: str) -> None:
        """Say something once."""
        if not self._is_quiet:
            self._console.print(text, markup=False)

    def show(self, state: SweepState) -> None:
        """Show where the sweep is."""
        if self._live is not None:
            self._live.update(Group(table(state), status(state)))
        elif not self._is_quiet:
            step = int(_STEPS * state.spent_s / state.budget_s)
            if step > self._step:
                self._step = step
                self._console.print(status(state))

    def __enter__(self) -> SweepView:
        if self._console.is_terminal and not self._is_quiet:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def table(state: SweepState) -> Table:
    """The points so far, the fastest with the longest bar."""
    rates = [_rate(each.point) for each in state.points if each.point is not None]
    best = max((rate.value for rate in rates if rate is not None), default=0.0)
    found = Table(box=None, pad_edge=False)
    for title in ("setting", "tokens/s", "", "batch p50", "visits", "verdict"):
        found.add_column(title, justify="right" if title in ("tokens/s", "batch p50", "visits") else "left")
    for each in state.points:
        point = each.point
        rate = None if point is None else _rate(point)
        marker = "> " if each.planned.key == state.current else "  "
        found.add_row(
            marker + each.planned.key,
            "" if rate is None else f"{rate.value:,.0f}",
            "" if rate is None or not best else "━" * max(1, round(_BAR * rate.value / best)),
            "" if point is None else _median(point),
            str(each.num_visits),
            "" if point is None else str(point.verdict),
            style=None if point is None or point.is_valid else "dim",
        )
    return found


def status(state: SweepState) -> Text:
    """One line: time and visits."""
    num_valid = sum(each.point is not None and each.point.is_valid for each in state.points)
    return Text(
        f"{format_duration(state.spent_s)} of {format_duration(state.budget_s)}, {state.num_visits} visits, "
        f"{num_valid} of {len(state.points)} points valid"
    )


def _rate(point: Point) -> Estimate | None:
    return point.throughput.get("tokens_per_s")


def _median(point: Point) -> str:
    found = next(iter(point.latency_s.values()), None)
    median = None if found is None else found.quantiles.get(0.5)
    return "" if median is None else format_duration(median.value)
