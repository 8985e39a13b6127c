"""What is said about a fit is true of batches that it did not see."""

import numpy as np
import pytest

from setpoint.cost.evidence import examine_cost
from setpoint.cost.fit import CostSample


def _batches(rng, count, *, noise=0.02, extra=lambda longest: 1.0):
    samples, longest = [], []
    for _ in range(count):
        lengths = rng.integers(4, 4 + 2 ** rng.integers(3, 9), size=rng.integers(1, 20))
        tokens, squares = int(lengths.sum()), int((lengths**2).sum())
        seconds = (2e-3 + 3e-5 * tokens + 4e-8 * squares) * rng.normal(1, noise) * extra(lengths.max())
        samples.append(CostSample(num_tokens=tokens, sum_len2=squares, seconds=float(seconds)))
        longest.append(int(lengths.max()))
    return samples, longest


def test_the_truth_is_recovered_and_the_held_out_error_is_the_noise():
    samples, longest = _batches(np.random.default_rng(0), 300)
    found = examine_cost(samples, longest)
    assert found.a_s == pytest.approx(2e-3, rel=0.1)
    assert found.b_s_per_token == pytest.approx(3e-5, rel=0.05)
    assert found.c_s_per_token2 == pytest.approx(4e-8, rel=0.25)
    assert found.held_out_error == pytest.approx(0.02 * 0.674, rel=0.3)  # the median of |normal|
    assert sum(count for _, _, count in found.error_by_length) == 300
    assert [warning for warning in found.warnings if "off in the middle" in warning] == []


def test_lengths_that_the_model_is_wrong_for_are_named():
    samples, longest = _batches(np.random.default_rng(1), 300, extra=lambda longest: 2.0 if longest > 200 else 1.0)
    found = examine_cost(samples, longest)
    assert any("off in the middle" in warning for warning in found.warnings)


def test_alike_batches_are_warned_of():
    samples = [CostSample(num_tokens=100, sum_len2=1000, seconds=0.01 + 1e-5 * i) for i in range(12)]
    found = examine_cost(samples, [10] * 12)
    assert found.terms == ("b",)
    assert any("attention" in warning for warning in found.warnings)
    assert any("only 12 batches" in warning for warning in found.warnings)
    assert any("extrapolated" in warning for warning in found.warnings)


def test_few_samples_have_no_held_out_error_and_none_are_refused():
    assert examine_cost([CostSample(num_tokens=4, sum_len2=16, seconds=1.0)], [4]).held_out_error is None
    with pytest.raises(ValueError):
        examine_cost([], [])
    with pytest.raises(ValueError, match="as many lengths"):
        examine_cost([CostSample(num_tokens=4, sum_len2=16, seconds=1.0)], [])
