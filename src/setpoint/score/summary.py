"""What a job says at its end: to a person, and as JSON."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.cost.fit import FittedCost
from setpoint.domain.units import format_count, format_duration, format_percent, format_rate, format_size
from setpoint.score.forecast import TimeLeft
from setpoint.score.ledger import Ledger
from setpoint.score.meter import Activity, MeterReading

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """How fast this run was. Shares are of its wall time; threads overlap, so they do not add up to 1.

    `waiting` is the share of time in which a stream had nothing to compute, on average over the streams.
    """

    elapsed_s: float
    rows: int
    rows_per_s: float
    useful_tokens_per_s: float
    padding_waste: float
    shares: Mapping[str, float]
    peak_memory_bytes: int
    forecast: TimeLeft | None
    cost: FittedCost | None

    def to_json(self) -> dict[str, Any]:
        """As it is saved."""
        forecast, cost = self.forecast, self.cost
        return {
            "elapsed_s": round(self.elapsed_s, 3),
            "rows": self.rows,
            "rows_per_s": round(self.rows_per_s, 3),
            "useful_tokens_per_s": round(self.useful_tokens_per_s, 1),
            "padding_waste": round(self.padding_waste, 5),
            "shares": {name: round(share, 4) for name, share in self.shares.items()},
            "peak_memory_bytes": self.peak_memory_bytes,
            "forecast": None
            if forecast is None
            else {
                "low_s": round(forecast.low_s, 3),
                "mid_s": round(forecast.mid_s, 3),
                "high_s": round(forecast.high_s, 3),
            },
            "cost": None
            if cost is None
            else {
                "a_s": cost.cost.a_s,
                "b_s_per_token": cost.cost.b_s_per_token,
                "c_s_per_token2": cost.cost.c_s_per_token2,
                "median_residual": cost.median_residual,
                "p90_residual": cost.p90_residual,
                "batches": cost.num_samples,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job's outcome. `performance` is None where nothing was left to do."""

    output: str
    ledger: Ledger
    rows_resumed: int
    already_complete: bool
    columns: Mapping[str, str]  # conventional name of a result -> its name in the output
    choices: Mapping[str, Any]
    performance: Performance | None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One document: what the saved ledger has, and where the output is."""
        return {
            "schema": SCHEMA,
            "output": self.output,
            "already_complete": self.already_complete,
            "rows_resumed": self.rows_resumed,
            **self.saved(),
        }

    def saved(self) -> dict[str, Any]:
        """What the ledger beside the output has."""
        return {
            "ledger": self.ledger.to_json(),
            "columns": dict(self.columns),
            "choices": dict(self.choices),
            "performance": None if self.performance is None else self.performance.to_json(),
            "facts": dict(self.facts),
        }


def measure_performance(
    reading: MeterReading,
    *,
    num_streams: int,
    rows: int,
    forecast: TimeLeft | None,
    cost: FittedCost | None,
) -> Performance:
    """Turn a meter's last reading into figures."""
    elapsed_s = max(reading.elapsed_s, 1e-9)
    shares = {str(activity): seconds / elapsed_s for activity, seconds in reading.seconds.items()}
    shares[str(Activity.COMPUTING)] /= num_streams
    shares["waiting"] = max(0.0, 1.0 - shares[str(Activity.COMPUTING)])
    processed = reading.done.tokens
    return Performance(
        elapsed_s=reading.elapsed_s,
        rows=rows,
        rows_per_s=rows / elapsed_s,
        useful_tokens_per_s=reading.useful_tokens / elapsed_s,
        padding_waste=1.0 - reading.useful_tokens / processed if processed else 0.0,
        shares=shares,
        peak_memory_bytes=peak_memory_bytes(),
        forecast=forecast,
        cost=cost,
    )


def peak_memory_bytes() -> int:
    """The most memory this process has held at once (resident set)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB


def render(report: JobReport) -> str:
    """The summary for a person, one fact a line."""
    ledger = report.ledger
    lines = [_headline(report)]
    if report.rows_resumed and not report.already_complete:
        lines.append(f"  resumed       {format_count(report.rows_resumed)} rows were done in earlier runs")
    lines.extend(_failures(ledger))
    if ledger.truncated_rows:
        lines.append(
            f"  truncated     {format_count(ledger.truncated_rows)} rows lost "
            f"{format_count(ledger.truncated_tokens)} tokens at the model's limit (--truncation window keeps them)"
        )
    if ledger.windowed_rows:
        lines.append(f"  windowed      {format_count(ledger.windowed_rows)} rows were longer than the model's limit")
    moved = {name: shown for name, shown in report.columns.items() if not shown.endswith(name)}
    if moved:
        places = ", ".join(f"{name} is in {shown}" for name, shown in moved.items())
        lines.append(f"  columns       {places}: the input has columns of these names (--prefix chooses others)")
    if report.performance is not None:
        lines.extend(_performance(report.performance))
    return "\n".join(lines)


def _headline(report: JobReport) -> str:
    rows = format_count(report.ledger.num_rows)
    if report.already_complete:
        return f"{report.output} is already complete: {rows} rows; nothing to do"
    duration = "" if report.performance is None else f" in {format_duration(report.performance.elapsed_s)}"
    return f"{report.output}: {rows} rows{duration}"


def _failures(ledger: Ledger) -> list[str]:
    if not ledger.num_failed:
        return []
    lines = [f"  failed        {format_count(ledger.num_failed)} rows have a null and a reason:"]
    for reason, count in sorted(ledger.failures.items(), key=lambda entry: -entry[1]):
        lines.append(f"    {reason!s:<16} {format_count(count)}")
        for example in ledger.examples.get(reason, ())[:2]:
            detail = f": {example.detail}" if example.detail else ""
            lines.append(f"      row {example.row} ({example.where}){detail}")
    return lines


def _performance(found: Performance) -> list[str]:
    shares = ", ".join(
        f"{name} {format_percent(found.shares[name])}"
        for name in ("computing", "waiting", "tokenizing", "reading", "decoding", "writing")
    )
    lines = [
        f"  speed         {format_rate(found.rows_per_s, 'rows')}, "
        f"{format_rate(found.useful_tokens_per_s, 'useful tokens')}, {format_percent(found.padding_waste)} padding",
        f"  time          {shares} (threads overlap)",
        f"  peak memory   {format_size(found.peak_memory_bytes)}",
    ]
    if found.forecast is not None:
        lines.append(f"  forecast      {found.forecast}, took {format_duration(found.elapsed_s)}")
    return lines
