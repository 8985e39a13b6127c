"""The choice itself: only VALID points, limits met by the bad end of the interval, the smaller load where it is a tie.

Ties keep the choice monotone in the limits. A point is left out for good if one of smaller load has as good a
throughput (within TIE of the best of their class) and is no worse in any limited percentile: whenever the larger one is
allowed, the smaller one is. What is left is ordered by throughput alone, so a looser limit never lowers it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from setpoint.choose.choice import Choice, Floor, Inconclusive, Infeasible, Knee
from setpoint.choose.knee import kneedle_knee, marginal_knee, pareto_front
from setpoint.choose.slo_text import format_quantile, format_slo
from setpoint.domain.curve import Curve, Estimate, Point
from setpoint.domain.profile import Alternative
from setpoint.domain.slo import Objective, Slo
from setpoint.domain.units import format_duration
from setpoint.errors import InputError, UsageError
from setpoint.measure.stats import min_samples

TIE = 0.01  # throughputs closer than this are a tie
_MAIN_METRICS = ("batch", "e2el", "ttft", "tpot", "itl")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Which figures of a point count as its throughput and its latency."""

    throughput_name: str
    metric: str | None
    quantile: float

    def throughput(self, point: Point) -> float:
        return point.throughput[self.throughput_name].value

    def latency(self, point: Point) -> Estimate | None:
        return None if self.metric is None else _estimate(point, self.metric, self.quantile)


def choose(curve: Curve, *, slos: Sequence[Slo] = (), objective: Objective | None = None) -> Choice:
    """Return the best valid point under the limits, or none and the floor.

    The objective is `deadline` if limits are given, else `throughput`, which without limits takes the knee. Raises
    InputError for a curve with no valid point, UsageError for a deadline without limits or a limit on what the curve
    does not have.
    """
    wanted = objective or (Objective.DEADLINE if slos else Objective.THROUGHPUT)
    if wanted is Objective.DEADLINE and not slos:
        raise UsageError('objective: deadline needs a limit; add one, such as --slo "batch p99 < 250ms"')
    name, points = _comparable(curve)
    _check_measured(points, slos)
    metric = next((m for m in _MAIN_METRICS if any(_estimate(p, m, 0.5) is not None for p in points)), None)
    if slos and wanted is not Objective.LATENCY:
        axes = _Axes(throughput_name=name, metric=slos[0].metric, quantile=slos[0].quantile)
    else:
        axes = _Axes(throughput_name=name, metric=metric, quantile=0.5)

    allowed = [point for point in points if all(_meets(point, slo) for slo in slos)]
    unsure = tuple(_inconclusive(points, slos))
    knees: tuple[Knee, ...] = ()
    chosen: Point | None = None
    if not allowed:
        reason = _no_point(slos, unsure)
    elif wanted is Objective.LATENCY:
        chosen, reason = _lowest_latency(allowed, axes)
    elif slos:
        left_out = {id(point) for point in _tied(points, slos, axes)}
        chosen = max((p for p in allowed if id(p) not in left_out), key=lambda p: _rank(p, axes))
        reason = _binding(chosen, points, slos, axes)
    else:
        chosen, reason, knees = _knee(points, axes)
    if chosen is not None and len(points) == 1:
        reason = "it is the only valid point of the curve"
    return Choice(
        point=chosen,
        objective=wanted,
        slos=tuple(slos),
        reason=reason,
        throughput_name=name,
        latency_metric=axes.metric,
        latency_quantile=axes.quantile,
        alternatives=() if chosen is None else tuple(_alternatives(curve, points, chosen, axes)),
        knees=knees,
        inconclusive=unsure,
        infeasible=None if chosen is not None else _infeasible(points, slos, unsure),
    )


def _comparable(curve: Curve) -> tuple[str, list[Point]]:
    """The name of the throughput to compare by, and the valid points, in an order that is not the file's."""
    valid = curve.valid_points
    if not valid:
        counts = Counter(point.verdict.value for point in curve.points)
        told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "it has no points"
        advice = next((f.advice for p in curve.points for f in p.findings), "sweep again with a larger --budget")
        raise InputError(f"the curve has no valid point to choose from: {told}; {advice}")
    name = "tokens_per_s" if all("tokens_per_s" in p.throughput for p in valid) else "items_per_s"
    points = [point for point in valid if name in point.throughput]
    if not points:
        raise InputError("no valid point of the curve has a throughput (tokens_per_s or items_per_s); sweep again")
    return name, sorted(points, key=lambda p: (p.load, p.key))


def _check_measured(points: Sequence[Point], slos: Iterable[Slo]) -> None:
    for slo in slos:
        metrics = sorted({metric for point in points for metric in point.latency_s})
        if slo.metric not in metrics:
            raise UsageError(f"slo: the curve has no {slo.metric!r} latency; it has: {', '.join(metrics) or 'none'}")
        quantiles = {q for p in points if slo.metric in p.latency_s for q in p.latency_s[slo.metric].quantiles}
        if slo.quantile not in quantiles:
            have = ", ".join(format_quantile(q) for q in sorted(quantiles)) or "none"
            raise UsageError(f"slo: the curve has no {format_quantile(slo.quantile)} of {slo.metric}; it has: {have}")


def _estimate(point: Point, metric: str, quantile: float) -> Estimate | None:
    distribution = point.latency_s.get(metric)
    return None if distribution is None else distribution.quantiles.get(quantile)


def _bad_end(point: Point, metric: str, quantile: float) -> float:
    """The high end in seconds; infinite where it is withheld, so that it meets nothing."""
    estimate = _estimate(point, metric, quantile)
    return math.inf if estimate is None or estimate.high is None else estimate.high


def _meets(point: Point, slo: Slo) -> bool:
    return _bad_end(point, slo.metric, slo.quantile) < slo.limit_s


def _rank(point: Point, axes: _Axes) -> tuple[float, float, float]:
    """Larger is better: throughput, then the smaller load, then the lower latency."""
    latency = axes.latency(point)
    return axes.throughput(point), -point.load, -math.inf if latency is None else -latency.value


def _tied(points: Sequence[Point], slos: Sequence[Slo], axes: _Axes) -> Iterable[Point]:
    """Points that one of smaller load, as fast within TIE and no worse under any limit, stands in for."""
    by_speed = sorted(points, key=lambda p: -axes.throughput(p))
    start = 0
    while start < len(by_speed):
        least = axes.throughput(by_speed[start]) * (1 - TIE)
        end = start
        while end < len(by_speed) and axes.throughput(by_speed[end]) >= least:
            end += 1
        kept: list[tuple[Point, tuple[float, ...]]] = []
        for point in sorted(by_speed[start:end], key=lambda p: p.load):
            ends = tuple(_bad_end(point, slo.metric, slo.quantile) for slo in slos)
            if any(
                other.load_name == point.load_name
                and other.load < point.load
                and all(a <= b for a, b in zip(theirs, ends))
                for other, theirs in kept
            ):
                yield point
            else:
                kept.append((point, ends))
        start = max(end, start + 1)


def _lowest_latency(points: Sequence[Point], axes: _Axes) -> tuple[Point, str]:
    metric = axes.metric
    if metric is None:
        raise InputError("no valid point has a p50 latency; sweep again with a larger --budget")
    best = min(points, key=lambda p: (_bad_end(p, metric, 0.5), -axes.throughput(p), p.load))
    if _bad_end(best, metric, 0.5) == math.inf:
        raise InputError(f"no allowed point has an interval for {metric} p50; sweep again with a larger --budget")
    return best, f"no allowed point has a lower {metric} p50, by the bad end of its interval"


def _knee(points: Sequence[Point], axes: _Axes) -> tuple[Point, str, tuple[Knee, ...]]:
    """The knee by marginal gain, which the swept range does not move; kneedle's answer beside it."""
    known = [(p, e.value) for p in points if (e := axes.latency(p)) is not None and e.value > 0]
    if not known:
        best = max(points, key=lambda p: _rank(p, axes))
        return best, "it has the highest throughput; no p50 latency is known, so that no knee can be found", ()
    latency = [value for _, value in known]
    speed = [axes.throughput(p) for p, _ in known]
    front = pareto_front(latency, speed, [p.load for p, _ in known])
    xs, ys = [latency[i] for i in front], [speed[i] for i in front]
    point = known[front[marginal_knee(xs, ys)]][0]
    other = kneedle_knee(xs, ys)
    knees = [Knee(method="marginal-gain", point=point)]
    reason = "the knee by marginal gain: beyond it, +x% latency buys less than +x% throughput"
    if point is known[front[-1]][0]:
        if all(p.load <= point.load for p, _ in known if p.series == point.series) and len(front) > 1:
            reason = "latency still pays up to the end of what was swept: the knee may lie beyond; sweep larger loads"
        else:
            reason = "the end of the front: no other setting has more throughput, whatever latency is paid"
    if other is None:
        return point, f"{reason} (kneedle sees none)", tuple(knees)
    theirs = known[front[other]][0]
    knees.append(Knee(method="kneedle", point=theirs))
    agreed = "kneedle agrees" if theirs is point else f"kneedle, which depends on the swept range, says {theirs.key}"
    return point, f"{reason} ({agreed})", tuple(knees)


def _binding(chosen: Point, points: Sequence[Point], slos: Sequence[Slo], axes: _Axes) -> str:
    """The limit that the next faster setting does not keep."""
    speed = axes.throughput(chosen)
    faster = [p for p in points if axes.throughput(p) > speed and not all(_meets(p, slo) for slo in slos)]
    if not faster:
        return "no limit binds: it has the highest throughput of all valid points, or ties with it at a smaller load"
    nearest_one = min(faster, key=lambda p: (axes.throughput(p), p.load))
    worst = max(slos, key=lambda slo: _bad_end(nearest_one, slo.metric, slo.quantile) / slo.limit_s)
    high_s = _bad_end(nearest_one, worst.metric, worst.quantile)
    told = "has too few samples to tell" if high_s == math.inf else f"may take {format_duration(high_s)}"
    return f"{format_slo(worst)} binds: the next faster setting, {nearest_one.key}, {told}"


def _inconclusive(points: Sequence[Point], slos: Sequence[Slo]) -> Iterable[Inconclusive]:
    """Where a limit lies inside an interval, or the interval is missing, unless another limit is surely missed."""
    for point in points:
        found: list[Inconclusive] = []
        for slo in slos:
            if _meets(point, slo):
                continue
            estimate = _estimate(point, slo.metric, slo.quantile)
            if estimate is not None and estimate.low is not None and estimate.low >= slo.limit_s:
                break  # surely missed
            more = _more_samples(point, slo, estimate)
            found.append(Inconclusive(point=point, slo=slo, estimate=estimate, num_more_samples=more))
        else:
            yield from found


def _more_samples(point: Point, slo: Slo, estimate: Estimate | None) -> int | None:
    """About how many more tell: to an interval at all, or until it shrinks, as 1/sqrt(n), to one side of the limit."""
    distribution = point.latency_s.get(slo.metric)
    num_samples = 0 if distribution is None else distribution.num_samples
    if estimate is None or estimate.low is None or estimate.high is None:
        missing = min_samples(slo.quantile) - num_samples
        return missing if missing > 0 else None
    distance = abs(slo.limit_s - estimate.value)
    arm = estimate.high - estimate.value if estimate.value < slo.limit_s else estimate.value - estimate.low
    if distance == 0:
        return None
    return max(1, math.ceil(num_samples * ((arm / distance) ** 2 - 1)))


def _no_point(slos: Sequence[Slo], unsure: Sequence[Inconclusive]) -> str:
    limits = ", ".join(format_slo(slo) for slo in slos)
    if unsure:
        return f"no setting is shown to meet {limits}, and {len({id(u.point) for u in unsure})} may"
    return f"no setting meets {limits}"


def _infeasible(points: Sequence[Point], slos: Sequence[Slo], unsure: Sequence[Inconclusive]) -> Infeasible:
    floors = []
    for slo in slos:
        best = min(points, key=lambda p, slo=slo: (_bad_end(p, slo.metric, slo.quantile), p.load))  # type: ignore[misc]
        is_known = _bad_end(best, slo.metric, slo.quantile) < math.inf
        estimate = _estimate(best, slo.metric, slo.quantile) if is_known else None
        floors.append(Floor(slo=slo, point=best if is_known else None, estimate=estimate))
    return Infeasible(floors=tuple(floors), is_certain=not unsure)


def _alternatives(curve: Curve, points: Sequence[Point], chosen: Point, axes: _Axes) -> Iterable[Alternative]:
    """What the usual other settings would have cost; a role that is not on the curve, or is the choice, is left out."""
    row = [p for p in points if p.series == chosen.series and p.load_name == chosen.load_name]
    place = next(i for i, p in enumerate(row) if p is chosen)
    one = next((p for p in row if (p.load == 1 and p.load_name == "batch_size") or p.items_per_batch == 1), None)
    default = None
    if curve.default is not None:
        wanted = curve.default.items()
        default = next((p for p in (*row, *points) if all(p.setting.get(key) == value for key, value in wanted)), None)
    found = (
        ("batch-1", one),
        ("default", default),
        ("maximum", row[-1]),
        ("lower-neighbour", row[place - 1] if place > 0 else None),
        ("upper-neighbour", row[place + 1] if place + 1 < len(row) else None),
    )
    base, base_latency = axes.throughput(chosen), axes.latency(chosen)
    for role, point in found:
        if point is None or point is chosen:
            continue
        speed, latency = axes.throughput(point), axes.latency(point)
        change = None if latency is None or not base_latency or not base_latency.value else latency.value
        yield Alternative(
            role=role,
            setting=point.setting,
            throughput=speed,
            latency_s=None if latency is None else latency.value,
            throughput_change=speed / base - 1 if base > 0 else 0.0,
            latency_change=None if change is None or base_latency is None else change / base_latency.value - 1,
        )
