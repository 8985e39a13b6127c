import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.batching.order import inverse, length_order

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


@given(LENGTHS, st.booleans())
def test_the_order_is_the_stable_sort(lengths, longest_first):
    order = length_order(lengths, longest_first=longest_first).tolist()
    expected = sorted(range(len(lengths)), key=lambda i: -lengths[i] if longest_first else lengths[i])
    assert order == expected


@given(LENGTHS, st.booleans())
def test_the_inverse_brings_items_back(lengths, longest_first):
    items = [f"item {i}" for i in range(len(lengths))]
    order = length_order(lengths, longest_first=longest_first)
    there = [items[i] for i in order]
    assert [there[i] for i in inverse(order)] == items


@given(st.permutations(range(12)))
def test_the_inverse_of_the_inverse_is_the_order(order):
    assert inverse(inverse(order)).tolist() == order


def test_an_array_is_as_good_as_a_list():
    assert length_order(np.array([3, 1, 2], dtype=np.int32)).tolist() == [1, 2, 0]
    assert length_order([]).tolist() == []


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [-1, 0], [1]])
def test_what_is_no_permutation_has_no_inverse(order):
    with pytest.raises(ValueError, match="order"):
        inverse(order)


def test_a_negative_length_is_named():
    with pytest.raises(ValueError, match="item 1 has a negative length: -4"):
        length_order([3, -4])
