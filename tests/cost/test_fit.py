import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.cost.fit import CostSample, FittedCost, fit_encoder_cost
from setpoint.cost.model import EncoderCost
from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.row import RowInput
from setpoint.measure.clock import NS_PER_S, FakeClock
from setpoint.runners.fake import FakeCost, FakeRunner

TRUTH = EncoderCost(a_s=2e-3, b_s_per_token=5e-5, c_s_per_token2=4e-8)


def mixed_batches(num_batches: int, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [np.clip(random.lognormal(4.0, 1.2, random.integers(1, 17)), 3, 512).astype(int) for _ in range(num_batches)]


def measure(truth: EncoderCost, batches, noise: float = 0.0, seed: int = 1) -> list[CostSample]:
    random = np.random.default_rng(seed)
    return [
        CostSample.of(
            batch, BatchCost.PADDED, seconds=truth.predict(batch, BatchCost.PADDED) * np.exp(random.normal(0, noise))
        )
        for batch in batches
    ]


def with_outliers(samples: list[CostSample], factor: float, every: int) -> list[CostSample]:
    return [
        CostSample(num_tokens=s.num_tokens, sum_len2=s.sum_len2, seconds=s.seconds * (factor if i % every == 0 else 1))
        for i, s in enumerate(samples)
    ]


def worst_error(fitted: FittedCost, truth: EncoderCost, batches) -> float:
    predictions = [(fitted.cost.predict(b, BatchCost.PADDED), truth.predict(b, BatchCost.PADDED)) for b in batches]
    return max(abs(predicted / true - 1) for predicted, true in predictions)


@settings(deadline=None, max_examples=40)
@given(st.floats(1e-6, 1e-1), st.floats(1e-7, 1e-3), st.floats(1e-11, 1e-6))
def test_exact_times_give_exact_predictions(a_s, b_s, c_s):
    truth = EncoderCost(a_s=a_s, b_s_per_token=b_s, c_s_per_token2=c_s)
    batches = mixed_batches(40)
    fitted = fit_encoder_cost(measure(truth, batches))
    assert fitted.terms == ("a", "b", "c")
    assert worst_error(fitted, truth, batches) < 1e-6
    assert fitted.r2 == pytest.approx(1)
    assert fitted.p90_residual < 1e-6


def test_coefficients_are_recovered():
    fitted = fit_encoder_cost(measure(TRUTH, mixed_batches(60)))
    assert fitted.cost.a_s == pytest.approx(TRUTH.a_s)
    assert fitted.cost.b_s_per_token == pytest.approx(TRUTH.b_s_per_token)
    assert fitted.cost.c_s_per_token2 == pytest.approx(TRUTH.c_s_per_token2)


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_reported_and_hardly_moves_the_predictions(seed):
    batches = mixed_batches(150, seed)
    fitted = fit_encoder_cost(measure(TRUTH, batches, noise=0.05, seed=seed))
    assert worst_error(fitted, TRUTH, batches) < 0.05
    assert fitted.median_residual == pytest.approx(0.6745 * 0.05, rel=0.35)  # the normal distribution's quartile
    assert fitted.p90_residual == pytest.approx(1.645 * 0.05, rel=0.35)
    assert 0.9 < fitted.r2 < 1


@pytest.mark.parametrize("factor", [10.0, 1e6, 0.1, 1e-9])
@pytest.mark.parametrize("seed", range(3))
def test_a_few_outliers_do_not_bend_the_fit(factor, seed):
    batches = mixed_batches(120, seed)
    samples = with_outliers(measure(TRUTH, batches, noise=0.03, seed=seed), factor, every=15)
    assert worst_error(fit_encoder_cost(samples), TRUTH, batches) < 0.06


@pytest.mark.parametrize("missing", ["a_s", "b_s_per_token", "c_s_per_token2"])
def test_a_term_that_costs_nothing_is_fitted_as_nothing_and_never_as_less(missing):
    values = {"a_s": 2e-3, "b_s_per_token": 5e-5, "c_s_per_token2": 4e-8, missing: 0.0}
    truth = EncoderCost(**values)
    batches = mixed_batches(150)
    fitted = fit_encoder_cost(measure(truth, batches, noise=0.03))
    assert getattr(fitted.cost, missing) >= 0
    assert worst_error(fitted, truth, batches) < 0.05


def test_short_batches_count_as_much_as_long_ones():
    batches = [np.array([3]), np.array([4]), *([512] * 16 for _ in range(10)), *([300] * 16 for _ in range(10))]
    batches += [np.array([length]) for length in (5, 9, 30)]
    fitted = fit_encoder_cost(measure(TRUTH, batches, noise=0.02))
    assert fitted.cost.predict([3], BatchCost.PADDED) == pytest.approx(TRUTH.predict([3], BatchCost.PADDED), rel=0.05)


def test_it_finds_the_cost_of_a_runner_that_was_timed_on_a_clock():
    clock = FakeClock()
    price = FakeCost(a_s=3e-3, b_s_per_token=2e-5, c_s_per_token2=1e-7, first_call_s=2.0, stalls_s={17: 0.5})
    runner = FakeRunner(shape=BatchShape(max_batch_tokens=512), cost=price, spend=clock.advance)
    random = np.random.default_rng(0)
    samples = []
    for _ in range(40):
        rows = [RowInput(text="w " * random.integers(1, 200)) for _ in range(random.integers(1, 6))]
        batch = [row.sequences[0] for row in runner.encode(rows)]
        start_ns = clock.now_ns()
        runner.forward(batch)
        seconds = (clock.now_ns() - start_ns) / NS_PER_S
        samples.append(CostSample.of([len(sequence) for sequence in batch], BatchCost.PACKED, seconds=seconds))
    fitted = fit_encoder_cost(samples)
    assert fitted.cost.a_s == pytest.approx(3e-3, rel=1e-4)
    assert fitted.cost.b_s_per_token == pytest.approx(2e-5, rel=1e-4)
    assert fitted.cost.c_s_per_token2 == pytest.approx(1e-7, rel=1e-4)


def test_batches_all_alike_put_the_time_down_to_tokens_and_say_so():
    fitted = fit_encoder_cost([CostSample(num_tokens=100, sum_len2=1_000, seconds=0.2)] * 12)
    assert fitted.terms == ("b",)
    assert fitted.cost.b_s_per_token == pytest.approx(2e-3)
    assert (fitted.cost.a_s, fitted.cost.c_s_per_token2) == (0, 0)
    assert fitted.r2 is None
    assert fitted.median_residual == pytest.approx(0)


def test_one_length_in_batches_of_many_sizes_tells_batches_from_tokens_but_not_attention():
    batches = [[20] * size for size in range(1, 30)]
    truth = EncoderCost(a_s=1e-2, b_s_per_token=1e-4, c_s_per_token2=0)
    fitted = fit_encoder_cost(measure(truth, batches, noise=0.01))
    assert fitted.terms == ("a", "b")
    assert fitted.cost.a_s == pytest.approx(1e-2, rel=0.1)
    assert fitted.cost.c_s_per_token2 == 0


def test_full_budgets_of_many_lengths_tell_tokens_from_attention_but_not_from_batches():
    batches = [[length] * (1_024 // length) for length in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)]
    truth = EncoderCost(a_s=0, b_s_per_token=1e-4, c_s_per_token2=1e-6)
    fitted = fit_encoder_cost(measure(truth, batches))
    assert fitted.terms == ("b", "c")
    assert worst_error(fitted, truth, batches) < 1e-6


def test_one_sample_is_a_rate_without_an_interval():
    fitted = fit_encoder_cost([CostSample(num_tokens=50, sum_len2=2_500, seconds=0.1)])
    assert fitted.cost.b_s_per_token == pytest.approx(2e-3)
    assert (fitted.r2, fitted.confidence) == (None, None)
    forecast = fitted.forecast(10.0)
    assert (forecast.low_s, forecast.high_s) == (None, None)
    assert forecast.mid_s == pytest.approx(10.0)


def test_two_samples_fit_two_terms():
    batches = [[10], [400]]
    fitted = fit_encoder_cost(measure(TRUTH, batches))
    assert len(fitted.terms) == 2
    assert worst_error(fitted, TRUTH, batches) < 0.1


def test_times_of_zero_are_taken_as_the_least_a_clock_can_tell():
    fitted = fit_encoder_cost([CostSample.of(b, BatchCost.PACKED, seconds=0.0) for b in mixed_batches(30)])
    assert 0 < fitted.cost.predict([100], BatchCost.PACKED) < 1e-7
    assert np.isfinite(fitted.p90_residual)
    mixed = [*measure(TRUTH, mixed_batches(60)), CostSample(num_tokens=9, sum_len2=81, seconds=0.0)]
    assert worst_error(fit_encoder_cost(mixed), TRUTH, mixed_batches(60)) < 1e-3


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([], "no samples"),
        ([CostSample(num_tokens=0, sum_len2=0, seconds=1.0)], "sample 0 has no tokens"),
        ([CostSample(num_tokens=1, sum_len2=1, seconds=-1.0)], "sample 0 has no duration"),
        ([CostSample(num_tokens=1, sum_len2=1, seconds=float("nan"))], "sample 0 has no duration"),
    ],
)
def test_what_is_no_sample_is_named(samples, said):
    with pytest.raises(ValueError, match=said):
        fit_encoder_cost(samples)


def test_the_same_samples_give_the_same_fit():
    samples = measure(TRUTH, mixed_batches(50), noise=0.1)
    assert fit_encoder_cost(samples) == fit_encoder_cost(samples)


def test_a_forecast_holds_the_outcome_as_often_as_it_says():
    held = 0
    for seed in range(100):
        noise = np.random.default_rng(seed).uniform(0.02, 0.2)
        fitted = fit_encoder_cost(measure(TRUTH, mixed_batches(60, seed), noise=noise, seed=seed))
        job = mixed_batches(200, seed + 1_000)
        outcome_s = sum(sample.seconds for sample in measure(TRUTH, job, noise=noise, seed=seed + 2_000))
        forecast = fitted.forecast(fitted.cost.predict_batches(job, BatchCost.PADDED))
        assert forecast.low_s < forecast.mid_s < forecast.high_s
        held += forecast.low_s <= outcome_s <= forecast.high_s
        assert fitted.confidence == pytest.approx(0.9)
    assert held >= 90


def test_a_forecast_is_wider_where_times_drift():
    batches = mixed_batches(60)
    steady = measure(TRUTH, batches, noise=0.02)
    drifting = [
        CostSample(num_tokens=s.num_tokens, sum_len2=s.sum_len2, seconds=s.seconds * (1 + 0.3 * np.sin(i / 10)))
        for i, s in enumerate(steady)
    ]
    narrow, wide = fit_encoder_cost(steady).forecast(100), fit_encoder_cost(drifting).forecast(100)
    assert narrow.high_s - narrow.low_s < 12
    assert wide.high_s - wide.low_s > 50


@pytest.mark.parametrize("total_s", [-1.0, float("nan"), float("inf")])
def test_what_is_no_prediction_has_no_forecast(total_s):
    fitted = fit_encoder_cost(measure(TRUTH, mixed_batches(20)))
    with pytest.raises(ValueError, match="prediction"):
        fitted.forecast(total_s)


SAMPLES = st.integers(1, 10**6).flatmap(
    lambda tokens: st.builds(
        CostSample,
        num_tokens=st.just(tokens),
        sum_len2=st.integers(tokens, tokens**2),
        seconds=st.one_of(st.just(0.0), st.floats(1e-9, 1e5)),
    )
)


@settings(deadline=None, max_examples=150)
@given(st.lists(SAMPLES, min_size=1, max_size=40))
def test_whatever_was_measured_gives_finite_figures(samples):
    fitted = fit_encoder_cost(samples)
    assert fitted.num_samples == len(samples)
    assert "b" in fitted.terms
    assert len(fitted.terms) <= len(samples)
    assert all(fitted.cost.seconds(s.num_tokens, s.sum_len2) > 0 for s in samples)
    assert 0 <= fitted.median_residual <= fitted.p90_residual < float("inf")
    forecast = fitted.forecast(1.0)
    assert np.isfinite(forecast.mid_s)
    if fitted.confidence is not None:
        assert 0 <= forecast.low_s <= forecast.mid_s <= forecast.high_s < float("inf")
