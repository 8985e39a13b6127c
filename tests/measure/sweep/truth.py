"""What a sweep must find, computed without any code of the product, and the fakes that it is swept with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.curve import Point
from setpoint.measure.clock import FakeClock
from setpoint.measure.encoder_subject import EncoderSubject
from setpoint.measure.sweep import SweepResult, plan_points, run_sweep
from setpoint.runners.base import TokenSequence
from setpoint.runners.fake import FakeCost, FakeFaults, FakeRunner

COST = FakeCost(a_s=0.004, b_s_per_token=20e-6, c_s_per_token2=1e-7)


def skewed_lengths(count: int = 400, seed: int = 7) -> list[int]:
    draws = np.random.default_rng(seed).lognormal(3.4, 0.6, count)
    return [int(length) for length in np.clip(draws, 4, 200)]


def sequences_of(lengths: Sequence[int]) -> list[TokenSequence]:
    return [TokenSequence(np.full(length, 1000 + i, dtype=np.int32)) for i, length in enumerate(lengths)]


@dataclass(frozen=True)
class Truth:
    """The exact durations of all batches of one pass at one setting."""

    batches: tuple[tuple[int, ...], ...]
    durations_s: tuple[float, ...]
    num_items: int
    num_tokens: int

    @property
    def items_per_s(self) -> float:
        return self.num_items / math.fsum(self.durations_s)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / math.fsum(self.durations_s)

    def quantile_s(self, q: float) -> float:
        ordered = sorted(self.durations_s)
        return ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1)]


def truth_of(
    lengths: Sequence[int],
    *,
    tokens: int | None = None,
    size: int | None = None,
    cost: FakeCost = COST,
    padded: bool = False,
) -> Truth:
    """Longest first, each batch as full as it may be; then a + b*tokens + c*sum len^2 for each."""
    batches: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        if batches:
            grown = [*batches[-1], length]
            needed = max(grown) * len(grown) if padded else sum(grown)
            if (tokens is None or needed <= tokens) and (size is None or len(grown) <= size):
                batches[-1] = grown
                continue
        batches.append([length])
    durations = []
    for batch in batches:
        worked = [max(batch)] * len(batch) if padded else batch
        durations.append(
            cost.a_s + cost.b_s_per_token * sum(worked) + cost.c_s_per_token2 * sum(length**2 for length in worked)
        )
    return Truth(tuple(map(tuple, batches)), tuple(durations), len(lengths), sum(lengths))


def truth_of_point(lengths: Sequence[int], point: Point, *, cost: FakeCost = COST, padded: bool = False) -> Truth:
    load = int(point.load)
    if point.load_name == "batch_size":
        return truth_of(lengths, size=load, cost=cost, padded=padded)
    return truth_of(lengths, tokens=load, cost=cost, padded=padded)


class Bench:
    """A fake runner, a fake clock, and a subject of both."""

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        cost: FakeCost = COST,
        shape: BatchShape | None = None,
        faults: FakeFaults | None = None,
        on_forward: Callable[[Sequence[TokenSequence]], None] | None = None,
        seed: int = 0,
        clock: FakeClock | None = None,
    ) -> None:
        self.lengths = list(lengths)
        self.clock = clock or FakeClock()
        self.runner = FakeRunner(
            cost=cost,
            spend=self.clock.advance,
            shape=shape or BatchShape(max_batch_tokens=1024),
            faults=faults,
            on_forward=on_forward,
            embedding_size=1,
            record_batches=False,
        )
        self.variants: list[Mapping[str, Any]] = []
        self.subject = EncoderSubject(self._make, sequences_of(lengths), clock=self.clock, seed=seed, name="skewed")

    def _make(self, variant: Mapping[str, Any]) -> FakeRunner:
        self.variants.append(variant)
        return self.runner

    def sweep(self, *, budget_s: float = 120.0, seed: int = 0, **options: Any) -> SweepResult:
        plan = plan_points(self.lengths, seed=seed)
        return run_sweep(self.subject, plan, clock=self.clock, budget_s=budget_s, **options)


def best_of(points: Sequence[Point]) -> Point:
    return max((point for point in points if point.throughput), key=lambda point: point.throughput["items_per_s"].value)


PADDED = BatchShape(max_batch_tokens=1024, cost=BatchCost.PADDED)
