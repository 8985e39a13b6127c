"""The operating point: what was chosen, why, and what it holds for. Saved as `setpoint.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.domain.curve import CostEvidence, Point, Workload
from setpoint.domain.slo import Objective, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A point that was not chosen, and what it would have cost: relative to the chosen one, 0.1 is 10% more.

    `role` is batch-1, default, maximum, lower-neighbour or upper-neighbour.
    """

    role: str
    setting: Mapping[str, Any]
    throughput: float
    latency_s: float | None
    throughput_change: float
    latency_change: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """A chosen point with its reason. `fingerprint` (subject, environment's hardware, workload) says where it holds."""

    point: Point
    objective: Objective
    slos: tuple[Slo, ...]
    reason: str  # one sentence: the binding constraint, or which knee
    alternatives: tuple[Alternative, ...]
    cost: CostEvidence | None
    options: Mapping[str, Any]
    subject: Mapping[str, Any]
    environment: Mapping[str, Any]
    workload: Workload
    created: str
    setpoint_version: str
