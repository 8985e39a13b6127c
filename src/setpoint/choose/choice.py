"""What was chosen of a curve, and everything that is needed to say why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.domain.curve import Curve, Estimate, Point
from setpoint.domain.profile import Alternative, OperatingPoint
from setpoint.domain.slo import Objective, Slo
from setpoint.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where one method sees the knee. `method` is kneedle or marginal-gain."""

    method: str
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconclusive:
    """A point that may or may not meet a limit. `estimate` is None where the percentile is withheld.

    `num_more_samples` is about how many would tell; None where no number of samples can be promised to.
    """

    point: Point
    slo: Slo
    estimate: Estimate | None
    num_more_samples: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The lowest that a limit's metric gets, by the bad end of its interval, and where; None if always withheld."""

    slo: Slo
    point: Point | None
    estimate: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """No point is shown to meet all limits. `is_certain` is False if some point still may."""

    floors: tuple[Floor, ...]
    is_certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen point, or None with `infeasible`.

    Throughput is read from `Point.throughput[throughput_name]`, latency from `latency_metric` at `latency_quantile`;
    the alternatives' figures are of these. `latency_metric` is None for a curve that has no latencies.
    """

    point: Point | None
    objective: Objective
    slos: tuple[Slo, ...]
    reason: str
    throughput_name: str
    latency_metric: str | None
    latency_quantile: float
    alternatives: tuple[Alternative, ...] = ()
    knees: tuple[Knee, ...] = ()
    inconclusive: tuple[Inconclusive, ...] = ()
    infeasible: Infeasible | None = None


def operating_point(curve: Curve, choice: Choice, created: str) -> OperatingPoint:
    """Return what is saved as a profile; `created` is ISO 8601 in UTC. Raises InputError if nothing was chosen."""
    if choice.point is None:
        raise InputError(f"no operating point: {choice.reason}")
    return OperatingPoint(
        point=choice.point,
        objective=choice.objective,
        slos=choice.slos,
        reason=choice.reason,
        alternatives=choice.alternatives,
        cost=curve.cost,
        options=curve.options,
        subject=_subject_of(curve, choice.point),
        environment=curve.environment,
        workload=curve.workload,
        created=created,
        setpoint_version=curve.setpoint_version,
    )


def _subject_of(curve: Curve, point: Point) -> Mapping[str, Any]:
    """The fingerprint of the point's variant, where the curve has several: they are kept by `name=value ...`."""
    variant = sorted((name, value) for name, value in point.setting.items() if name != point.load_name)
    found = curve.subject.get(" ".join(f"{name}={value}" for name, value in variant))
    return found if isinstance(found, Mapping) else curve.subject
