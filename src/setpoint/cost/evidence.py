"""How far a fitted cost model can be trusted: errors on batches that the fit did not see, by length, and warnings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from setpoint.cost.fit import CostSample, fit_encoder_cost
from setpoint.domain.curve import CostEvidence
from setpoint.domain.units import format_percent

_FOLDS = 5
_MIN_SAMPLES = 30
_POOR = 0.15  # median error of a bin of lengths from which on it is warned of
_NARROW = 4.0  # largest batch by smallest, in tokens
_MIN_BIN = 5
_TERM = {"a": "the cost of a batch in itself", "b": "the cost of a token", "c": "the cost of attention"}


def examine_cost(samples: Sequence[CostSample], longest: Sequence[int], *, seed: int = 0) -> CostEvidence:
    """Fit `t = a + b*tokens + c*sum len^2` to all samples, and hold the fit to those that it did not see, five-fold.

    `longest` has each batch's longest sequence in tokens. Raises ValueError for no samples or other lengths.
    """
    if len(samples) != len(longest):
        raise ValueError(f"{len(samples)} samples need as many lengths, not {len(longest)}")
    fit = fit_encoder_cost(samples)
    errors = _errors(samples, samples)
    held_out = _held_out_errors(samples, seed=seed)
    by_length = _by_length(errors if held_out is None else held_out, np.asarray(longest))
    tokens = [sample.num_tokens for sample in samples]
    warnings = [
        f"the batches cannot tell {_TERM[term]} apart from the rest, so it counts as 0"
        for term in "abc"
        if term not in fit.terms
    ]
    if len(samples) < _MIN_SAMPLES:
        warnings.append(f"only {len(samples)} batches were measured")
    if max(tokens) < _NARROW * min(tokens):
        warnings.append(f"all batches had {min(tokens):,} to {max(tokens):,} tokens: others are extrapolated")
    warnings += [
        f"with sequences of up to {upper:,} tokens it is {format_percent(error)} off in the middle"
        for upper, error, count in by_length
        if error > _POOR and count >= _MIN_BIN
    ]
    warnings.append(f"nothing longer than {max(longest):,} tokens, and no batch above {max(tokens):,}, was measured")
    return CostEvidence(
        a_s=fit.cost.a_s,
        b_s_per_token=fit.cost.b_s_per_token,
        c_s_per_token2=fit.cost.c_s_per_token2,
        terms=fit.terms,
        num_samples=len(samples),
        r2=fit.r2,
        median_error=float(np.median(errors)),
        held_out_error=None if held_out is None else float(np.median(held_out)),
        error_by_length=by_length,
        warnings=tuple(warnings),
    )


def _errors(fitted: Sequence[CostSample], seen: Sequence[CostSample]) -> npt.NDArray[np.float64]:
    """|predicted - measured| / measured of `seen` by a fit to `fitted`. Shape [seen]."""
    cost = fit_encoder_cost(fitted).cost
    predicted = np.array([cost.seconds(sample.num_tokens, sample.sum_len2) for sample in seen])
    measured = np.maximum([sample.seconds for sample in seen], 1e-9)
    errors: npt.NDArray[np.float64] = np.abs(predicted - measured) / measured
    return errors


def _held_out_errors(samples: Sequence[CostSample], *, seed: int) -> npt.NDArray[np.float64] | None:
    if len(samples) < 2 * _FOLDS:
        return None
    order = np.random.default_rng(seed).permutation(len(samples))
    errors = np.empty(len(samples))
    for held in np.array_split(order, _FOLDS):
        rest = np.sort(np.setdiff1d(order, held))
        errors[held] = _errors([samples[i] for i in rest], [samples[i] for i in held])
    return errors


def _by_length(errors: npt.NDArray[np.float64], longest: npt.NDArray[np.int64]) -> tuple[tuple[int, float, int], ...]:
    """Upper edge (a power of two, in tokens), median error, and number of samples, of each bin that has any."""
    edges = np.maximum(1, 2 ** np.ceil(np.log2(np.maximum(longest, 1))).astype(int))
    return tuple(
        (int(edge), float(np.median(errors[edges == edge])), int((edges == edge).sum())) for edge in np.unique(edges)
    )
