"""Timings by round, and ratios of what ran side by side in the same round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from setpoint.measure.stats import Repeats, median_of_repeats


@dataclass(slots=True, kw_only=True)
class Timings:
    """Seconds of one contender by round."""

    num_texts: int
    seconds: dict[int, float] = field(default_factory=dict)

    def rates(self) -> dict[int, float]:
        """Texts per second by round."""
        return {number: self.num_texts / seconds for number, seconds in self.seconds.items()}

    def rate(self) -> Repeats | None:
        """Median texts per second and its interval; None if it never ran."""
        values = list(self.rates().values())
        return median_of_repeats(values) if values else None


def paired_ratio(ours: Timings, theirs: Timings) -> Repeats | None:
    """How many times as fast ours is, over the rounds that both ran in; None if there are none."""
    mine, other = ours.rates(), theirs.rates()
    shared = sorted(mine.keys() & other.keys())
    return median_of_repeats([mine[number] / other[number] for number in shared]) if shared else None


def fastest(candidates: Mapping[str, Timings]) -> str | None:
    """The name with the highest median rate; None if nothing ran."""
    rates = {name: found.median for name, timings in candidates.items() if (found := timings.rate()) is not None}
    return max(rates, key=lambda name: rates[name]) if rates else None


def cosines(vectors: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Cosine of each row with the reference's: [n, size] and [n, size] -> [n]. NaN where a row is not finite."""
    a, b = vectors.astype(np.float64), reference.astype(np.float64)
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def worst(values: Iterable[float]) -> float:
    """The smallest; NaN if any is NaN."""
    return float(np.min(np.fromiter(values, dtype=np.float64)))
