"""Where the warm-up of a series ends: found in the series itself, never guessed.

The second half says what is typical and how far it spreads. Warm-up is what comes before the first sample that is not
slower than that, one by one (a first call that compiles) and five by five (a decay that single samples hide).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from setpoint.measure.stats import Samples

_MAD_TO_SIGMA = 1.4826
_SINGLE_SIGMAS = 6.0  # a single sample counts as slow from here on
_RUN = 5
_RUN_SIGMAS = 2.0  # the median of five has a standard error of 0.56 sigma: 3.6 of those, one false alarm in 6,000
_LEAST_SPREAD = 0.01  # of the typical duration: less is the clock's resolution
_MIN_SAMPLES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """How many first samples are warm-up; `is_settled` is False if it reaches the bound, and then nothing counts."""

    num_warmup: int
    is_settled: bool
    evidence: str


def find_warmup(values: Samples, *, max_share: float = 0.5) -> Warmup:
    """Find the warm-up of a series of relative durations (measured by typical for the batch's kind).

    At most `max_share` of the samples may be warm-up. Fewer than four samples say nothing: the first of them is taken
    for warm-up, and the rest for settled. Raises ValueError for a value that is not finite.
    """
    series = np.asarray(values, dtype=np.float64)
    if not np.isfinite(series).all():
        raise ValueError("a duration is NaN or infinite: leave failed measurements out and count them on their own")
    count = len(series)
    if count < _MIN_SAMPLES:
        num = min(1, count - 1) if count > 1 else 0
        return Warmup(num_warmup=num, is_settled=True, evidence=f"{count} samples are too few to find a warm-up in")
    tail = series[count // 2 :]
    typical = float(np.median(tail))
    sigma = max(_MAD_TO_SIGMA * float(np.median(np.abs(tail - typical))), _LEAST_SPREAD * typical)
    bound = int(max_share * count)
    num = 0
    while num < bound and _is_slow(series[num : num + _RUN], typical, sigma):
        num += 1
    if num == bound and _is_slow(series[num : num + _RUN], typical, sigma):
        evidence = f"still slower than the second half after {num} of {count} samples"
        return Warmup(num_warmup=num, is_settled=False, evidence=evidence)
    if not num:
        return Warmup(num_warmup=0, is_settled=True, evidence="no sample at the start is slower than the rest")
    slowest = float(series[:num].max()) / typical
    evidence = f"the first {num} of {count} samples took up to {slowest:.1f} x as long as typical"
    return Warmup(num_warmup=num, is_settled=True, evidence=evidence)


def _is_slow(window: np.ndarray[tuple[int], np.dtype[np.float64]], typical: float, sigma: float) -> bool:
    if window[0] > typical + _SINGLE_SIGMAS * sigma:
        return True
    return len(window) == _RUN and float(np.median(window)) > typical + _RUN_SIGMAS * sigma
