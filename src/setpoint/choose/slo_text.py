"""Limits on latency as people write them: `ttft p95 < 500ms, tpot p99 < 50ms`."""

from __future__ import annotations

import re

from setpoint.domain.curve import LATENCY_METRICS
from setpoint.domain.slo import Slo
from setpoint.domain.units import format_duration, parse_duration
from setpoint.errors import UsageError, nearest

GRAMMAR = (
    "write: metric percentile < value[, ...], such as: batch p99 < 250ms\n"
    f"metrics: {', '.join(LATENCY_METRICS)}; percentiles: p50, p90, p95, p99, p99.9; units: us, ms, s, m"
)
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_TOKEN = re.compile(r"\s*(<=|<|[^\s<]+)")


def parse_slos(text: str) -> tuple[Slo, ...]:
    """Return the limits of a text, in its order; `<=` is read as `<`, which a measured interval can't tell apart.

    Raises UsageError with the place and the grammar.
    """
    slos: list[Slo] = []
    start = 0
    for part in text.split(","):
        slo = _parse_one(text, part, start)
        if any((slo.metric, slo.quantile) == (other.metric, other.quantile) for other in slos):
            name = f"{slo.metric} {format_quantile(slo.quantile)}"
            raise _error(text, start + len(part) - len(part.lstrip()), f"{name} has a limit already")
        slos.append(slo)
        start += len(part) + 1
    return tuple(slos)


def format_slo(slo: Slo) -> str:
    """Return `batch p99 < 250 ms`."""
    return f"{slo.metric} {format_quantile(slo.quantile)} < {format_duration(slo.limit_s)}"


def format_quantile(quantile: float) -> str:
    """Return `p99` for 0.99 and `p99.9` for 0.999."""
    return f"p{round(quantile * 100, 6):g}"


def _parse_one(text: str, part: str, start: int) -> Slo:
    words: list[tuple[str, int]] = []
    position = 0
    while len(words) < 3 and (match := _TOKEN.match(part, position)):
        words.append((match[1], start + match.start(1)))
        position = match.end()
    end = start + len(part.rstrip())
    metric, metric_at = words[0] if words else ("", end)
    if metric not in LATENCY_METRICS:
        what = f"unknown metric {metric!r}{nearest(metric, LATENCY_METRICS)}" if metric else "a metric is missing"
        raise _error(text, metric_at, what)
    percentile, percentile_at = words[1] if len(words) > 1 else ("", end)
    if percentile not in _QUANTILES:
        is_missing = percentile in ("", "<", "<=")
        what = "a percentile is missing" if is_missing else f"unknown percentile {percentile!r}"
        raise _error(text, percentile_at, f"{what}{'' if is_missing else nearest(percentile, _QUANTILES)}")
    sign, sign_at = words[2] if len(words) > 2 else ("", end)
    if sign not in ("<", "<="):
        raise _error(text, sign_at, "'<' is missing")
    rest = part[position:]
    value = rest.strip()
    value_at = start + position + len(rest) - len(rest.lstrip())
    if not value:
        raise _error(text, end, "a value is missing")
    try:
        limit_s = parse_duration(value, key="value")
    except UsageError as error:
        raise _error(text, value_at, str(error).split("; a duration")[0].split(" a duration")[0]) from None
    if limit_s <= 0:
        raise _error(text, value_at, "a limit must be more than 0")
    return Slo(metric=metric, quantile=_QUANTILES[percentile], limit_s=limit_s)


def _error(text: str, position: int, what: str) -> UsageError:
    shown = re.sub(r"\s", " ", text)  # one column a character, so that the caret stands below its place
    return UsageError(f"slo: {what}\n  {shown}\n  {' ' * position}^\n{GRAMMAR}")
