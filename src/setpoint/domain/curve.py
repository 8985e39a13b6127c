"""A measured throughput-latency curve: points with intervals and verdicts, and where they come from.

A point is one setting of whatever was varied. It knows no batches or requests of its own, so that encoders,
generation engines and HTTP endpoints share it: what differs is the names of its settings and metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Value = int | float | str

LATENCY_METRICS = ("batch", "e2el", "ttft", "tpot", "itl")


class Verdict(StrEnum):
    """Whether a point may be believed. Only VALID points are ever chosen."""

    VALID = "VALID"
    CLIENT_LIMITED = "CLIENT_LIMITED"  # the measuring side was the bottleneck
    OVERSATURATED = "OVERSATURATED"  # requests came faster than they were answered
    NON_STATIONARY = "NON_STATIONARY"  # speed changed while it was measured
    CACHE_CONTAMINATED = "CACHE_CONTAMINATED"  # answers came out of a cache
    TOO_FEW_SAMPLES = "TOO_FEW_SAMPLES"  # no interval exists
    FAILED = "FAILED"  # it could not be measured at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Why a point is not valid: the verdict, the evidence in one sentence, and what to do."""

    verdict: Verdict
    evidence: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its 95% interval, in the figure's own unit; an end is None where the samples give none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The latencies of one metric, in seconds: percentiles by quantile (0.5, 0.95, 0.99), None where withheld.

    `quantiles` are those that the samples are too few for as well, so that a reader knows what was asked.
    """

    num_samples: int
    smallest_s: float
    largest_s: float
    quantiles: Mapping[float, Estimate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting, measured.

    `setting` has every varied knob, `load_name` names the ordered one among them (max_batch_tokens, batch_size,
    concurrency, request_rate) and `load` is its value. Points that share `series` differ in their load alone.
    `throughput` has items_per_s and tokens_per_s (useful tokens), and `latency_s` a distribution a metric.
    """

    setting: Mapping[str, Value]
    load_name: str
    load: float
    series: str
    findings: tuple[Finding, ...] = ()  # empty: VALID; otherwise the worst first
    throughput: Mapping[str, Estimate] = field(default_factory=dict)
    latency_s: Mapping[str, Distribution] = field(default_factory=dict)
    num_samples: int = 0  # counted ones
    num_warmup: int = 0  # kept, and never counted
    num_outliers: int = 0  # counted like all others, and reported
    num_visits: int = 0
    measured_s: float = 0.0
    items_per_batch: float | None = None
    padding_waste: float | None = None

    @property
    def verdict(self) -> Verdict:
        """VALID, or that of the first finding."""
        return self.findings[0].verdict if self.findings else Verdict.VALID

    @property
    def is_valid(self) -> bool:
        """Whether it may be chosen."""
        return not self.findings

    @property
    def key(self) -> str:
        """The setting as text, the same for equal settings: `batch_size=8 dtype=float32`."""
        return " ".join(f"{name}={self.setting[name]}" for name in sorted(self.setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the curve was measured with: where it comes from, and the mix of its lengths in tokens."""

    name: str
    num_items: int
    num_tokens: int
    length_quantiles: Mapping[float, int]  # 0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1
    digest: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEvidence:
    """A fitted `t = a + b*tokens + c*sum len^2`, and how far to trust it.

    Errors are |predicted - measured| / measured: the median over samples that the fit did not see, and by length of
    the batch's longest sequence (upper edge in tokens, median error, number of samples).
    """

    a_s: float
    b_s_per_token: float
    c_s_per_token2: float
    terms: tuple[str, ...]
    num_samples: int
    r2: float | None
    median_error: float
    held_out_error: float | None
    error_by_length: tuple[tuple[int, float, int], ...]
    warnings: tuple[str, ...]  # where it must not be trusted, in sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points, and everything that is needed to read them, to repeat them, or to refuse a comparison.

    `subject` is the fingerprint of what was measured, `environment` that of `setpoint env` with measured limits, both
    JSON. `options` are those that load the same model again. `is_complete` is False for an interrupted sweep.
    """

    subject: Mapping[str, Any]
    options: Mapping[str, Any]
    environment: Mapping[str, Any]
    workload: Workload
    points: tuple[Point, ...]
    anchor: Mapping[str, Value]  # the setting that was measured at start, middle and end
    default: Mapping[str, Value] | None  # the setting that frameworks come with
    seed: int
    budget_s: float
    spent_s: float
    created: str  # ISO 8601, UTC
    setpoint_version: str
    is_complete: bool
    cost: CostEvidence | None = None
    warnings: tuple[str, ...] = ()  # of the environment, while measuring

    @property
    def valid_points(self) -> tuple[Point, ...]:
        """Those that may be chosen."""
        return tuple(point for point in self.points if point.is_valid)
