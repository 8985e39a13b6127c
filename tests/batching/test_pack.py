import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.batching.pack import arrival_batches, batch_cost_tokens, form_batches, optimal_batches, padding_waste
from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.errors import UsageError


@dataclass(frozen=True)
class Price:
    a_s: float
    b_s_per_token: float
    c_s_per_token2: float


PRICE = Price(3e-3, 1e-4, 2e-7)
LENGTHS = st.lists(st.integers(0, 60) | st.integers(0, 600), max_size=80)
SHAPES = st.builds(
    BatchShape,
    max_batch_tokens=st.integers(1, 1_000),
    max_batch_size=st.none() | st.integers(1, 20),
    cost=st.sampled_from(BatchCost),
)
PRICES = st.builds(Price, st.floats(0, 1), st.floats(0, 1e-2), st.floats(0, 1e-4))
WAYS = [form_batches, arrival_batches, lambda lengths, shape: optimal_batches(lengths, PRICE, shape)]


def tokens_of(batch: list[int], cost: BatchCost) -> int:
    return len(batch) * max(batch) if cost is BatchCost.PADDED else sum(batch)


def seconds_of(batches, lengths, price: Price) -> float:
    """Predicted cost of padded batches, written out."""
    total = 0.0
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        total += price.a_s + len(batch) * (price.b_s_per_token * longest + price.c_s_per_token2 * longest**2)
    return total


@pytest.mark.parametrize("way", WAYS)
@given(lengths=LENGTHS, shape=SHAPES)
def test_every_item_is_in_one_batch_and_no_batch_is_empty(way, lengths, shape):
    batches = way(lengths, shape)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) for batch in batches)


@pytest.mark.parametrize("way", WAYS)
@given(lengths=LENGTHS, shape=SHAPES)
def test_the_limits_hold_but_for_an_item_that_alone_is_larger(way, lengths, shape):
    for batch in way(lengths, shape):
        assert shape.max_batch_size is None or len(batch) <= shape.max_batch_size
        if len(batch) > 1:
            assert tokens_of([lengths[i] for i in batch], shape.cost) <= shape.max_batch_tokens


@pytest.mark.parametrize("way", WAYS)
@given(lengths=LENGTHS, shape=SHAPES)
def test_the_same_lengths_give_the_same_batches(way, lengths, shape):
    again = way(np.array(lengths, dtype=np.int32), shape)
    assert [batch.tolist() for batch in way(lengths, shape)] == [batch.tolist() for batch in again]


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]])
@given(lengths=LENGTHS, shape=SHAPES)
def test_the_longest_come_first_and_like_lengths_together(way, lengths, shape):
    flat = [lengths[i] for batch in way(lengths, shape) for i in batch]
    assert flat == sorted(lengths, reverse=True)


@given(LENGTHS, SHAPES)
def test_arrival_order_is_kept_where_nothing_is_sorted(lengths, shape):
    assert [i for batch in arrival_batches(lengths, shape) for i in batch] == list(range(len(lengths)))


@pytest.mark.parametrize("way", WAYS[:2])
@given(lengths=LENGTHS, shape=SHAPES)
def test_a_batch_is_closed_only_when_the_next_item_does_not_fit(way, lengths, shape):
    for batch, following in pairwise(way(lengths, shape)):
        joined = [lengths[i] for i in [*batch, following[0]]]
        full = shape.max_batch_size is not None and len(joined) > shape.max_batch_size
        assert full or tokens_of(joined, shape.cost) > shape.max_batch_tokens


@given(LENGTHS, SHAPES, PRICES)
def test_optimal_is_never_predicted_to_cost_more_than_filling_up(lengths, shape, price):
    padded = BatchShape(
        max_batch_tokens=shape.max_batch_tokens, max_batch_size=shape.max_batch_size, cost=BatchCost.PADDED
    )
    filled = seconds_of(form_batches(lengths, padded), lengths, price)
    assert seconds_of(optimal_batches(lengths, price, padded), lengths, price) <= filled * (1 + 1e-9)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), SHAPES, PRICES)
def test_optimal_is_the_best_of_all_ways_to_cut(lengths, shape, price):
    padded = BatchShape(
        max_batch_tokens=shape.max_batch_tokens, max_batch_size=shape.max_batch_size, cost=BatchCost.PADDED
    )
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    best = float("inf")
    for cuts in range(2 ** (len(order) - 1)):
        batches = [[order[0]]]
        for k, item in enumerate(order[1:]):
            batches.append([item]) if cuts >> k & 1 else batches[-1].append(item)
        allowed = all(
            len(batch) == 1
            or (
                tokens_of([lengths[i] for i in batch], BatchCost.PADDED) <= padded.max_batch_tokens
                and len(batch) <= (padded.max_batch_size or len(lengths))
            )
            for batch in batches
        )
        if allowed:
            best = min(best, seconds_of(batches, lengths, price))
    assert seconds_of(optimal_batches(lengths, price, padded), lengths, price) == pytest.approx(best)


def test_optimal_saves_real_time_where_padding_costs_more_than_a_batch():
    lengths = np.clip(np.random.default_rng(0).lognormal(4.0, 1.2, 500), 3, 512).astype(int).tolist()
    shape = BatchShape(max_batch_tokens=8_192, cost=BatchCost.PADDED)
    filled, optimal = form_batches(lengths, shape), optimal_batches(lengths, PRICE, shape)
    assert seconds_of(optimal, lengths, PRICE) < 0.9 * seconds_of(filled, lengths, PRICE)


def test_optimal_is_fast_enough_for_a_large_window():
    lengths = np.clip(np.random.default_rng(0).lognormal(4.0, 1.2, 4_096), 3, 512).astype(int)
    shape = BatchShape(max_batch_tokens=16_384, cost=BatchCost.PADDED)
    durations_s = []
    for _ in range(5):
        start_s = time.process_time()
        optimal_batches(lengths, PRICE, shape)
        durations_s.append(time.process_time() - start_s)
    assert min(durations_s) < 0.05


def test_an_item_over_budget_travels_alone():
    shape = BatchShape(max_batch_tokens=10)
    assert [batch.tolist() for batch in form_batches([3, 99, 3, 3], shape)] == [[1], [0, 2, 3]]
    assert [batch.tolist() for batch in arrival_batches([3, 99, 3, 3], shape)] == [[0], [1], [2, 3]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cost", list(BatchCost))
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_batch_tokens": 0}, "token budget"),
        ({"max_batch_tokens": 9, "max_batch_size": 0}, "batch size"),
        ({"max_batch_tokens": -5}, "-5"),
    ],
)
def test_limits_below_one_are_refused_even_for_no_items(way, cost, limits, said):
    for lengths in ([], [1, 2]):
        with pytest.raises(UsageError, match=said):
            way(lengths, BatchShape(cost=cost, **limits))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cost", list(BatchCost))
def test_no_items_make_no_batches(way, cost):
    assert way([], BatchShape(max_batch_tokens=8, cost=cost)) == []


@pytest.mark.parametrize(("cost", "tokens"), [(BatchCost.PADDED, 15), (BatchCost.PACKED, 9)])
def test_tokens_are_counted_as_the_executor_processes_them(cost, tokens):
    assert batch_cost_tokens([5, 1, 3], cost) == tokens
    assert batch_cost_tokens([], cost) == 0


def test_padding_waste_is_one_minus_useful_over_processed():
    assert padding_waste([[5, 1, 3], [2]], BatchCost.PADDED) == pytest.approx(1 - 11 / 17)
    assert padding_waste([[5, 1, 3], [2]], BatchCost.PACKED) == 0
    assert padding_waste([], BatchCost.PADDED) == 0
