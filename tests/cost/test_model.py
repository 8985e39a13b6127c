import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.batching.pack import form_batches, optimal_batches
from setpoint.cost.model import EncoderCost, batch_moments
from setpoint.domain.batch import BatchCost, BatchShape

COST = EncoderCost(a_s=0.5, b_s_per_token=0.01, c_s_per_token2=0.001)
BATCH = st.lists(st.integers(1, 500), min_size=1, max_size=20)


def test_a_batch_is_predicted_as_it_is_processed():
    assert COST.predict([5, 1, 3], BatchCost.PACKED) == pytest.approx(0.5 + 0.09 + 0.035)
    assert COST.predict([5, 1, 3], BatchCost.PADDED) == pytest.approx(0.5 + 0.15 + 0.075)


def test_no_batch_costs_nothing():
    assert COST.predict([], BatchCost.PADDED) == 0
    assert COST.predict_batches([], BatchCost.PACKED) == 0
    assert batch_moments([], BatchCost.PADDED) == (0, 0)


@given(BATCH)
def test_padding_never_makes_a_batch_cheaper_and_like_lengths_have_none(lengths):
    packed, padded = COST.predict(lengths, BatchCost.PACKED), COST.predict(lengths, BatchCost.PADDED)
    assert packed <= padded * (1 + 1e-12)
    if len(set(lengths)) == 1:
        assert packed == pytest.approx(padded)


@given(st.lists(BATCH, max_size=6), st.sampled_from(BatchCost))
def test_batches_add_up(batches, cost):
    moments = [batch_moments(batch, cost) for batch in batches]
    together = COST.seconds(sum(m[0] for m in moments), sum(m[1] for m in moments), num_batches=len(batches))
    assert COST.predict_batches(batches, cost) == pytest.approx(together)


def test_moments_of_long_texts_do_not_overflow():
    assert batch_moments([2_000_000] * 3, BatchCost.PADDED) == (6_000_000, 12 * 10**12)
    assert batch_moments([2_000_000] * 3, BatchCost.PACKED) == (6_000_000, 12 * 10**12)


@pytest.mark.parametrize("bad", [-1e-9, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["a_s", "b_s_per_token", "c_s_per_token2"])
def test_an_impossible_coefficient_is_refused(name, bad):
    values = {"a_s": 0.0, "b_s_per_token": 0.0, "c_s_per_token2": 0.0, name: bad}
    with pytest.raises(ValueError, match=name):
        EncoderCost(**values)


def test_it_prices_batches_for_the_optimal_cut():
    lengths = [500, 400, 300, 20, 10, 5]
    shape = BatchShape(max_batch_tokens=10_000, cost=BatchCost.PADDED)
    batches = [[lengths[i] for i in batch] for batch in optimal_batches(lengths, COST, shape)]
    filled = [[lengths[i] for i in batch] for batch in form_batches(lengths, shape)]
    assert COST.predict_batches(batches, BatchCost.PADDED) < COST.predict_batches(filled, BatchCost.PADDED)
