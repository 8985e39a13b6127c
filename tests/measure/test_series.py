"""Rates, means, trends and outliers, against scipy, the textbook, and the share of false alarms."""

import numpy as np
import pytest
import scipy.stats

from setpoint.measure.series import mean_interval, outliers, rate_estimate, trend


def _ar1(rng, count, rho):
    series = np.empty(count)
    value = rng.normal() / np.sqrt(1 - rho**2)
    for i in range(count):
        value = rho * value + rng.normal()
        series[i] = value
    return series


def test_a_rate_is_all_done_by_all_time_not_the_mean_of_rates():
    found = rate_estimate([10, 100, 10], [1.0, 2.0, 1.0])
    assert found.value == pytest.approx(30.0)
    assert found.low < 30 < found.high


def test_with_equal_durations_a_rate_has_students_interval():
    amounts = [9.0, 11.0, 10.0, 12.0, 8.0]
    low, high = scipy.stats.t.interval(0.95, 4, loc=10, scale=scipy.stats.sem(amounts))
    found = rate_estimate(amounts, [1.0] * 5)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_a_rates_interval_holds_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(600):
        took = rng.uniform(0.5, 1.5, size=8)
        found = rate_estimate((50 * took * rng.normal(1, 0.05, size=8)).tolist(), took.tolist())
        held += found.low <= 50 <= found.high
    assert held / 600 > 0.92


def test_two_visits_give_no_interval():
    found = rate_estimate([1, 2], [1, 1])
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(("amounts", "durations"), [([], []), ([1], [0]), ([1, 2], [1]), ([float("nan")], [1])])
def test_a_rate_of_nothing_is_an_error(amounts, durations):
    with pytest.raises(ValueError):
        rate_estimate(amounts, durations)


def test_batch_means_cover_where_neighbours_are_alike_and_independence_does_not():
    rng = np.random.default_rng(1)
    ours = naive = 0
    for _ in range(300):
        series = _ar1(rng, 900, 0.7)
        found = mean_interval(series)
        ours += found.low <= 0 <= found.high
        half = 1.96 * series.std(ddof=1) / 30
        naive += abs(series.mean()) <= half
    assert ours / 300 > 0.88
    assert naive / 300 < 0.75


def test_the_slope_and_the_score_are_those_of_theil_sen_and_kendall():
    rng = np.random.default_rng(2)
    series = 10 + 0.02 * np.arange(60) + rng.normal(0, 0.5, 60)
    slope = scipy.stats.theilslopes(series).slope
    found = trend(series)
    assert found.change == pytest.approx(slope * 59 / np.median(series))
    assert found.p_value == pytest.approx(scipy.stats.kendalltau(np.arange(60), series).pvalue, abs=0.02)


def test_noise_rarely_looks_like_a_trend_even_where_neighbours_are_alike():
    rng = np.random.default_rng(3)
    white = np.mean([trend(rng.normal(10, 1, 80)).p_value < 0.05 for _ in range(300)])
    alike = [10 + _ar1(rng, 80, 0.6) for _ in range(300)]
    corrected = np.mean([trend(series).p_value < 0.05 for series in alike])
    plain = np.mean([scipy.stats.kendalltau(np.arange(80), series).pvalue < 0.05 for series in alike])
    assert white < 0.08
    assert corrected < 0.75 * plain  # better, not right: verdicts ask for p < 0.01 and a size, too


def test_a_drift_of_a_tenth_is_seen():
    rng = np.random.default_rng(4)
    found = trend((1 + np.linspace(0, 0.1, 1000)) * rng.normal(1, 0.03, 1000))
    assert found.p_value < 1e-6
    assert found.change == pytest.approx(0.1, abs=0.02)


def test_a_constant_and_a_short_series_have_no_trend():
    assert trend([3.0] * 50).p_value == 1.0
    assert trend([1.0, 2.0, 3.0]).change == 0.0


def test_outliers_are_counted_and_noise_is_none():
    rng = np.random.default_rng(5)
    series = rng.lognormal(0, 0.05, 2000)
    assert outliers(series) == 0
    series[[3, 500, 1700]] = 4.0
    assert outliers(series) == 3
    assert outliers([1.0, 100.0]) == 0


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_outliers_are_looked_for_among_durations(wrong):
    with pytest.raises(ValueError, match="above 0"):
        outliers([1.0, wrong, 1.0])
