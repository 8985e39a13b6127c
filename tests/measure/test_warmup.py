"""Warm-up is found where there is one, and not where there is none."""

import numpy as np
import pytest

from setpoint.measure.warmup import find_warmup


def test_noise_without_a_warm_up_has_none_19_times_in_20():
    found = [find_warmup(np.random.default_rng(seed).normal(1, 0.05, 200)).num_warmup for seed in range(400)]
    assert np.mean(np.array(found) > 0) < 0.05


@pytest.mark.parametrize("seed", range(10))
def test_one_slow_first_call_is_one(seed):
    series = np.random.default_rng(seed).normal(1, 0.05, 100)
    series[0] = 8.0
    assert find_warmup(series).num_warmup == 1


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_decay_is_found_to_where_noise_hides_it(seed):
    series = (1 + 2 * np.exp(-np.arange(400) / 20)) * np.random.default_rng(seed).normal(1, 0.05, 400)
    found = find_warmup(series)
    assert found.is_settled
    assert 40 <= found.num_warmup <= 110  # 2 exp(-k/20) is 27% at 40 and under 1% at 110


def test_exact_times_have_no_warm_up_but_the_first_call():
    assert find_warmup([1.0] * 50).num_warmup == 0
    assert find_warmup([1.5] + [1.0] * 50).num_warmup == 1


def test_what_never_settles_says_so():
    series = np.concatenate([np.full(60, 3.0), np.ones(60)])
    found = find_warmup(series, max_share=0.25)
    assert not found.is_settled
    assert "still slower" in found.evidence


@pytest.mark.parametrize(("values", "num"), [([], 0), ([5.0], 0), ([5.0, 1.0], 1), ([1.0, 1.0, 1.0], 1)])
def test_few_samples_give_up_the_first(values, num):
    assert find_warmup(values).num_warmup == num


def test_a_stall_later_on_is_no_warm_up():
    series = np.ones(100)
    series[30] = 50.0
    assert find_warmup(series).num_warmup == 0


def test_a_duration_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        find_warmup([1.0, float("nan"), 1.0])
