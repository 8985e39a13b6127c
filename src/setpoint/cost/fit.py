"""Fit the cost model to measured batches, and say how far it can be trusted.

Least squares on *relative* errors, so that short batches count as much as long ones, with coefficients that cannot be
negative (Lawson and Hanson's NNLS) and Huber's weights, so that a few stalled batches do not bend the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from setpoint.batching.order import Lengths
from setpoint.cost.model import EncoderCost, batch_moments
from setpoint.domain.batch import BatchCost

Floats = npt.NDArray[np.float64]

_RESOLUTION_S = 1e-9
_HUBER_K = 1.345  # 95% as efficient as least squares where the noise is normal (Huber, Robust Statistics, 1981)
_MAD_TO_SIGMA = 1.4826  # median absolute deviation of a normal distribution
_NUM_ROUNDS = 20
_IMPLAUSIBLE = 0.1  # of the median time a token: what is faster gets no more weight than this
# The terms are tried in this order: the first set whose columns the samples can tell apart is fitted, else b alone.
_TERM_SETS = (("a", "b", "c"), ("a", "b"), ("b", "c"))
_TOLD_APART = 0.02  # smallest singular value of unit columns, relative to the largest
_SOLVABLE = 1e-6  # the same, below which the arithmetic itself breaks down
_MAX_BLOCKS = 19  # their extremes hold the next one with probability 18/20
_MIN_BLOCKS = 3
_MIN_BLOCK_SAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSample:
    """One measured batch: the tokens and squared lengths it processed, padding included, and how long it took."""

    num_tokens: int
    sum_len2: int
    seconds: float

    @classmethod
    def of(cls, lengths: Lengths, cost: BatchCost, *, seconds: float) -> CostSample:
        """The sample of a batch of sequences of these lengths."""
        num_tokens, sum_len2 = batch_moments(lengths, cost)
        return cls(num_tokens=num_tokens, sum_len2=sum_len2, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How long something will take. `low_s` and `high_s` are None where the samples are too few for an interval."""

    low_s: float | None
    mid_s: float
    high_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCost:
    """A cost model with its evidence.

    `terms` names the coefficients that the samples could tell apart ("a", "b", "c"); the others are 0, and predictions
    for batches unlike the samples are worth accordingly less. Residuals are |predicted - measured| / measured. `r2` is
    None where all samples took equally long. The ratios are measured over predicted of consecutive blocks of samples:
    the middle one, and the extremes that the next block stays between with probability `confidence`.
    """

    cost: EncoderCost
    num_samples: int
    terms: tuple[str, ...]
    r2: float | None
    median_residual: float
    p90_residual: float
    low_ratio: float | None
    mid_ratio: float
    high_ratio: float | None
    confidence: float | None

    def forecast(self, total_s: float) -> Forecast:
        """Turn predicted seconds (of one job, say) into an interval; raises ValueError if negative or not finite."""
        if not (math.isfinite(total_s) and total_s >= 0):
            raise ValueError(f"a prediction must be finite and at least 0 s, not {total_s!r}")
        return Forecast(
            low_s=None if self.low_ratio is None else total_s * self.low_ratio,
            mid_s=total_s * self.mid_ratio,
            high_s=None if self.high_ratio is None else total_s * self.high_ratio,
        )


def fit_encoder_cost(samples: Sequence[CostSample]) -> FittedCost:
    """Fit `t = a + b*tokens + c*sum len^2` to samples in the order in which they were measured.

    Batches that are all alike cannot tell the terms apart: then the time is put down to tokens first, and `terms` says
    so. A time below the clock's resolution (1 ns) counts as 1 ns. Raises ValueError for no samples, for a sample
    without tokens, and for a time that is negative or not finite.
    """
    _check(samples)
    moments = np.array([(1.0, sample.num_tokens, sample.sum_len2) for sample in samples])
    measured = np.maximum(np.array([sample.seconds for sample in samples]), _RESOLUTION_S)
    terms, coefficients = _fit_terms(moments, measured)
    predicted = moments @ coefficients
    residuals = np.abs(predicted - measured) / measured
    low, mid, high, confidence = _block_ratios(measured, predicted, num_terms=len(terms))
    a_s, b_s_per_token, c_s_per_token2 = coefficients.tolist()
    return FittedCost(
        cost=EncoderCost(a_s=a_s, b_s_per_token=b_s_per_token, c_s_per_token2=c_s_per_token2),
        num_samples=len(samples),
        terms=terms,
        r2=_r2(measured, predicted),
        median_residual=float(np.median(residuals)),
        p90_residual=float(np.quantile(residuals, 0.9)),
        low_ratio=low,
        mid_ratio=mid,
        high_ratio=high,
        confidence=confidence,
    )


def _check(samples: Sequence[CostSample]) -> None:
    if not samples:
        raise ValueError("a cost model cannot be fitted to no samples: measure at least one batch")
    for number, sample in enumerate(samples):
        if sample.num_tokens < 1 or sample.sum_len2 < 1:
            raise ValueError(f"sample {number} has no tokens: {sample}")
        if not (math.isfinite(sample.seconds) and sample.seconds >= 0):
            raise ValueError(f"sample {number} has no duration: {sample}")


def _fit_terms(moments: Floats, measured: Floats) -> tuple[tuple[str, ...], Floats]:
    """The terms that the samples can tell apart, and all three coefficients.

    Which terms those are is judged twice: beforehand, as far as arithmetic goes, and with the weights of a first fit,
    so that an outlier cannot make them look different or alike.
    """
    tokens = moments[:, 1]
    scale_s = np.maximum(measured, _IMPLAUSIBLE * float(np.median(measured / tokens)) * tokens)
    solvable = _identifiable(moments / scale_s[:, None], tolerance=_SOLVABLE)
    coefficients, weights = _fit_robust(moments, measured, scale_s, solvable)
    terms = _identifiable(moments * weights[:, None], tolerance=_TOLD_APART)
    if terms != solvable:
        coefficients, _ = _fit_robust(moments, measured, scale_s, terms)
    return terms, coefficients


def _identifiable(weighted: Floats, *, tolerance: float) -> tuple[str, ...]:
    """The largest set of terms whose columns of `weighted` [samples, 3] are not nearly multiples of each other."""
    unit = weighted / np.linalg.norm(weighted, axis=0)
    for terms in _TERM_SETS:
        if len(terms) > len(unit):
            continue
        singular = np.linalg.svd(unit[:, _columns(terms)], compute_uv=False)
        if singular[-1] >= tolerance * singular[0]:
            return terms
    return ("b",)


def _columns(terms: Sequence[str]) -> list[int]:
    return ["abc".index(term) for term in terms]


def _fit_robust(moments: Floats, measured: Floats, scale_s: Floats, terms: Sequence[str]) -> tuple[Floats, Floats]:
    """Coefficients [3] and row weights [samples], by repeated NNLS whose weights come from the previous round.

    The first round divides by `scale_s`, the measured times but for absurdly short ones, which keeps outliers small.
    The next ones divide by the predicted times: dividing by the measured ones would favour what noise made fast.
    """
    columns = _columns(terms)
    coefficients = np.zeros(3)
    weights = 1.0 / scale_s
    for _ in range(_NUM_ROUNDS):
        previous = coefficients.copy()
        coefficients[columns] = _nnls(moments[:, columns] * weights[:, None], measured * weights)
        if np.allclose(coefficients, previous, rtol=1e-9, atol=0.0):
            break
        predicted = np.maximum(moments @ coefficients, _RESOLUTION_S * 1e-3)
        errors = np.abs(measured / predicted - 1.0)
        sigma = max(_MAD_TO_SIGMA * float(np.median(errors)), 1e-9)
        weights = np.sqrt(np.minimum(1.0, _HUBER_K * sigma / np.maximum(errors, 1e-300))) / predicted
    return coefficients, weights


def _nnls(matrix: Floats, target: Floats) -> Floats:
    from scipy.optimize import nnls

    norms = np.linalg.norm(matrix, axis=0)  # tokens and squared lengths differ by orders of magnitude
    solution, _ = nnls(matrix / norms, target)
    coefficients: Floats = np.asarray(solution, dtype=np.float64) / norms
    return coefficients


def _r2(measured: Floats, predicted: Floats) -> float | None:
    spread = float(((measured - measured.mean()) ** 2).sum())
    if spread <= 1e-18 * float((measured**2).sum()):
        return None
    return 1.0 - float(((measured - predicted) ** 2).sum()) / spread


def _block_ratios(
    measured: Floats, predicted: Floats, *, num_terms: int
) -> tuple[float | None, float, float | None, float | None]:
    """Lowest, middle and highest ratio of measured to predicted time over consecutive blocks, and the coverage.

    Blocks, not single batches, because a job is a sum: what differs from batch to batch evens out in it, what drifts
    (neighbours, heat) does not. The next of B alike blocks lies between the extremes of the others with probability
    (B - 1)/(B + 1), whatever the distribution. A fit lies closer to its own samples than to new ones, so deviations
    are widened by sqrt(n / (n - terms)).
    """
    num_samples = len(measured)
    num_blocks = min(_MAX_BLOCKS, num_samples // _MIN_BLOCK_SAMPLES)
    if num_blocks < _MIN_BLOCKS:
        return None, float(measured.sum() / predicted.sum()), None, None
    blocks = np.array_split(np.arange(num_samples), num_blocks)
    ratios = np.array([measured[block].sum() / predicted[block].sum() for block in blocks])
    mid = float(np.median(ratios))
    widening = math.sqrt(num_samples / (num_samples - num_terms))
    low = max(0.0, mid - widening * (mid - float(ratios.min())))
    high = mid + widening * (float(ratios.max()) - mid)
    return low, mid, high, (num_blocks - 1) / (num_blocks + 1)
