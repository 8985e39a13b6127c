"""What somebody wants of an operating point: an objective, and limits on latency."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Objective(StrEnum):
    """What is made best, as far as the limits allow."""

    THROUGHPUT = "throughput"  # nobody waits for a single answer
    LATENCY = "latency"  # somebody waits for each answer
    DEADLINE = "deadline"  # throughput, as long as each answer is in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """One limit: the percentile (0 < quantile < 1) of a latency metric stays below `limit_s` seconds.

    `metric` is a key of `Point.latency_s`: batch, e2el, ttft, tpot, itl.
    """

    metric: str
    quantile: float
    limit_s: float
