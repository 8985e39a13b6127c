"""How long the rest of a job will take: by the cost of what is left, not by its rows.

Batches go longest first, so a count of rows would promise too little at the beginning of every window. The cost model
`t = a + b*tokens + c*sum len^2` is fitted to the batches computed so far; rows that were not read yet are taken to be
like those that were.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from setpoint.cost.fit import CostSample, FittedCost, fit_encoder_cost
from setpoint.domain.units import format_duration_range
from setpoint.score.meter import Activity, MeterReading, Work

MIN_SAMPLES = 8
MIN_COMPUTING_S = 2.0
NO_FIT_PATIENCE_S = 3_600.0
MIN_PATIENCE_S = 600.0
PATIENCE_FACTOR = 20.0  # how many times longer than predicted a batch may take before it counts as hung

_REFIT_GROWTH = 1.3  # refit when so many more batches were measured
_MAX_FIT_SAMPLES = 512
_APPROX_ROWS_ERROR = 0.05  # of a row count that was extrapolated from the first bytes
_NO_INTERVAL_ERROR = 0.3  # of a fit to too few batches
_MIN_ERROR = 0.04
_Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalRows:
    """How many rows the job has in all, those of earlier runs included."""

    num_rows: int
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """Seconds until the last row is computed: the middle, and a range that should hold it 19 times in 20."""

    low_s: float
    mid_s: float
    high_s: float

    def after(self, elapsed_s: float) -> TimeLeft:
        """The whole duration, from what has passed and what is left."""
        return TimeLeft(low_s=self.low_s + elapsed_s, mid_s=self.mid_s + elapsed_s, high_s=self.high_s + elapsed_s)

    def __str__(self) -> str:
        return format_duration_range(self.low_s, self.high_s)


class Forecaster:
    """Fits the cost model as the job goes, and prices what is left."""

    def __init__(self, *, num_streams: int, rows_before: int, timeout_s: float | None) -> None:
        """`rows_before` were done in earlier runs; `timeout_s` is the user's own bound for a batch."""
        self._num_streams = num_streams
        self._rows_before = rows_before
        self._timeout_s = timeout_s
        self._fit: FittedCost | None = None
        self._num_fitted = 0

    @property
    def fit(self) -> FittedCost | None:
        """The latest fit; None before enough batches were measured."""
        return self._fit

    def patience_s(self, work: Work | None) -> float:
        """After how many seconds a batch of so much work (None: tokenizing) has hung. May be called by any thread."""
        if self._timeout_s is not None:
            return self._timeout_s
        fit = self._fit
        if fit is None:
            return NO_FIT_PATIENCE_S
        predicted_s = 0.0 if work is None else self._seconds(fit, work)
        return max(MIN_PATIENCE_S, PATIENCE_FACTOR * predicted_s)

    def time_left(self, reading: MeterReading, total: TotalRows | None) -> TimeLeft | None:
        """What is left; None as long as too little was measured, or nobody knows how many rows there are."""
        fit = self._update(reading)
        if fit is None or total is None or reading.encoded_rows == 0:
            return None
        rows_unread = max(0, total.num_rows - self._rows_before - reading.encoded_rows)
        known = reading.planned - reading.done
        per_row = rows_unread / reading.encoded_rows
        unread_s = per_row * self._seconds(fit, reading.planned)
        left_s = (self._seconds(fit, known) + unread_s) * self._pace(reading) / self._num_streams
        unread_share = unread_s / max(1e-9, unread_s + self._seconds(fit, known))
        error = self._error(fit, reading, unread_share=unread_share, is_exact=total.is_exact)
        scaled = left_s * fit.mid_ratio
        return TimeLeft(low_s=max(0.0, scaled * (1 - error)), mid_s=scaled, high_s=scaled * (1 + error))

    def _update(self, reading: MeterReading) -> FittedCost | None:
        count = reading.num_samples
        is_enough = count >= MIN_SAMPLES and reading.seconds[Activity.COMPUTING] >= MIN_COMPUTING_S * self._num_streams
        if is_enough and count >= self._num_fitted * _REFIT_GROWTH:
            samples = [
                CostSample(num_tokens=sample.work.tokens, sum_len2=sample.work.squares, seconds=sample.duration_s)
                for sample in reading.samples[-_MAX_FIT_SAMPLES:]
                if sample.work.tokens
            ]
            if samples:
                self._fit = fit_encoder_cost(samples)
                self._num_fitted = count
        return self._fit

    def _pace(self, reading: MeterReading) -> float:
        """Wall time per stream second of computing: more than 1 where streams wait for tokenizing or the disk."""
        computing_s = reading.seconds[Activity.COMPUTING] / self._num_streams
        since_first_s = reading.elapsed_s - (reading.first_batch_s or 0.0)
        return max(1.0, since_first_s / computing_s) if computing_s > 0 else 1.0

    def _error(self, fit: FittedCost, reading: MeterReading, *, unread_share: float, is_exact: bool) -> float:
        """Half the width of the range, relative to its middle."""
        if fit.low_ratio is None or fit.high_ratio is None:
            of_fit = _NO_INTERVAL_ERROR
        else:
            of_fit = (fit.high_ratio - fit.low_ratio) / 2 / fit.mid_ratio
        of_rows = _Z95 * reading.row_tokens_relative_error * unread_share
        of_count = 0.0 if is_exact else _APPROX_ROWS_ERROR * unread_share
        return min(0.9, max(_MIN_ERROR, math.hypot(of_fit, of_rows, of_count)))

    @staticmethod
    def _seconds(fit: FittedCost, work: Work) -> float:
        return fit.cost.seconds(work.tokens, work.squares, num_batches=work.batches)
