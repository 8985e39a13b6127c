"""Where sequences lie in a packed row: everybody once, nobody twice, whatever the lengths."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from setpoint.runners.encoder.packing import (
    ALIGN,
    GROUP_TOKENS,
    NotPacked,
    Packing,
    Scratch,
    current_packing,
    rounded,
)

CPU = torch.device("cpu")
some_lengths = st.lists(st.integers(1, 130), min_size=1, max_size=60).map(sorted)


def pack(lengths: list[int], *, round_up: bool = True) -> Packing:
    return Packing.of(lengths, device=CPU, scratch=Scratch(), round_up=round_up)


@given(some_lengths, st.sampled_from([0, 16, 64, 96, 1000]))
def test_groups_and_runs_cover_every_token_once(lengths: list[int], limit: int) -> None:
    packing = pack(lengths)
    covered = []
    for group in packing.groups(limit):
        slots = torch.arange(group.count * group.padded)
        assert group.padded % ALIGN == 0
        assert group.gather.shape == slots.shape
        rows = group.gather[group.scatter]  # of the real slots, in the row's order
        assert rows.tolist() == list(range(group.start, group.start + group.tokens))
        covered += rows.tolist()
    for start, count, length in packing.runs(above=limit):
        assert length > limit
        covered += range(start, start + count * length)
    assert covered == list(range(sum(lengths)))


@given(some_lengths)
def test_groups_are_small_and_padded_little(lengths: list[int]) -> None:
    for group in pack(lengths).groups(96):
        real = [length for length in lengths if group.padded - ALIGN < length <= group.padded]
        assert group.tokens <= sum(real)
        assert group.count * group.padded < GROUP_TOKENS + 5 * group.padded


@given(some_lengths, st.booleans(), st.none() | st.integers(1, 20))
def test_masks_show_each_query_its_own_keys(lengths: list[int], causal: bool, window: int | None) -> None:
    packing = pack(lengths)
    for group in packing.groups(40):
        mask = packing.mask(group, causal=causal, window=window, dtype=torch.float32)
        assert mask is packing.mask(group, causal=causal, window=window, dtype=torch.float32)
        allowed = (mask == 0).expand(group.count, group.padded, group.padded)
        assert allowed.any(-1).all()  # no row of a softmax is empty
        for slot in group.scatter.tolist():
            sequence, query = divmod(slot, group.padded)
            length = int(group.lengths[sequence])
            seen = [
                key
                for key in range(length)
                if not (causal and key > query) and not (window is not None and abs(key - query) >= window)
            ]
            assert allowed[sequence, query].nonzero().flatten().tolist() == seen


@given(st.integers(1, 100_000))
def test_rounding_adds_little_and_gives_few_sizes(tokens: int) -> None:
    rows = rounded(tokens)
    assert tokens <= rows < tokens + 64
    assert rows % 8 == 0
    assert rows <= 1.07 * tokens or tokens < 128


def test_bounds_name_every_sequence_and_the_tail() -> None:
    assert pack([3, 4], round_up=False).bounds().tolist() == [0, 3, 7]
    assert pack([3, 4]).bounds().tolist() == [0, 3, 7, 8]
    assert pack([4, 4]).bounds().tolist() == [0, 4, 8]


def test_a_packing_is_known_to_its_own_thread_only_and_only_while_it_lasts() -> None:
    seen: list[object] = []

    def look() -> None:
        with pytest.raises(NotPacked):
            current_packing()
        seen.append(True)

    with pack([2]).active():
        other = threading.Thread(target=look)
        other.start()
        other.join(timeout=10)
        with pack([3]).active():
            assert current_packing().lengths == (3,)
        assert current_packing().lengths == (2,)
    assert seen == [True]
    with pytest.raises(NotPacked):
        current_packing()
