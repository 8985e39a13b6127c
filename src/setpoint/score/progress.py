"""How a running job shows itself: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from setpoint.domain.units import format_count, format_duration, format_number, format_percent, format_rate
from setpoint.measure.clock import Clock, MonotonicClock

LINE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A job at one moment. Rows of earlier runs are among those done; rates are of this run."""

    phase: str  # "scoring", "checking what is done", "writing the output"
    rows_done: int
    total_rows: int | None
    is_total_exact: bool
    rows_failed: int
    rows_per_s: float | None
    tokens_per_s: float | None
    left_s: float | None


class Reporter(Protocol):
    """Shows a job. Called from one thread, several times a second: what it costs, the job pays."""

    def note(self, text: str) -> None:
        """Say something once."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """Show where the job is."""
        ...

    def close(self) -> None:
        """Stop showing; called however the job ends."""
        ...


class QuietReporter:
    """Shows nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing to stop."""


class LineReporter:
    """A plain line every few seconds."""

    def __init__(self, stream: TextIO, *, clock: Clock | None = None, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._clock = clock or MonotonicClock()
        self._every_s = every_s
        self._last_ns: int | None = None

    def note(self, text: str) -> None:
        """A line at once."""
        print(text, file=self._stream, flush=True)

    def show(self, snapshot: Snapshot) -> None:
        """A line if the last one, or the beginning, is long enough ago."""
        now_ns = self._clock.now_ns()
        if self._last_ns is None:
            self._last_ns = now_ns
        elif (now_ns - self._last_ns) / 1e9 >= self._every_s:
            self._last_ns = now_ns
            print(describe(snapshot), file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to stop."""


class BarReporter:
    """A bar on a terminal, by rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._console = Console(file=stream, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[figures]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=self._console,
            auto_refresh=False,  # refreshed when told: no thread of its own beside the compute
            transient=True,
        )
        self._task: Any = None

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        """Move the bar."""
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task("", total=None, figures="")
        total = snapshot.total_rows
        self._progress.update(
            self._task,
            description=snapshot.phase,
            total=None if total is None else max(total, snapshot.rows_done),
            completed=snapshot.rows_done,
            figures=describe_briefly(snapshot),
            refresh=True,
        )

    def close(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            self._progress.stop()
            self._task = None


def make_reporter(stream: TextIO, *, is_quiet: bool) -> Reporter:
    """The reporter that suits a stream, as a rule stderr."""
    if is_quiet:
        return QuietReporter()
    isatty: Callable[[], bool] = getattr(stream, "isatty", lambda: False)
    return BarReporter(stream) if isatty() else LineReporter(stream)


def describe(snapshot: Snapshot) -> str:
    """`scoring: 12,288 of 20,000 rows (61.4%), 118 rows/s, 13,400 tokens/s, 3 failed, 1 min 5 s left`."""
    parts = [_rows(snapshot)]
    if snapshot.rows_per_s is not None:
        parts.append(format_rate(snapshot.rows_per_s, "rows"))
    if snapshot.tokens_per_s is not None:
        parts.append(format_rate(snapshot.tokens_per_s, "tokens"))
    return f"{snapshot.phase}: {', '.join([*parts, *_rest(snapshot)])}"


def describe_briefly(snapshot: Snapshot) -> str:
    """`12,288/20,000 rows, 118/s, 3 failed, 1 min 5 s left`: what fits beside a bar on 80 columns."""
    done, total = format_count(snapshot.rows_done), snapshot.total_rows
    about = "" if snapshot.is_total_exact else "~"
    parts = [f"{done} rows" if total is None else f"{done}/{about}{format_count(total)} rows"]
    if snapshot.rows_per_s is not None:
        parts.append(f"{format_number(snapshot.rows_per_s)}/s")
    return ", ".join([*parts, *_rest(snapshot)])


def _rest(snapshot: Snapshot) -> list[str]:
    parts = []
    if snapshot.rows_failed:
        parts.append(f"{format_count(snapshot.rows_failed)} failed")
    if snapshot.left_s is not None:
        parts.append(f"{format_duration(round(snapshot.left_s))} left")
    return parts


def _rows(snapshot: Snapshot) -> str:
    done, total = snapshot.rows_done, snapshot.total_rows
    if total is None:
        return f"{format_count(done)} rows"
    if not snapshot.is_total_exact:
        # An estimate may fall short of what is done already; then it says nothing any more.
        return f"{format_count(done)} of about {format_count(total)} rows" if done <= total else f"{done:,} rows"
    share = done / total if total else 1.0
    return f"{format_count(done)} of {format_count(total)} rows ({format_percent(share)})"
