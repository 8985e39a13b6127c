"""Percentiles and medians with intervals that assume nothing about the distribution.

A percentile's interval runs between two order statistics: the number of samples below the true q-quantile is
Binomial(n, q), whatever is measured. It exists from n >= ln(alpha/2) / ln(q) samples on (6 for p50, 72 for p95, 368 for
p99 at 95%), and below that the percentile is withheld.

Source: David and Nagaraja, Order Statistics, 3rd ed., 2003, section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
Samples = Sequence[float] | npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile, its 95% interval, and how many samples it rests on. In the samples' unit."""

    value: float
    low: float
    high: float
    num_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """The median of a few repeated measurements and its interval, which is None for a single one."""

    median: float
    low: float | None
    high: float | None
    num_repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a set of samples says. A percentile is None where the samples are too few for its interval."""

    num_samples: int
    smallest: float
    largest: float
    p50: Percentile | None
    p95: Percentile | None
    p99: Percentile | None


def min_samples(q: float, *, confidence: float = CONFIDENCE) -> int:
    """Return the fewest samples for which the q-quantile, 0 < q < 1, has a two-sided interval."""
    _check_share("quantile", q)
    _check_share("confidence", confidence)
    return math.ceil(math.log((1 - confidence) / 2) / math.log(max(q, 1 - q)))


def interval_ranks(num_samples: int, q: float, *, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Return the ranks (1 is the smallest sample) whose order statistics hold the q-quantile; None if there are none.

    Each tail is at most (1 - confidence)/2, so the coverage is at least `confidence`.
    """
    if num_samples < min_samples(q, confidence=confidence):
        return None
    from scipy.special import bdtr, bdtrc

    tail = (1 - confidence) / 2
    # the quantile lies below the sample of rank k if fewer than k samples lie below it, and above it if k or more do
    low = _last(lambda rank: float(bdtr(rank - 1, num_samples, q)) <= tail, 1, num_samples)
    high = (
        num_samples + 1 - _last(lambda back: float(bdtrc(num_samples - back, num_samples, q)) <= tail, 1, num_samples)
    )
    return low, high


def percentile(samples: Samples, q: float) -> Percentile | None:
    """Return the q-quantile, 0 < q < 1, with its 95% interval, or None where there are too few samples for one.

    The value interpolates linearly between order statistics. Raises ValueError for a sample that is not finite.
    """
    return _percentile(_sorted(samples), q)


def summary(samples: Samples) -> Summary:
    """Return extremes and percentiles; raises ValueError for no samples or one that is not finite."""
    values = _sorted(samples)
    if len(values) == 0:
        raise ValueError("no samples to summarise")
    return Summary(
        num_samples=len(values),
        smallest=float(values[0]),
        largest=float(values[-1]),
        p50=_percentile(values, 0.50),
        p95=_percentile(values, 0.95),
        p99=_percentile(values, 0.99),
    )


def median_of_repeats(values: Samples, *, seed: int = 0, num_resamples: int = 2_000) -> Repeats:
    """Return the median of repeated measurements with its 95% bootstrap interval (percentile method, seeded).

    For few repeats the interval is no wider than their range, which holds the true median with probability
    1 - 2^(1 - n) only: 75% for three, 94% for five. Raises ValueError for no values or one that is not finite.
    """
    ordered = _sorted(values)
    if len(ordered) == 0:
        raise ValueError("no repeats to take the median of")
    median = float(np.median(ordered))
    if len(ordered) == 1:
        return Repeats(median=median, low=None, high=None, num_repeats=1)
    picks = np.random.default_rng(seed).integers(0, len(ordered), size=(num_resamples, len(ordered)))
    medians = np.median(ordered[picks], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Repeats(median=median, low=float(low), high=float(high), num_repeats=len(ordered))


def _percentile(ordered: npt.NDArray[np.float64], q: float) -> Percentile | None:
    ranks = interval_ranks(len(ordered), q)
    if ranks is None:
        return None
    low, high = ranks
    return Percentile(
        value=float(np.quantile(ordered, q)),
        low=float(ordered[low - 1]),
        high=float(ordered[high - 1]),
        num_samples=len(ordered),
    )


def _sorted(samples: Samples) -> npt.NDArray[np.float64]:
    values = np.sort(np.asarray(samples, dtype=np.float64))
    if not np.isfinite(values).all():
        raise ValueError("a sample is NaN or infinite: leave failed measurements out and count them on their own")
    return values


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"a {name} lies between 0 and 1, not at {value!r}")


def _last(holds: Callable[[int], bool], first: int, end: int) -> int:
    """The last number from `first` to `end` for which `holds` is true: true for `first`, once false then for good."""
    low, high = first, end
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
