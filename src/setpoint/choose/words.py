"""A choice in words, for a terminal: short lines."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from setpoint.choose.choice import Choice, Floor, Inconclusive
from setpoint.choose.slo_text import format_quantile, format_slo
from setpoint.domain.curve import Estimate, Point
from setpoint.domain.units import format_count, format_duration, format_percent, format_rate

_UNITS = {"tokens_per_s": "tokens", "items_per_s": "items"}
_ROLES = {
    "batch-1": "batch 1",
    "default": "default",
    "maximum": "maximum",
    "lower-neighbour": "next below",
    "upper-neighbour": "next above",
}
_NUM_SHOWN = 3
_WIDTH = 80


def explain(choice: Choice) -> str:
    """Return what was chosen, its figures with intervals, why, and what the other settings would have cost."""
    lines = [f"no setting chosen: {choice.reason}"] if choice.point is None else _chosen(choice, choice.point)
    if choice.infeasible is not None:
        lines.extend(f"  {floor_text(floor)}" for floor in choice.infeasible.floors)
        if len(choice.infeasible.floors) > 1:
            lines.append("  (each floor on its own; one setting must meet all limits)")
    lines.extend(_inconclusive(choice))
    return "\n".join(lines)


def floor_text(floor: Floor) -> str:
    """Return `the floor of batch p99 is 12 ms (11 ms to 13 ms), at batch_size=1`."""
    name = f"{floor.slo.metric} {format_quantile(floor.slo.quantile)}"
    if floor.point is None or floor.estimate is None:
        return f"the floor of {name} is unknown: no setting has samples enough"
    return f"the floor of {name} is {_interval(floor.estimate, format_duration)}, at {floor.point.key}"


def _chosen(choice: Choice, point: Point) -> list[str]:
    unit = _UNITS[choice.throughput_name]
    lines = [f"chosen: {point.key}", *textwrap.wrap(f"why: {choice.reason}", _WIDTH, subsequent_indent="  ")]
    lines.append(f"  throughput  {_interval(point.throughput[choice.throughput_name], lambda v: format_rate(v, unit))}")
    for metric, distribution in point.latency_s.items():
        for quantile, estimate in sorted(distribution.quantiles.items()):
            told = "too few samples" if estimate is None else _interval(estimate, format_duration)
            lines.append(f"  {metric} {format_quantile(quantile)}  {told}")
    if choice.alternatives:
        metric = f"{choice.latency_metric} {format_quantile(choice.latency_quantile)}"
        lines.append(f"instead (throughput, {metric}):" if choice.latency_metric else "instead (throughput):")
    for other in choice.alternatives:
        parts = [f"{format_rate(other.throughput, unit)} ({_change(other.throughput_change)})"]
        if other.latency_s is not None:
            change = "" if other.latency_change is None else f" ({_change(other.latency_change)})"
            parts.append(f"{format_duration(other.latency_s)}{change}")
        lines.append(f"  {_ROLES[other.role]}: {_setting(other.setting, point.setting)}: {', '.join(parts)}")
    return lines


def _inconclusive(choice: Choice) -> list[str]:
    """Those that would have been better than what was chosen, the fastest first."""
    name = choice.throughput_name

    def speed(item: Inconclusive) -> float:
        return item.point.throughput[name].value

    least = 0.0 if choice.point is None else choice.point.throughput[name].value
    found = sorted((item for item in choice.inconclusive if speed(item) > least), key=speed, reverse=True)
    lines = [f"inconclusive: {_unsure(item)}" for item in found[:_NUM_SHOWN]]
    if len(found) > _NUM_SHOWN:
        lines.append(f"inconclusive: and {len(found) - _NUM_SHOWN} more")
    return lines


def _unsure(item: Inconclusive) -> str:
    more = item.num_more_samples
    needs = "more samples may not tell" if more is None else f"about {format_count(more)} more samples"
    told = "withheld" if item.estimate is None else _interval(item.estimate, format_duration)
    return f"{item.point.key}, {format_slo(item.slo)}: {told}; {needs}"


def _interval(estimate: Estimate, shown: Callable[[float], str]) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{shown(estimate.value)} (no interval)"
    return f"{shown(estimate.value)} ({shown(estimate.low)} to {shown(estimate.high)})"


def _change(share: float) -> str:
    return f"+{format_percent(share)}" if share >= 0 else format_percent(share)


def _setting(setting: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """Only what differs from the chosen setting."""
    differing = {name: value for name, value in setting.items() if chosen.get(name) != value}
    return " ".join(f"{name}={value}" for name, value in sorted((differing or setting).items()))
