"""Figures of a series in the order in which it was measured: its rate, its mean, its trend, its outliers.

Neighbours in time are alike, so intervals that take samples for independent come out too narrow. Here a rate's
interval comes from whole visits, a mean's from batch means, a trend's from a test that counts the autocorrelation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from setpoint.domain.curve import Estimate
from setpoint.measure.stats import CONFIDENCE, Samples

MIN_VALUES = 3  # fewer give no interval worth its name
OUTLIER_SIGMAS = 5.0  # one in two million where the logarithms are normal
_MAX_BLOCKS = 200  # the trend test compares all pairs
_MAD_TO_SIGMA = 1.4826
_SIGNIFICANT_Z = 1.96

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How a series moves: `change` from its start to its end relative to its median, and the p-value of no trend."""

    change: float
    p_value: float


def rate_estimate(amounts: Sequence[float], durations_s: Sequence[float]) -> Estimate:
    """Throughput over visits: all that was done by all the time it took, per second, with its 95% interval.

    The interval is the ratio estimator's, by Student's t over the visits; None ends for fewer than three. Source:
    Cochran, Sampling Techniques, 3rd ed., 1977, section 6.4. Raises ValueError for no visits or a duration of 0.
    """
    done, took = np.asarray(amounts, dtype=np.float64), np.asarray(durations_s, dtype=np.float64)
    if len(done) == 0 or len(done) != len(took):
        raise ValueError(
            f"a rate needs as many amounts as durations, and one at least, not {len(done)} and {len(took)}"
        )
    if not (np.isfinite(done).all() and np.isfinite(took).all() and (took > 0).all()):
        raise ValueError("a visit has an amount or a duration that is not finite, or a duration of 0 s")
    rate = float(done.sum() / took.sum())
    count = len(done)
    if count < MIN_VALUES:
        return Estimate(value=rate, low=None, high=None)
    errors = done - rate * took
    standard_error = math.sqrt(count / (count - 1) * float(errors @ errors)) / float(took.sum())
    half = _t_quantile(count - 1) * standard_error
    return Estimate(value=rate, low=max(0.0, rate - half), high=rate + half)


def mean_interval(values: Samples) -> Estimate:
    """The mean of a series with its 95% interval, by the means of about sqrt(n) batches of neighbours.

    Source: Law, Simulation Modeling and Analysis, 5th ed., 2015, section 9.5.3 (batch means). None ends for fewer than
    three values. Raises ValueError for no values.
    """
    series = _finite(values)
    mean = float(series.mean())
    if len(series) < MIN_VALUES:
        return Estimate(value=mean, low=None, high=None)
    num_batches = min(len(series), max(MIN_VALUES, math.isqrt(len(series)), min(10, len(series) // 2)))
    means = np.array([batch.mean() for batch in np.array_split(series, num_batches)])
    half = _t_quantile(num_batches - 1) * float(means.std(ddof=1)) / math.sqrt(num_batches)
    return Estimate(value=mean, low=mean - half, high=mean + half)


def trend(values: Samples) -> Trend:
    """Test a series for a monotone trend (Mann and Kendall), and size it (Theil and Sen).

    The variance is corrected for the autocorrelation of the ranks after the trend is taken out (Hamed and Rao, Journal
    of Hydrology 204, 1998), which makes false alarms rarer, not as rare as the p-value says. More than 200 values are
    taken as medians of blocks. Fewer than four have no trend.
    """
    series = _finite(values)
    if len(series) > _MAX_BLOCKS:
        series = np.array([np.median(block) for block in np.array_split(series, _MAX_BLOCKS)])
    count = len(series)
    if count < 4 or float(series.max()) == float(series.min()):
        return Trend(change=0.0, p_value=1.0)
    first, second = np.triu_indices(count, k=1)
    differences = series[second] - series[first]
    score = float(np.sign(differences).sum())
    slope = float(np.median(differences / (second - first)))
    variance = (count * (count - 1) * (2 * count + 5) - _tie_term(series)) / 18.0
    variance *= _autocorrelation_factor(series - slope * np.arange(count))
    z = (score - np.sign(score)) / math.sqrt(variance) if variance > 0 else 0.0
    median = float(np.median(series))
    change = slope * (count - 1) / abs(median) if median else 0.0
    return Trend(change=change, p_value=math.erfc(abs(z) / math.sqrt(2)))


def outliers(values: Samples) -> int:
    """How many positive values lie more than five robust standard deviations from the median, as logarithms.

    They are told, never dropped: a stall that happens is part of the tail. Raises ValueError for a value that is not
    finite and above 0.
    """
    series = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(series).all() and (series > 0).all()):
        raise ValueError("outliers are looked for among finite values above 0")
    if len(series) < MIN_VALUES:
        return 0
    logs = np.log(series)
    distances = np.abs(logs - np.median(logs))
    sigma = _MAD_TO_SIGMA * float(np.median(distances))
    return int((distances > max(OUTLIER_SIGMAS * sigma, 1e-9)).sum())


def _finite(values: Samples) -> Floats:
    series = np.asarray(values, dtype=np.float64)
    if len(series) == 0 or not np.isfinite(series).all():
        raise ValueError("a series needs at least one value, and finite ones only")
    return series


def _t_quantile(degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, degrees))


def _tie_term(series: Floats) -> float:
    _, counts = np.unique(series, return_counts=True)
    return float((counts * (counts - 1) * (2 * counts + 5)).sum())


def _autocorrelation_factor(detrended: Floats) -> float:
    """What autocorrelated ranks do to the variance of Kendall's score; at least 1, so that noise never narrows it."""
    from scipy.stats import rankdata

    count = len(detrended)
    ranks = rankdata(detrended)
    ranks = ranks - ranks.mean()
    total = float(ranks @ ranks)
    if total == 0:
        return 1.0
    factor = 0.0
    for lag in range(1, count - 2):
        correlation = float(ranks[:-lag] @ ranks[lag:]) / total
        if abs(correlation) > _SIGNIFICANT_Z / math.sqrt(count):
            factor += (count - lag) * (count - lag - 1) * (count - lag - 2) * correlation
    return max(1.0, 1.0 + 2.0 * factor / (count * (count - 1) * (count - 2)))
