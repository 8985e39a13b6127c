from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.choose import Choice, choose, explain, operating_point, parse_slos
from setpoint.domain.curve import Estimate, Point, Verdict
from setpoint.domain.slo import Objective, Slo
from setpoint.errors import InputError, UsageError
from tests.choose.curves import curve, linear, point


def limit(seconds: float) -> tuple[Slo, ...]:
    return (Slo(metric="batch", quantile=0.99, limit_s=seconds),)


def load(choice: Choice) -> float:
    assert choice.point is not None
    return choice.point.load


def test_the_bad_end_keeps_the_limit() -> None:
    # 16 takes 0.24 s (up to 0.252 s), 8 takes 0.16 s
    assert load(choose(linear(), slos=limit(0.2521))) == 16
    choice = choose(linear(), slos=limit(0.25))
    assert load(choice) == 8
    assert choice.objective is Objective.DEADLINE
    assert choice.reason == (
        "batch p99 < 250 ms binds: the next faster setting, batch_size=16 dtype=float32, may take 252 ms"
    )
    # the arm of 12 ms must shrink to 10 ms, as 1/sqrt(n): 1,000 * (12/10)^2 = 1,440
    assert [(i.point.load, i.num_more_samples) for i in choice.inconclusive] == [(16, 440)]
    roles = {a.role: a.setting["batch_size"] for a in choice.alternatives}
    assert roles == {"batch-1": 1, "default": 32, "maximum": 64, "lower-neighbour": 4, "upper-neighbour": 16}
    upper = next(a for a in choice.alternatives if a.role == "upper-neighbour")
    assert upper.throughput_change == pytest.approx((16 / 0.24) / (8 / 0.16) - 1)
    assert upper.latency_change == pytest.approx(0.5)
    assert "inconclusive: batch_size=16" in explain(choice)


def test_the_knee_has_both_answers() -> None:
    choice = choose(linear())
    assert load(choice) == 8  # fixed / each
    assert [knee.method for knee in choice.knees] == ["marginal-gain", "kneedle"]
    assert "the knee by marginal gain" in choice.reason
    assert choice.knees[1].point.load in (8, 16)
    told = explain(choice)
    assert "chosen: batch_size=8 dtype=float32" in told
    assert "next above: batch_size=16: 66.7 tokens/s (+33.3%), 240 ms (+50%)" in told


def test_a_knee_at_the_end_is_said_to_lie_beyond() -> None:
    assert "sweep larger loads" in choose(linear([1, 2, 4])).reason


def test_a_flat_curve_takes_the_smallest_batch() -> None:
    choice = choose(curve([point(1, 100, 0.1), point(2, 99, 0.2), point(4, 98, 0.4)]))
    assert load(choice) == 1
    assert "no other setting has more throughput" in choice.reason


def test_no_limit_binds() -> None:
    choice = choose(linear(), slos=limit(100))
    assert load(choice) == 64
    assert "no limit binds" in choice.reason


def test_an_infeasible_limit_names_the_floor() -> None:
    choice = choose(linear(), slos=limit(0.01))
    assert choice.point is None
    assert choice.infeasible is not None
    assert choice.infeasible.is_certain
    assert choice.reason == "no setting meets batch p99 < 10 ms"
    assert "the floor of batch p99 is 90 ms (85.5 ms to 94.5 ms), at batch_size=1" in explain(choice)
    with pytest.raises(InputError, match="no setting meets"):
        operating_point(linear(), choice, "now")


def test_a_withheld_percentile_is_not_met() -> None:
    few = point(1, 10, 0.1, num_samples=100)
    few.latency_s["batch"].quantiles[0.99] = None  # type: ignore[index]
    choice = choose(curve([few]), slos=limit(1))
    assert choice.point is None
    assert choice.infeasible is not None
    assert not choice.infeasible.is_certain
    assert [item.num_more_samples for item in choice.inconclusive] == [268]
    assert "withheld; about 268 more samples" in explain(choice)
    assert "floor of batch p99 is unknown" in explain(choice)


def test_a_tie_goes_to_the_smaller_batch() -> None:
    assert load(choose(curve([point(32, 100.5, 0.3), point(16, 100, 0.2), point(8, 90, 0.1)]), slos=limit(1))) == 16
    # but not one that is worse under the limit: leaving the larger out would not be monotone
    assert load(choose(curve([point(32, 100.5, 0.2), point(16, 100, 0.3)]), slos=limit(1))) == 32


def test_latency_takes_the_lowest_p50() -> None:
    choice = choose(linear(), objective=Objective.LATENCY)
    assert load(choice) == 1
    assert "no allowed point has a lower batch p50" in choice.reason


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(UsageError, match="deadline needs a limit"):
        choose(linear(), objective=Objective.DEADLINE)
    with pytest.raises(UsageError, match="no 'ttft' latency; it has: batch"):
        choose(linear(), slos=parse_slos("ttft p99 < 1s"))
    with pytest.raises(UsageError, match=r"no p99\.9 of batch; it has: p50, p99"):
        choose(linear(), slos=parse_slos("batch p99.9 < 1s"))
    bad = [point(1, 1, 1, verdict=Verdict.FAILED), point(2, 1, 1, verdict=Verdict.NON_STATIONARY)]
    with pytest.raises(InputError, match="1 FAILED, 1 NON_STATIONARY; measure on a quiet machine"):
        choose(curve(bad))
    with pytest.raises(InputError, match="it has no points"):
        choose(curve([]))


def test_one_valid_point_is_chosen_and_said() -> None:
    choice = choose(curve([point(4, 1, 1), point(8, 9, 1, verdict=Verdict.FAILED)]))
    assert load(choice) == 4
    assert choice.reason == "it is the only valid point of the curve"


def test_the_profile_has_what_the_curve_knows() -> None:
    measured = linear()
    saved = operating_point(measured, choose(measured), "2026-01-01T00:00:00Z")
    assert saved.point.load == 8
    assert (saved.options, saved.subject, saved.workload) == (measured.options, measured.subject, measured.workload)


estimates = st.one_of(
    st.none(),
    st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.5]), st.sampled_from([0.0, 0.05, 0.5])).map(
        lambda t: Estimate(value=t[0], low=t[0] * (1 - t[1]), high=t[0] * (1 + t[1]))
    ),
)


@st.composite
def points(draw: st.DrawFn) -> list[Point]:
    keys = draw(st.lists(st.tuples(st.integers(1, 8), st.sampled_from("ab")), min_size=1, max_size=9, unique=True))
    speeds = st.sampled_from([50.0, 99.0, 99.4, 99.8, 100.0, 100.5])
    verdicts = st.sampled_from([None, None, None, Verdict.FAILED])
    return [
        point(n, draw(speeds), draw(estimates), draw(estimates), verdict=draw(verdicts), series=series)
        for n, series in keys
    ]


limits = st.sampled_from([0.09, 0.11, 0.2, 0.21, 0.31, 0.5, 0.51, 2.0])


def two(p50: float, p99: float) -> tuple[Slo, ...]:
    return (Slo(metric="batch", quantile=0.5, limit_s=p50), Slo(metric="batch", quantile=0.99, limit_s=p99))


@given(points(), limits, limits, limits, limits)
def test_a_looser_limit_never_lowers_the_throughput(found: list[Point], a: float, b: float, c: float, d: float) -> None:
    if not any(p.is_valid for p in found):
        return
    tight = choose(curve(found), slos=two(min(a, b), min(c, d)))
    loose = choose(curve(found), slos=two(max(a, b), max(c, d)))
    if tight.point is not None:
        assert loose.point is not None
        assert loose.point.throughput["tokens_per_s"].value >= tight.point.throughput["tokens_per_s"].value


@given(points(), limits, limits, st.sampled_from([None, Objective.LATENCY]), st.booleans(), st.integers())
def test_only_valid_points_whatever_their_order(
    found: list[Point], a: float, b: float, objective: Objective | None, limited: bool, seed: int
) -> None:
    if not any(p.is_valid for p in found):
        return
    shuffled = found[:]
    random.Random(seed).shuffle(shuffled)
    slos = two(a, b) if limited else ()
    try:
        choice = choose(curve(found), slos=slos, objective=objective)
    except InputError:
        with pytest.raises(InputError):
            choose(curve(shuffled), slos=slos, objective=objective)
        return
    assert choose(curve(shuffled), slos=slos, objective=objective) == choice
    assert explain(choice)
    if choice.point is None:
        return
    assert choice.point.is_valid
    for slo in slos:
        estimate = choice.point.latency_s["batch"].quantiles[slo.quantile]
        assert estimate is not None
        assert estimate.high is not None
        assert estimate.high < slo.limit_s


@given(points(), limits, limits)
def test_no_smaller_batch_ties_and_no_faster_one_is_allowed(found: list[Point], a: float, b: float) -> None:
    if not any(p.is_valid for p in found):
        return
    choice = choose(curve(found), slos=two(a, b))
    if choice.point is None:
        return
    speed = choice.point.throughput["tokens_per_s"].value

    def ends(p: Point) -> list[float]:
        got = [p.latency_s["batch"].quantiles[q] for q in (0.5, 0.99)]
        return [math.inf if e is None or e.high is None else e.high for e in got]

    for other in found:
        if not other.is_valid or not all(e < limit_s for e, limit_s in zip(ends(other), (a, b))):
            continue
        theirs = other.throughput["tokens_per_s"].value
        assert theirs * 0.99 <= speed
        if theirs == speed and all(x <= y for x, y in zip(ends(other), ends(choice.point))):
            assert other.load >= choice.point.load


@pytest.mark.parametrize("slos", [(), limit(3)])
def test_ten_thousand_points_are_instant(slos: tuple[Slo, ...]) -> None:
    big = linear(range(1, 10_001), fixed=1.0, each=0.001)
    choose(linear())  # imports
    took = []
    for _ in range(3):
        start = time.perf_counter()
        choose(big, slos=slos)
        took.append(time.perf_counter() - start)
    print(f"choose on 10,000 points: {min(took) * 1000:.0f} ms")
    assert min(took) < 0.5  # 100 ms on a quiet machine
