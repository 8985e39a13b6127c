"""Which settings a sweep measures, in which order, and when it has seen enough. Pure: no clock, no model.

    round 1        round 2        round 3        then, while the budget lasts
    A ··· A ···    A ··· A ···    A ··· A ···    A  whatever an answer hinges on  A

A is the anchor: one setting that comes back at the start, in the middle and at the end of each stretch, so that drift
of the machine shows. The others come in a new random order each round, so that drift does not favour a setting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from setpoint.batching.pack import form_batches
from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.curve import Estimate, Point, Value, Verdict
from setpoint.domain.slo import Slo
from setpoint.errors import UsageError, unknown

MIN_VISITS = 3
TOLERANCE = 0.02  # half the width of a throughput interval, relative to its value
_LOADS: Mapping[str, Sequence[int]] = {
    "max_batch_tokens": [2**exponent for exponent in range(6, 14)],  # 64 to 8,192
    "batch_size": [2**exponent for exponent in range(10)],
}
_BATCH_SIZES = (1, 32)
_DEFAULT_BATCH_SIZE = 32  # of transformers' and sentence-transformers' examples
_ANCHOR_EVERY = 6
_MAX_REFINEMENTS = 4
_CLOSE = 1.25  # neighbouring loads that differ by less are not worth a point between them
_MOST_VISITS = 60
_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """A setting that will be measured. `role` is load, batch-1, default or refinement."""

    setting: Mapping[str, Value]
    load_name: str
    load: int
    series: str
    role: str = "load"

    @property
    def key(self) -> str:
        """The setting as text, as `domain.curve.Point.key` has it."""
        return " ".join(f"{name}={self.setting[name]}" for name in sorted(self.setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings to begin with, the anchor among them, and what the plan left out, in sentences."""

    points: tuple[PlannedPoint, ...]
    anchor: PlannedPoint
    default: PlannedPoint | None
    lengths: Sequence[int]
    load_name: str
    can_refine: bool
    seed: int
    min_visits: int = MIN_VISITS
    tolerance: float = TOLERANCE
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PointState:
    """What is known of a planned point: None before its first visit."""

    planned: PlannedPoint
    num_visits: int = 0
    point: Point | None = None
    is_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepState:
    """Where a sweep stands; what a live view shows."""

    plan: Plan
    points: tuple[PointState, ...]
    spent_s: float
    budget_s: float
    visit_s: float = 0.0  # the longest visit to the anchor so far
    current: str | None = None  # key of the point that was visited last
    slos: tuple[Slo, ...] = field(default=())

    @property
    def num_visits(self) -> int:
        """All visits so far."""
        return sum(state.num_visits for state in self.points)


def plan_points(
    lengths: Sequence[int],
    *,
    variants: Sequence[Mapping[str, Value]] = ({},),
    load_name: str = "max_batch_tokens",
    loads: Sequence[int] | None = None,
    seed: int = 0,
) -> Plan:
    """Plan loads in powers of two, or those given, and batch sizes of 1 and 32 for reference, for each variant.

    `lengths` are those of the rows in tokens; `load_name` is max_batch_tokens or batch_size. A load that would form the
    same batches as a smaller one is left out, with a note. Given `loads` are the only ones: nothing is put between
    them. Raises UsageError for no rows, no variants, an unknown load, or a load below 1.
    """
    if not lengths:
        raise UsageError("a sweep needs at least one row to measure with")
    if not variants:
        raise UsageError("a sweep needs at least one variant; an empty one is the runner as it is")
    if load_name not in _LOADS:
        raise UsageError(unknown("load", load_name, _LOADS))
    asked = sorted(set(_LOADS[load_name] if loads is None else loads))
    if not asked or asked[0] < 1:
        raise UsageError(f"{load_name} must be at least 1, not {asked[0] if asked else 'nothing at all'}")
    wanted = {load_name: asked}
    wanted["batch_size"] = sorted({*wanted.get("batch_size", ()), *_BATCH_SIZES})
    kept = {name: _distinct(name, values, lengths) for name, values in wanted.items()}
    notes = [
        f"{name} {_listed(left_out)} left out: the same batches as a smaller one for these {len(lengths):,} rows"
        for name, (_, left_out) in kept.items()
        if left_out
    ]
    points: list[PlannedPoint] = []
    for variant in variants:
        if set(variant) & set(_LOADS):
            raise UsageError(
                f"a variant cannot fix {', '.join(sorted(set(variant) & set(_LOADS)))}: the sweep varies it"
            )
        points += [_planned(variant, name, load) for name, (loads_kept, _) in kept.items() for load in loads_kept]
    first = [point for point in points if point.load_name == load_name][: len(kept[load_name][0])]
    return Plan(
        points=tuple(points),
        anchor=first[len(first) // 2],
        default=next((point for point in points if point.role == "default"), None),
        lengths=tuple(lengths),
        load_name=load_name,
        can_refine=loads is None,
        seed=seed,
        notes=tuple(notes),
    )


def next_setting(state: SweepState) -> PlannedPoint | None:
    """What to visit next; None when the answer is tight enough or the budget is used.

    Kept back from the budget is one visit to the anchor, which ends every sweep.
    """
    plan = state.plan
    if state.num_visits and state.spent_s + state.visit_s >= state.budget_s:
        return None
    alive = [each for each in state.points if not each.is_failed]
    others = [each for each in alive if each.planned.key != plan.anchor.key]
    anchor = next((each for each in alive if each.planned.key == plan.anchor.key), None)
    if anchor is not None and anchor.num_visits < _anchor_visits_due(plan, others):
        return plan.anchor
    initial = [each for each in others if each.planned.role != "refinement"]
    round_number = min((each.num_visits for each in initial), default=plan.min_visits)
    if round_number < plan.min_visits:
        waiting = {each.planned.key: each.planned for each in initial if each.num_visits == round_number}
        return waiting[next(key for key in _round_order(plan, round_number) if key in waiting)]
    return _most_useful(state, alive)


def _anchor_visits_due(plan: Plan, others: Sequence[PointState]) -> int:
    """Two a round (start, middle), one after the last round, and one after every few visits from then on."""
    initial = [each for each in others if each.planned.role != "refinement"]
    round_number = min((each.num_visits for each in initial), default=plan.min_visits)
    if round_number < plan.min_visits:
        num_done = sum(each.num_visits > round_number for each in initial)
        return 2 * round_number + 1 + (num_done >= (len(initial) + 1) // 2)
    num_extra = sum(each.num_visits for each in others) - len(initial) * plan.min_visits
    return 2 * plan.min_visits + 1 + max(0, num_extra) // _ANCHOR_EVERY


def _round_order(plan: Plan, round_number: int) -> list[str]:
    order = np.random.default_rng([plan.seed, round_number]).permutation(len(plan.points))
    return [plan.points[i].key for i in order]


def _most_useful(state: SweepState, alive: Sequence[PointState]) -> PlannedPoint | None:
    """The point that an answer hinges on most; the least visited among equals."""
    measured = [each for each in alive if each.point is not None and "items_per_s" in each.point.throughput]
    if not measured:
        return None
    refinement = _refinement(state, measured)
    if refinement is not None:
        return refinement
    wanted = [(each, _usefulness(state, each, measured)) for each in alive]
    wanted = [(each, usefulness) for each, usefulness in wanted if usefulness > 0]
    if not wanted:
        return None
    return max(wanted, key=lambda pair: (pair[1] / math.sqrt(1 + pair[0].num_visits), -pair[0].num_visits))[0].planned


def _usefulness(state: SweepState, each: PointState, measured: Sequence[PointState]) -> float:
    """0 for a point that cannot change an answer any more."""
    if each.num_visits < state.plan.min_visits or _has_too_few(each):
        return 10.0
    if each.point is None or each.num_visits >= _MOST_VISITS or "items_per_s" not in each.point.throughput:
        return 0.0
    usefulness = 0.0
    half_width = _half_width(each.point.throughput["items_per_s"])
    if half_width > state.plan.tolerance and each in _contenders(state, measured):
        usefulness += min(5.0, half_width / state.plan.tolerance)
    for slo in state.slos:
        usefulness += _slo_usefulness(each.point, slo)
    return usefulness


def _slo_usefulness(point: Point, slo: Slo) -> float:
    """Samples are worth most where the limit lies within the interval, or where there are too few for one."""
    distribution = point.latency_s.get(slo.metric)
    if distribution is None:
        return 0.0
    found = distribution.quantiles.get(slo.quantile)
    if found is None or found.low is None or found.high is None:
        median = distribution.quantiles.get(0.5)
        hopeless = median is not None and median.low is not None and median.low > slo.limit_s
        return 0.0 if hopeless else 3.0
    return 3.0 if found.low < slo.limit_s <= found.high else 0.0


def _contenders(state: SweepState, measured: Sequence[PointState]) -> list[PointState]:
    """Those that may be the best one within every limit, and the knee's: best and knee with their neighbours."""
    within = [each for each in measured if not _misses(each, state.slos)] or list(measured)
    best = max(within, key=_throughput)
    floor = _low(best)
    close = [each for each in within if _high(each) >= floor]
    for chosen in (best, _knee(within)):
        close += [each for each in _neighbours(chosen, measured) if each not in close]
        close += [chosen] if chosen not in close else []
    return close


def _knee(measured: Sequence[PointState]) -> PointState:
    """The smallest load that reaches nine tenths of the best throughput: from there on, latency buys little."""
    best = max(_throughput(each) for each in measured)
    return min((each for each in measured if _throughput(each) >= 0.9 * best), key=lambda each: each.planned.load)


def _misses(each: PointState, slos: Sequence[Slo]) -> bool:
    """Whether even the good end of an interval misses a limit."""
    assert each.point is not None
    for slo in slos:
        distribution = each.point.latency_s.get(slo.metric)
        if distribution is None:
            continue
        found = distribution.quantiles.get(slo.quantile) or distribution.quantiles.get(0.5)
        if found is not None and found.low is not None and found.low >= slo.limit_s:
            return True
    return False


def _neighbours(chosen: PointState, measured: Sequence[PointState]) -> list[PointState]:
    """The next smaller and next larger load of the same series."""
    mine = sorted(
        (each for each in measured if each.planned.series == chosen.planned.series), key=lambda each: each.planned.load
    )
    place = mine.index(chosen)
    return mine[max(0, place - 1) : place] + mine[place + 1 : place + 2]


def _refinement(state: SweepState, measured: Sequence[PointState]) -> PlannedPoint | None:
    """A load halfway (geometric) between the best point, or the knee, and a neighbour; None if all is close."""
    num_refined = sum(each.planned.role == "refinement" for each in state.points)
    load_name = state.plan.load_name
    waits = any(
        (each.num_visits < state.plan.min_visits or _has_too_few(each)) for each in state.points if not each.is_failed
    )
    if not state.plan.can_refine or num_refined >= _MAX_REFINEMENTS or waits:
        return None
    budgets = [each for each in measured if each.planned.load_name == load_name]
    within = [each for each in budgets if not _misses(each, state.slos)]
    if not within:
        return None
    known = {each.planned.key for each in state.points}
    for chosen in (max(within, key=_throughput), _knee(within)):
        for neighbour in _neighbours(chosen, budgets):
            low, high = sorted((chosen.planned.load, neighbour.planned.load))
            middle = round(math.sqrt(low * high))
            if high / low < _CLOSE or _same_batches(state.plan, (low, middle), (middle, high)):
                continue
            variant = {name: value for name, value in chosen.planned.setting.items() if name != load_name}
            planned = _planned(variant, load_name, middle, "refinement")
            if planned.key not in known:
                return planned
    return None


def _same_batches(plan: Plan, *pairs: tuple[int, int]) -> bool:
    """Whether the loads of any pair form the same batches."""
    return any(
        _batches(plan.load_name, one, plan.lengths) == _batches(plan.load_name, other, plan.lengths)
        for one, other in pairs
    )


def _has_too_few(each: PointState) -> bool:
    """Whether more visits alone would make it a point, and there may be some."""
    found = () if each.point is None else each.point.findings
    return each.num_visits < _MOST_VISITS and any(one.verdict is Verdict.TOO_FEW_SAMPLES for one in found)


def _throughput(each: PointState) -> float:
    assert each.point is not None
    return each.point.throughput["items_per_s"].value


def _low(each: PointState) -> float:
    assert each.point is not None
    low = each.point.throughput["items_per_s"].low
    return 0.0 if low is None else low


def _high(each: PointState) -> float:
    assert each.point is not None
    high = each.point.throughput["items_per_s"].high
    return math.inf if high is None else high


def _half_width(estimate: Estimate) -> float:
    if estimate.low is None or estimate.high is None or estimate.value <= 0:
        return math.inf
    return (estimate.high - estimate.low) / (2 * estimate.value)


def _planned(variant: Mapping[str, Value], load_name: str, load: int, role: str | None = None) -> PlannedPoint:
    named = [f"{name}={variant[name]}" for name in sorted(variant)]
    series = " ".join([load_name, *named])
    if role is None:
        role = {1: "batch-1", _DEFAULT_BATCH_SIZE: "default"}.get(load, "load") if load_name == "batch_size" else "load"
    return PlannedPoint(setting={**variant, load_name: load}, load_name=load_name, load=load, series=series, role=role)


def _distinct(load_name: str, loads: Sequence[int], lengths: Sequence[int]) -> tuple[list[int], list[int]]:
    """Loads that form batches of their own, and those that form the same as a smaller one."""
    kept: list[int] = []
    left_out: list[int] = []
    seen: tuple[tuple[int, ...], ...] | None = None
    for load in loads:
        batches = _batches(load_name, load, lengths)
        (left_out if batches == seen else kept).append(load)
        seen = batches
    return kept, left_out


def _batches(load_name: str, load: int, lengths: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The sizes of a load's batches under either way of counting tokens; they tell the batches apart."""
    is_size = load_name == "batch_size"
    found = []
    for cost in (BatchCost.PACKED, BatchCost.PADDED):
        shape = BatchShape(
            max_batch_tokens=_NO_LIMIT if is_size else load, max_batch_size=load if is_size else None, cost=cost
        )
        found.append(tuple(len(members) for members in form_batches(lengths, shape)))
    return tuple(found)


def _listed(loads: Sequence[int]) -> str:
    return ", ".join(f"{load:,}" for load in loads)
