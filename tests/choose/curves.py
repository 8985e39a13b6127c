"""Curves with known figures."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.domain.curve import Curve, Distribution, Estimate, Finding, Point, Verdict, Workload


def around(value: float, share: float = 0.05) -> Estimate:
    return Estimate(value=value, low=value * (1 - share), high=value * (1 + share))


def point(
    load: int,
    speed: float,
    p50: float | Estimate | None,
    p99: float | Estimate | None = None,
    *,
    verdict: Verdict | None = None,
    num_samples: int = 1000,
    unit: str = "tokens_per_s",
    series: str = "float32",
) -> Point:
    tails = {0.5: p50, 0.99: p50 if p99 is None else p99}
    quantiles = {q: around(value) if isinstance(value, (int, float)) else value for q, value in tails.items()}
    findings = (
        () if verdict is None else (Finding(verdict=verdict, evidence="seen", advice="measure on a quiet machine"),)
    )
    return Point(
        setting={"batch_size": load, "dtype": series},
        load_name="batch_size",
        load=load,
        series=series,
        findings=findings,
        throughput={unit: around(speed, 0.01)},
        latency_s={"batch": Distribution(num_samples=num_samples, smallest_s=0.001, largest_s=10, quantiles=quantiles)},
        num_samples=num_samples,
    )


def curve(points: Iterable[Point], default: int | None = None) -> Curve:
    return Curve(
        subject={"model": "m"},
        options={"model": "m"},
        environment={},
        workload=Workload(name="w", num_items=10, num_tokens=100, length_quantiles={}, digest="d", seed=0),
        points=tuple(points),
        anchor={"batch_size": 8},
        default=None if default is None else {"batch_size": default},
        seed=0,
        budget_s=60,
        spent_s=60,
        created="2026-01-01T00:00:00Z",
        setpoint_version="0",
        is_complete=True,
    )


def linear(loads: Iterable[int] = (1, 2, 4, 8, 16, 32, 64), fixed: float = 0.08, each: float = 0.01) -> Curve:
    """A batch takes fixed + each * n seconds: by marginal gain the knee is at n = fixed / each."""
    return curve([point(n, n / (fixed + each * n), fixed + each * n) for n in loads], default=32)
