"""What a running job has done, in numbers: who was busy how long, what was computed, what is still to do.

Written by the pipeline's threads, read by whoever shows progress. Work is counted in the terms of the cost model
`t = a + b*tokens + c*sum len^2`, so that what is left can be priced in one multiplication.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from setpoint.domain.batch import BatchCost
from setpoint.measure.clock import Clock

MAX_SAMPLES = 4_096  # batches that the cost model is fitted to: the latest ones


class Activity(StrEnum):
    """What a thread's time goes into."""

    READING = "reading"
    TOKENIZING = "tokenizing"
    COMPUTING = "computing"
    DECODING = "decoding"
    WRITING = "writing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An amount of work in the cost model's terms, tokens counted as the runner's shape says."""

    batches: int = 0
    tokens: int = 0
    squares: int = 0  # sum of squared lengths

    def __add__(self, other: Work) -> Work:
        return Work(
            batches=self.batches + other.batches,
            tokens=self.tokens + other.tokens,
            squares=self.squares + other.squares,
        )

    def __sub__(self, other: Work) -> Work:
        return Work(
            batches=self.batches - other.batches,
            tokens=self.tokens - other.tokens,
            squares=self.squares - other.squares,
        )


def work_of(lengths: npt.NDArray[np.int64], cost: BatchCost) -> Work:
    """The work of one batch of sequences of these lengths."""
    count = len(lengths)
    if cost is BatchCost.PADDED:
        longest = int(lengths.max()) if count else 0
        return Work(batches=1, tokens=count * longest, squares=count * longest * longest)
    return Work(batches=1, tokens=int(lengths.sum()), squares=int(np.dot(lengths, lengths)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSample:
    """One undisturbed forward pass as it was measured."""

    work: Work
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterReading:
    """The figures at one moment."""

    elapsed_s: float
    seconds: dict[Activity, float]  # over all threads; they overlap
    encoded_rows: int
    planned: Work  # of all rows encoded so far
    done: Work
    useful_tokens: int
    rows_done: int  # written
    rows_computed: int  # at least; of a window under way the share of its sequences that is done
    num_samples: int  # ever; `samples` has the latest of them
    samples: tuple[BatchSample, ...]
    first_batch_s: float | None  # when the first batch began
    row_tokens_relative_error: float  # standard error of the mean number of tokens a row, relative to the mean


class Meter:
    """Collects figures from several threads."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._start_ns = clock.now_ns()
        self._seconds = dict.fromkeys(Activity, 0.0)
        self._encoded_rows = 0
        self._planned = Work()
        self._done = Work()
        self._useful_tokens = 0
        self._rows_done = 0
        self._samples: deque[BatchSample] = deque(maxlen=MAX_SAMPLES)
        self._num_samples = 0
        self._first_batch_ns: int | None = None
        self._planned_sequences = 0
        self._done_sequences = 0
        self._row_tokens = 0
        self._row_tokens_squared = 0

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Count the time inside as spent on `activity`."""
        start_ns = self.clock.now_ns()
        try:
            yield
        finally:
            self.spent(activity, self.clock.now_ns() - start_ns)

    def spent(self, activity: Activity, duration_ns: int) -> None:
        """Count time spent on `activity`."""
        with self._lock:
            self._seconds[activity] += duration_ns / 1e9

    def planned(self, row_tokens: npt.NDArray[np.int64], *, num_sequences: int, work: Work) -> None:
        """Count a window that was encoded and cut into batches; `row_tokens` [rows], 0 for a row that failed."""
        with self._lock:
            self._encoded_rows += len(row_tokens)
            self._planned_sequences += num_sequences
            self._row_tokens += int(row_tokens.sum())
            self._row_tokens_squared += int(np.dot(row_tokens, row_tokens))
            self._planned += work

    def batch_begins(self) -> None:
        """Count the beginning of a batch: the first one tells when computing began."""
        if self._first_batch_ns is None:
            self._first_batch_ns = self.clock.now_ns()

    def computed(self, work: Work, *, num_sequences: int, useful_tokens: int, sample_s: float | None) -> None:
        """Count planned work as done; `sample_s` is its duration where it was one undisturbed forward pass."""
        with self._lock:
            self._done += work
            self._done_sequences += num_sequences
            self._useful_tokens += useful_tokens
            if sample_s is not None:
                self._samples.append(BatchSample(work=work, duration_s=sample_s))
                self._num_samples += 1

    def rows_done(self, num_rows: int) -> None:
        """Count rows whose window is finished."""
        with self._lock:
            self._rows_done += num_rows

    def read(self) -> MeterReading:
        """The figures now."""
        with self._lock:
            return MeterReading(
                elapsed_s=(self.clock.now_ns() - self._start_ns) / 1e9,
                seconds=dict(self._seconds),
                encoded_rows=self._encoded_rows,
                planned=self._planned,
                done=self._done,
                useful_tokens=self._useful_tokens,
                rows_done=self._rows_done,
                rows_computed=self._rows_computed(),
                num_samples=self._num_samples,
                samples=tuple(self._samples),
                first_batch_s=None if self._first_batch_ns is None else (self._first_batch_ns - self._start_ns) / 1e9,
                row_tokens_relative_error=self._relative_error(),
            )

    def _rows_computed(self) -> int:
        share = self._done_sequences / self._planned_sequences if self._planned_sequences else 0.0
        return max(self._rows_done, int(self._encoded_rows * share))

    def _relative_error(self) -> float:
        count, total = self._encoded_rows, self._row_tokens
        if count < 2 or total == 0:
            return 0.0
        variance = max(0.0, (self._row_tokens_squared - total * total / count) / (count - 1))
        return math.sqrt(variance / count) / (total / count)
