"""What is left is priced by its cost, and the range holds the outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from setpoint.domain.batch import BatchCost
from setpoint.score.forecast import MIN_PATIENCE_S, NO_FIT_PATIENCE_S, PATIENCE_FACTOR, Forecaster, TotalRows
from setpoint.score.meter import Activity, BatchSample, MeterReading, Work, work_of

A_S, B_S, C_S = 0.01, 0.001, 0.000002


def seconds_of(work: Work) -> float:
    return A_S * work.batches + B_S * work.tokens + C_S * work.squares


def reading_of(num_done: int, *, streams: int = 1) -> MeterReading:
    """Two windows of 50 batches of 4 sequences were planned, longest first; `num_done` batches are computed."""
    lengths = [np.full(4, length) for length in np.linspace(400, 10, 50).astype(int)] * 2
    works = [work_of(batch, BatchCost.PACKED) for batch in lengths]
    samples = tuple(BatchSample(work=work, duration_s=seconds_of(work)) for work in works[:num_done])
    computing_s = sum(sample.duration_s for sample in samples)
    total, done = Work(), Work()
    for work in works:
        total += work
    for work in works[:num_done]:
        done += work
    return MeterReading(
        elapsed_s=1.0 + computing_s / streams,
        seconds={**dict.fromkeys(Activity, 0.0), Activity.COMPUTING: computing_s},
        encoded_rows=400,
        planned=total,
        done=done,
        useful_tokens=done.tokens,
        rows_done=0,
        rows_computed=4 * num_done,
        num_samples=num_done,
        samples=samples,
        first_batch_s=1.0,
        row_tokens_relative_error=0.03,
    )


def forecaster(**options: float | int | None) -> Forecaster:
    return Forecaster(**{"num_streams": 1, "rows_before": 0, "timeout_s": None, **options})  # type: ignore[arg-type]


def test_little_is_left_when_only_short_batches_are() -> None:
    # 75 of 100 batches are done, but the 25 that are left are the short ones.
    left = forecaster().time_left(reading_of(75), TotalRows(num_rows=400, is_exact=True))
    assert left is not None
    truth = seconds_of(reading_of(75).planned) - seconds_of(reading_of(75).done)
    assert left.mid_s == pytest.approx(truth, rel=0.03)
    assert left.low_s <= truth <= left.high_s
    assert truth < 0.8 * 25 / 75 * seconds_of(reading_of(75).done)  # what a count of batches would promise


def test_rows_that_were_not_read_count_like_those_that_were() -> None:
    reading = reading_of(60)
    whole = seconds_of(reading.planned)
    left = forecaster().time_left(reading, TotalRows(num_rows=4_000, is_exact=True))
    assert left is not None
    assert left.mid_s == pytest.approx(10 * whole - seconds_of(reading.done), rel=0.03)
    resumed = forecaster(rows_before=3_600).time_left(reading, TotalRows(num_rows=4_000, is_exact=True))
    assert resumed is not None
    assert resumed.mid_s == pytest.approx(whole - seconds_of(reading.done), rel=0.03)


def test_streams_share_the_work_and_waiting_slows_it() -> None:
    total = TotalRows(num_rows=4_000, is_exact=True)
    one = forecaster().time_left(reading_of(60), total)
    two = forecaster(num_streams=2).time_left(reading_of(60, streams=2), total)
    assert one is not None
    assert two is not None
    assert two.mid_s == pytest.approx(one.mid_s / 2, rel=0.01)
    slow = reading_of(60)
    slow = replace(slow, elapsed_s=1.0 + 2 * (slow.elapsed_s - 1.0))  # the streams waited half of the time
    waiting = forecaster().time_left(slow, total)
    assert waiting is not None
    assert waiting.mid_s == pytest.approx(2 * one.mid_s, rel=0.01)


def test_a_guess_of_the_rows_widens_the_range() -> None:
    reading = reading_of(60)
    exact = forecaster().time_left(reading, TotalRows(num_rows=4_000, is_exact=True))
    guess = forecaster().time_left(reading, TotalRows(num_rows=4_000, is_exact=False))
    assert exact is not None
    assert guess is not None
    assert guess.high_s - guess.low_s > exact.high_s - exact.low_s


def test_nothing_is_said_before_there_is_something_to_say() -> None:
    total = TotalRows(num_rows=400, is_exact=True)
    assert forecaster().time_left(reading_of(3), total) is None
    assert forecaster().time_left(reading_of(60), None) is None


def test_patience_grows_with_the_work() -> None:
    found = forecaster()
    assert found.patience_s(Work(batches=1, tokens=10, squares=100)) == NO_FIT_PATIENCE_S
    found.time_left(reading_of(60), TotalRows(num_rows=400, is_exact=True))
    assert found.patience_s(Work(batches=1, tokens=10, squares=100)) == MIN_PATIENCE_S
    large = Work(batches=1, tokens=100_000, squares=10**8)
    assert found.patience_s(large) == pytest.approx(PATIENCE_FACTOR * seconds_of(large), rel=0.1)
    assert found.patience_s(None) == MIN_PATIENCE_S
    assert forecaster(timeout_s=5).patience_s(large) == 5
