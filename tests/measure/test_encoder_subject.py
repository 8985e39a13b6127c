"""The encoder subject: whole passes without bias by length, honest samples, small overhead."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.errors import InputError, OutOfMemory, UsageError
from setpoint.measure.clock import FakeClock, MonotonicClock
from setpoint.measure.encoder_subject import EncoderSubject
from setpoint.runners.base import TokenSequence
from setpoint.runners.fake import FakeCost, FakeFaults, FakeRunner


def _sequences(lengths: list[int]) -> list[TokenSequence]:
    return [TokenSequence(np.full(length, i, dtype=np.int32)) for i, length in enumerate(lengths)]


LENGTHS = [int(x) for x in np.random.default_rng(0).integers(5, 120, 300)]


def _subject(runner: FakeRunner, clock: FakeClock, **options: float) -> EncoderSubject:
    return EncoderSubject(lambda _: runner, _sequences(LENGTHS), clock=clock, name="rows", **options)


def test_successive_visits_run_every_row_equally_often() -> None:
    clock = FakeClock()
    seen: Counter[int] = Counter()
    runner = FakeRunner(
        cost=FakeCost(a_s=0.01),
        spend=clock.advance,
        on_forward=lambda batch: seen.update(int(sequence.ids[0]) for sequence in batch),
    )
    subject = _subject(runner, clock, pass_seconds=0.75)  # 75 of the 300 batches of one
    subject.open({"batch_size": 1}).visit()
    seen.clear()
    for _ in range(4):
        visit = subject.open({"batch_size": 1}).visit()
        assert len(visit.samples) == 75
        mean = np.mean([sample.num_tokens for sample in visit.samples])
        assert mean == pytest.approx(np.mean(LENGTHS), rel=0.02)
    assert seen == Counter(range(300))


def test_batches_come_in_a_new_order_each_visit() -> None:
    clock = FakeClock()
    runner = FakeRunner(cost=FakeCost(a_s=0.001), spend=clock.advance)
    subject = _subject(runner, clock)
    orders = []
    for _ in range(3):
        visit = subject.open({"max_batch_tokens": 1_000}).visit()
        orders.append([sample.num_tokens for sample in visit.samples])
    assert orders[1] != orders[2]
    assert sorted(orders[1]) == sorted(orders[2])
    assert orders[1] != sorted(orders[1], reverse=True)


@pytest.mark.parametrize("cost", list(BatchCost))
def test_a_sample_says_what_was_worked_on(cost: BatchCost) -> None:
    clock = FakeClock()
    shape = BatchShape(max_batch_tokens=64, cost=cost)
    runner = FakeRunner(cost=FakeCost(b_s_per_token=1e-5), spend=clock.advance, shape=shape)
    visit = _subject(runner, clock).open({"batch_size": 32}).visit()
    for sample in visit.samples:
        assert sample.latency_ns["batch"] == sample.end_ns - sample.start_ns
        assert sample.latency_ns["batch"] == pytest.approx(sample.processed_tokens * 1e4, rel=1e-6)
        if cost is BatchCost.PADDED:
            assert sample.processed_tokens == sample.num_items * sample.longest
            assert sample.sum_len2 == sample.num_items * sample.longest**2
        else:
            assert sample.processed_tokens == sample.num_tokens
    assert sum(sample.num_items for sample in visit.samples) == 300
    assert visit.client_ns == 0


def test_client_time_is_what_is_left_of_the_window() -> None:
    clock = FakeClock()
    waits = iter([0.5] + [0.0] * 1_000)
    runner = FakeRunner(cost=FakeCost(a_s=0.01), spend=clock.advance)
    subject = EncoderSubject(
        lambda _: runner, _sequences([10] * 8), clock=clock, synchronize=lambda: clock.advance(next(waits))
    )
    first = subject.open({"batch_size": 1}).visit()
    assert first.duration_s == pytest.approx(0.08)  # what was queued before the window is not of it
    assert first.client_ns == 0


def test_streams_share_the_batches() -> None:
    shape = BatchShape(max_batch_tokens=64, num_streams=3)
    runner = FakeRunner(cost=FakeCost(a_s=0.002), spend=time.sleep, shape=shape, record_batches=False)
    subject = EncoderSubject(lambda _: runner, _sequences(LENGTHS), clock=MonotonicClock(), pass_seconds=0.05)
    trial = subject.open({"batch_size": 10})
    trial.visit()
    visit = trial.visit()
    trial.close()
    assert sum(sample.num_items for sample in visit.samples) == 300
    assert runner.max_concurrency == 3
    assert visit.duration_s < sum(sample.end_ns - sample.start_ns for sample in visit.samples) / 1e9
    starts = [sample.start_ns for sample in visit.samples]
    assert starts == sorted(starts)


def test_the_stream_that_works_last_alone_does_not_make_large_batches_look_slow() -> None:
    shape = BatchShape(max_batch_tokens=64, num_streams=2)
    runner = FakeRunner(cost=FakeCost(a_s=0.05), spend=time.sleep, shape=shape, record_batches=False)
    subject = EncoderSubject(lambda _: runner, _sequences([10] * 3), clock=MonotonicClock())
    trial = subject.open({"batch_size": 1})
    visit = trial.visit()
    trial.close()
    assert 0.07 < visit.duration_s < 0.098  # three batches of 50 ms on two streams: 75 ms of both, not 100
    assert visit.client_ns / 1e9 < 0.02


def test_a_single_batch_is_not_counted_as_two_streams_work() -> None:
    shape = BatchShape(max_batch_tokens=64, num_streams=2)
    runner = FakeRunner(cost=FakeCost(a_s=0.05), spend=time.sleep, shape=shape, record_batches=False)
    subject = EncoderSubject(lambda _: runner, _sequences([10]), clock=MonotonicClock())
    trial = subject.open({"batch_size": 1})
    assert trial.visit().duration_s >= 0.05
    trial.close()


def test_a_variant_is_loaded_once() -> None:
    clock = FakeClock()
    made = []

    def make(variant: object) -> FakeRunner:
        made.append(variant)
        return FakeRunner(spend=clock.advance)

    subject = EncoderSubject(make, _sequences(LENGTHS), clock=clock)
    for setting in ({"max_batch_tokens": 64, "dtype": "float32"}, {"batch_size": 2, "dtype": "float32"}):
        subject.open(setting).visit()
    subject.open({"batch_size": 2, "dtype": "bfloat16"}).close()
    assert made == [{"dtype": "float32"}, {"dtype": "bfloat16"}]
    assert set(subject.fingerprint) == {"dtype=float32", "dtype=bfloat16"}


@pytest.mark.parametrize(
    "setting", [{}, {"batch_size": 0}, {"batch_size": "x"}, {"batch_size": 1, "max_batch_tokens": 9}]
)
def test_a_setting_without_one_usable_load_is_refused(setting: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        _subject(FakeRunner(), FakeClock()).open(setting)


def test_out_of_memory_comes_through_and_no_rows_are_refused() -> None:
    runner = FakeRunner(faults=FakeFaults(memory_tokens=100))
    with pytest.raises(OutOfMemory):
        _subject(runner, FakeClock()).open({"batch_size": 32}).visit()
    with pytest.raises(InputError, match="no row"):
        EncoderSubject(lambda _: runner, [], clock=FakeClock())


def test_the_workload_is_described() -> None:
    workload = _subject(FakeRunner(), FakeClock()).workload
    assert (workload.num_items, workload.num_tokens) == (300, sum(LENGTHS))
    assert workload.length_quantiles[0.0] == min(LENGTHS)
    assert workload.length_quantiles[0.5] == sorted(LENGTHS)[149]
    assert workload.length_quantiles[1.0] == max(LENGTHS)
    other = EncoderSubject(lambda _: FakeRunner(), _sequences([*LENGTHS[:-1], 1]), clock=FakeClock()).workload
    assert other.digest != workload.digest


class _Instant(FakeRunner):
    def forward(self, batch: object) -> list[object]:  # type: ignore[override]
        return []


def test_timing_a_batch_costs_less_than_a_two_hundredth_of_ten_milliseconds() -> None:
    subject = EncoderSubject(lambda _: _Instant(), _sequences([8] * 4_000), clock=MonotonicClock())
    trial = subject.open({"batch_size": 1})
    trial.visit()
    visits = [trial.visit() for _ in range(5)]
    assert min(visit.duration_s / len(visit.samples) for visit in visits) < 50e-6
