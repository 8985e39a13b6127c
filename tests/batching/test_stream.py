from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.batching.stream import windows
from setpoint.errors import UsageError

STREAMS = st.lists(st.integers(0, 30), max_size=100)
ROWS = st.integers(1, 12)
TOKENS = st.integers(1, 60)


def cut(items, rows: int, tokens: int) -> list[list[int]]:
    return list(windows(items, num_tokens=lambda item: item, max_rows=rows, max_tokens=tokens))


@given(STREAMS, ROWS, TOKENS)
def test_windows_concatenate_to_the_stream(items, rows, tokens):
    found = cut(items, rows, tokens)
    assert [item for window in found for item in window] == items
    assert all(found)


@given(STREAMS, ROWS, TOKENS)
def test_windows_are_bounded_but_for_an_item_that_alone_is_larger(items, rows, tokens):
    for window in cut(items, rows, tokens):
        assert len(window) <= rows
        assert sum(window) <= tokens or len(window) == 1


@given(STREAMS, ROWS, TOKENS)
def test_a_window_ends_only_where_a_limit_is_met(items, rows, tokens):
    found = cut(items, rows, tokens)
    for window, following in pairwise(found):
        assert len(window) == rows or sum(window) == tokens or sum(window) + following[0] > tokens


@given(STREAMS, ROWS, TOKENS)
def test_windows_are_the_same_every_time_and_for_any_kind_of_stream(items, rows, tokens):
    assert cut(items, rows, tokens) == cut(iter(items), rows, tokens)


@given(STREAMS, ROWS, TOKENS, st.data())
def test_windows_after_a_restart_at_a_border_are_those_of_an_uninterrupted_run(items, rows, tokens, data):
    found = cut(items, rows, tokens)
    done = data.draw(st.integers(0, len(found)))
    rest = items[sum(map(len, found[:done])) :]
    assert cut(rest, rows, tokens) == found[done:]


def test_an_endless_stream_is_read_one_item_ahead_at_most():
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield 7

    stream = windows(endless(), num_tokens=lambda item: item, max_rows=4, max_tokens=1_000)
    assert next(stream) == [7] * 4
    assert taken == 4  # full by rows: the fifth item was not asked for
    by_tokens = windows(endless(), num_tokens=lambda item: item, max_rows=100, max_tokens=20)
    taken = 0
    assert next(by_tokens) == [7, 7]
    assert taken == 3


def test_each_item_is_counted_once():
    counted: list[int] = []

    def num_tokens(item: int) -> int:
        counted.append(item)
        return item

    assert list(windows([1, 2, 3], num_tokens=num_tokens, max_rows=2, max_tokens=3)) == [[1, 2], [3]]
    assert counted == [1, 2, 3]


def test_an_error_of_the_stream_passes_through():
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("gone")

    stream = windows(broken(), num_tokens=lambda item: 1, max_rows=1, max_tokens=9)
    assert [next(stream), next(stream)] == [[1], [2]]
    with pytest.raises(OSError, match="gone"):
        next(stream)


@pytest.mark.parametrize(("rows", "tokens", "said"), [(0, 5, "max_rows"), (5, 0, "max_tokens"), (5, -1, "-1")])
def test_limits_below_one_are_refused_before_anything_is_read(rows, tokens, said):
    with pytest.raises(UsageError, match=said):
        windows(iter([]), num_tokens=len, max_rows=rows, max_tokens=tokens)
