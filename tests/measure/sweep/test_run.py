"""Sweeps of runners whose truth is known, through the real code on a fake clock."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from setpoint.domain.batch import BatchShape
from setpoint.domain.curve import Verdict
from setpoint.domain.slo import Slo
from setpoint.errors import UsageError
from setpoint.measure.clock import FakeClock
from setpoint.measure.encoder_subject import EncoderSubject
from setpoint.measure.sweep import SweepState, plan_points, run_sweep
from setpoint.runners.fake import FakeCost, FakeFaults, FakeRunner
from tests.measure.sweep.truth import COST, PADDED, Bench, best_of, sequences_of, skewed_lengths, truth_of_point

LENGTHS = skewed_lengths()


@pytest.mark.parametrize("padded", [False, True])
def test_every_point_matches_the_truth(padded: bool) -> None:
    bench = Bench(LENGTHS, shape=PADDED if padded else None)
    result = bench.sweep()
    assert result.is_complete
    assert {point.load for point in result.points if point.load_name == "batch_size"} == {1, 32}
    for point in result.points:
        truth = truth_of_point(LENGTHS, point, padded=padded)
        assert point.is_valid, (point.key, point.findings)
        assert point.throughput["items_per_s"].value == pytest.approx(truth.items_per_s, rel=0.02), point.key
        assert point.throughput["tokens_per_s"].value == pytest.approx(truth.tokens_per_s, rel=0.02), point.key
        latency = point.latency_s["batch"]
        assert latency.largest_s == pytest.approx(max(truth.durations_s), rel=1e-6)
        assert latency.smallest_s == pytest.approx(min(truth.durations_s), rel=1e-6)
        for q in (0.5, 0.9, 0.95, 0.99):
            found = latency.quantiles[q]
            if found is not None:
                assert found.low is not None
                assert found.high is not None
                # the true quantile lies within the interval, as far as the steps between batches let it
                assert found.low * 0.98 <= truth.quantile_s(q) <= found.high * 1.02, (point.key, q)


def test_the_best_point_and_its_figures_survive_noise() -> None:
    result = Bench(LENGTHS, cost=replace(COST, noise=0.05)).sweep()
    best = best_of(result.points)
    truths = {point.key: truth_of_point(LENGTHS, point).items_per_s for point in result.points}
    assert truths[best.key] >= 0.97 * max(truths.values())
    for point in result.points:
        assert point.throughput["items_per_s"].value == pytest.approx(truths[point.key], rel=0.05), point.key


def test_parts_of_a_large_workload_do_not_look_like_drift() -> None:
    cost = FakeCost(a_s=0.003, b_s_per_token=150e-6, c_s_per_token2=3e-7, noise=0.04)
    lengths = skewed_lengths(1_400)  # a pass takes ten times as long as a visit
    result = Bench(lengths, cost=cost).sweep()
    for point in result.points:
        truth = truth_of_point(lengths, point, cost=cost)
        assert point.is_valid, (point.key, point.findings)
        assert point.throughput["items_per_s"].value == pytest.approx(truth.items_per_s, rel=0.05), point.key
        assert point.throughput["tokens_per_s"].value == pytest.approx(truth.tokens_per_s, rel=0.05), point.key


def test_a_slow_first_call_is_kept_and_not_counted_and_would_have_changed_the_answer() -> None:
    slow = replace(COST, first_call_s=5.0)
    result = Bench(LENGTHS, cost=slow).sweep()
    first = min(result.points, key=lambda point: result.visits[point.key][0].start_ns)  # the anchor
    truth = truth_of_point(LENGTHS, first)
    assert first.num_warmup >= 1
    assert first.throughput["items_per_s"].value == pytest.approx(truth.items_per_s, rel=0.02)
    assert first.latency_s["batch"].largest_s < 1.0

    visits = result.visits[first.key]
    samples = [sample for visit in visits for sample in visit.samples]
    assert max(sample.end_ns - sample.start_ns for sample in samples) > 5e9  # kept
    counted_all = sum(sample.num_items for sample in samples) / sum(visit.duration_s for visit in visits)
    assert counted_all < 0.6 * truth.items_per_s


def test_drift_is_found_and_named() -> None:
    clock = FakeClock()
    bench = Bench(LENGTHS, clock=clock, on_forward=lambda batch: clock.advance(clock.now_ns() / 1e9 * 2e-4))
    result = bench.sweep()
    verdicts = {point.verdict for point in result.points}
    assert Verdict.NON_STATIONARY in verdicts
    anchor = next(point for point in result.points if point.key == plan_points(LENGTHS).anchor.key)
    assert anchor.verdict is Verdict.NON_STATIONARY


def test_a_stall_every_500th_call_is_in_the_tail() -> None:
    stalls = dict.fromkeys(range(499, 200000, 500), 0.5)
    quiet = Bench(LENGTHS).sweep()
    stalled = Bench(LENGTHS, cost=replace(COST, stalls_s=stalls)).sweep()
    one_quiet = next(point for point in quiet.points if point.key == "batch_size=1")
    one = next(point for point in stalled.points if point.key == "batch_size=1")
    assert one.latency_s["batch"].largest_s > 0.5 > one_quiet.latency_s["batch"].largest_s
    assert one.num_outliers >= 1
    median, median_quiet = one.latency_s["batch"].quantiles[0.5], one_quiet.latency_s["batch"].quantiles[0.5]
    assert median is not None
    assert median_quiet is not None
    assert median.value == pytest.approx(median_quiet.value, rel=0.02)  # the median alone would have hidden it


class _Queue:
    """An accelerator that computes later: `forward` only queues, `wait` lets the time pass."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queued_s = 0.0
        self.runner = FakeRunner(cost=COST, spend=self.add, embedding_size=1)

    def add(self, duration_s: float) -> None:
        self.clock.advance(10e-6)  # queueing itself
        self.queued_s += duration_s

    def wait(self) -> None:
        self.clock.advance(self.queued_s)
        self.queued_s = 0.0


def test_without_synchronizing_an_asynchronous_runner_would_be_timed_wrong() -> None:
    found = {}
    for is_synchronized in (True, False):
        queue = _Queue()
        options = {"synchronize": queue.wait} if is_synchronized else {}
        subject = EncoderSubject(lambda _: queue.runner, sequences_of(LENGTHS), clock=queue.clock, **options)  # noqa: B023
        plan = plan_points(LENGTHS)
        # without waiting no time passes: the answer is wrong already after one visit
        visit = subject.open(plan.anchor.setting).visit()
        found[is_synchronized] = sum(sample.num_items for sample in visit.samples) / visit.duration_s
        if is_synchronized:
            result = run_sweep(subject, plan, clock=queue.clock, budget_s=120)
            for point in result.points:
                truth = truth_of_point(LENGTHS, point)
                assert point.throughput["items_per_s"].value == pytest.approx(truth.items_per_s, rel=0.02)
    assert found[False] > 10 * found[True]


def test_a_setting_that_does_not_fit_in_memory_fails_and_the_rest_goes_on() -> None:
    result = Bench(LENGTHS, faults=FakeFaults(memory_tokens=2_000)).sweep()
    failed = {point.key: point for point in result.points if point.verdict is Verdict.FAILED}
    largest = {
        point.key: max(sum(batch) for batch in truth_of_point(LENGTHS, point).batches) for point in result.points
    }
    assert set(failed) == {key for key, tokens in largest.items() if tokens > 2_000} != set()
    assert all("OutOfMemory" in point.findings[0].evidence for point in failed.values())
    assert all(point.throughput for point in result.points if point.key not in failed)
    assert result.is_complete


def test_identical_lengths_and_a_single_row() -> None:
    same = Bench([32] * 200).sweep()
    for point in same.points:
        assert point.throughput["items_per_s"].value == pytest.approx(
            truth_of_point([32] * 200, point).items_per_s, rel=0.02
        )
    single = Bench([50]).sweep()
    assert {point.key for point in single.points} == {"max_batch_tokens=64", "batch_size=1"}
    assert any("left out" in note for note in single.notes)
    for point in single.points:
        assert point.throughput["items_per_s"].value == pytest.approx(truth_of_point([50], point).items_per_s, rel=0.02)


def test_a_budget_too_small_says_so() -> None:
    with pytest.raises(UsageError, match="budget"):
        Bench(LENGTHS).sweep(budget_s=0)
    short = Bench(LENGTHS).sweep(budget_s=2.0)
    assert not short.is_complete
    assert any("not measured" in note for note in short.notes)
    assert short.points


def test_the_budget_is_kept() -> None:
    bench = Bench(LENGTHS, cost=replace(COST, noise=0.3))
    result = bench.sweep(budget_s=60)
    assert result.spent_s <= 62
    assert result.spent_s == pytest.approx(bench.clock.now_ns() / 1e9)


def test_a_stopped_sweep_keeps_what_it_has_and_goes_on_later() -> None:
    states: list[SweepState] = []
    saved = []
    bench = Bench(LENGTHS)
    part = bench.sweep(stop=lambda: len(states) >= 9, on_visit=states.append, save=saved.append)
    assert not part.is_complete
    assert sum(point.num_visits for point in part.points) == 9
    assert len(saved) == 10
    assert saved[-1] == part

    whole = bench.sweep(resume_from=part)
    assert whole.is_complete
    assert whole.spent_s > part.spent_s
    visits = {point.key: point.num_visits for point in whole.points}
    assert all(visits[point.key] >= point.num_visits for point in part.points)
    for point in whole.points:
        assert whole.visits[point.key][: len(part.visits.get(point.key, ()))] == part.visits.get(point.key, ())
        assert point.throughput["items_per_s"].value == pytest.approx(
            truth_of_point(LENGTHS, point).items_per_s, rel=0.02
        )


def test_two_sweeps_choose_the_same_point_or_a_neighbour() -> None:
    limit = 0.06
    chosen = []
    for seed in (1, 2):
        result = Bench(LENGTHS, cost=replace(COST, noise=0.05, seed=seed), seed=seed).sweep(
            seed=seed, slos=(Slo(metric="batch", quantile=0.95, limit_s=limit),)
        )
        within = []
        for point in result.points:
            found = point.latency_s["batch"].quantiles[0.95]
            if point.load_name == "max_batch_tokens" and found is not None and (found.high or math.inf) < limit:
                within.append(point)
        chosen.append(best_of(within).load)
    assert abs(np.log2(chosen[0] / chosen[1])) <= 1


def test_streams_run_side_by_side() -> None:
    bench = Bench(LENGTHS, shape=BatchShape(max_batch_tokens=1024, num_streams=2))
    visit = bench.subject.open({"max_batch_tokens": 256}).visit()
    assert [sample.start_ns for sample in visit.samples] == sorted(sample.start_ns for sample in visit.samples)
