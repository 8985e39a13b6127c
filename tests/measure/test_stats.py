import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from setpoint.measure.stats import interval_ranks, median_of_repeats, min_samples, percentile, summary

QUANTILES = st.floats(0.01, 0.99)


@pytest.mark.parametrize(("q", "expected"), [(0.5, 6), (0.95, 72), (0.99, 368), (0.05, 72), (0.9, 36), (0.999, 3_688)])
def test_the_fewest_samples_for_an_interval(q, expected):
    assert min_samples(q) == expected
    assert min_samples(q) == math.ceil(math.log(0.025) / math.log(max(q, 1 - q)))
    assert interval_ranks(expected - 1, q) is None
    assert interval_ranks(expected, q) is not None


# Two-sided 95% intervals for the median, by the ranks of their ends from both sides: tables of the sign test.
MEDIAN_RANKS = {6: 1, 7: 1, 8: 1, 9: 2, 10: 2, 12: 3, 15: 4, 17: 5, 20: 6, 25: 8, 30: 10, 40: 14, 50: 18, 100: 40}


@pytest.mark.parametrize(("num_samples", "rank"), MEDIAN_RANKS.items())
def test_ranks_for_the_median_are_those_of_the_sign_tests_tables(num_samples, rank):
    assert interval_ranks(num_samples, 0.5) == (rank, num_samples + 1 - rank)


@settings(deadline=None)
@given(st.integers(1, 5_000), QUANTILES)
def test_ranks_cover_the_quantile_and_are_the_tightest_that_do(num_samples, q):
    ranks = interval_ranks(num_samples, q)
    if ranks is None:
        assert binom.pmf(0, num_samples, q) > 0.025 or binom.pmf(num_samples, num_samples, q) > 0.025
        return
    low, high = ranks
    assert 1 <= low < high <= num_samples
    assert binom.cdf(low - 1, num_samples, q) <= 0.025 < binom.cdf(low, num_samples, q)
    assert binom.sf(high - 1, num_samples, q) <= 0.025 < binom.sf(high - 2, num_samples, q)


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=400), st.sampled_from([0.1, 0.5, 0.9, 0.95, 0.99]))
def test_a_percentile_lies_in_its_interval_and_among_its_samples(samples, q):
    found = percentile(samples, q)
    assert (found is None) == (len(samples) < min_samples(q))
    if found is not None:
        assert found.low <= found.value <= found.high
        assert {found.low, found.high} <= set(samples)
        assert found.value == pytest.approx(np.quantile(samples, q))
        assert found.num_samples == len(samples)


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_intervals_hold_the_true_quantile_in_19_of_20_experiments(q):
    random = np.random.default_rng(7)
    truth = -math.log(1 - q)  # of the exponential distribution
    held = 0
    for _ in range(600):
        found = percentile(random.exponential(size=200), q)
        held += found.low <= truth <= found.high
    assert held / 600 >= 0.94


def test_too_few_samples_give_no_percentile():
    assert percentile([1.0] * 5, 0.5) is None
    assert percentile([], 0.5) is None
    assert percentile(range(367), 0.99) is None


@pytest.mark.parametrize("q", [0, 1, -0.1, 95, float("nan")])
def test_a_quantile_is_a_share(q):
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0] * 10, q)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("what", [summary, median_of_repeats, lambda samples: percentile(samples, 0.5)])
def test_a_failed_measurement_is_not_a_sample(bad, what):
    with pytest.raises(ValueError, match="NaN or infinite"):
        what([1.0, bad, 2.0])


def test_a_summary_withholds_what_it_cannot_know():
    few = summary([3.0, 1.0, 2.0])
    assert (few.num_samples, few.smallest, few.largest) == (3, 1.0, 3.0)
    assert (few.p50, few.p95, few.p99) == (None, None, None)
    some = summary(np.arange(100.0))
    assert some.p50.value == 49.5
    assert (some.p50.low, some.p50.high) == (39.0, 60.0)
    assert some.p95 is not None
    assert some.p99 is None


def test_samples_are_left_as_they_were():
    samples = np.array([3.0, 1.0, 2.0])
    summary(samples)
    median_of_repeats(samples)
    assert samples.tolist() == [3.0, 1.0, 2.0]


def test_nothing_has_no_summary_and_no_median():
    with pytest.raises(ValueError, match="no samples"):
        summary([])
    with pytest.raises(ValueError, match="no repeats"):
        median_of_repeats([])


def test_one_repeat_has_no_interval():
    found = median_of_repeats([4.0])
    assert (found.median, found.low, found.high, found.num_repeats) == (4.0, None, None, 1)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(0, 99))
def test_the_median_of_repeats_lies_in_its_interval_within_their_range(values, seed):
    found = median_of_repeats(values, seed=seed)
    assert found.median == pytest.approx(np.median(values))
    assert min(values) <= found.low <= found.median + 1e-9
    assert found.median - 1e-9 <= found.high <= max(values)
    assert found == median_of_repeats(list(reversed(values)), seed=seed)


def test_the_bootstrap_agrees_with_an_independent_one():
    from scipy.stats import bootstrap

    values = np.random.default_rng(3).gamma(4.0, 1.0, 41)
    theirs = bootstrap(
        (values,), np.median, n_resamples=20_000, method="percentile", rng=np.random.default_rng(5)
    ).confidence_interval
    ours = median_of_repeats(values, num_resamples=20_000)
    assert ours.low == pytest.approx(theirs.low, abs=0.15)
    assert ours.high == pytest.approx(theirs.high, abs=0.15)
