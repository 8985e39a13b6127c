"""What the hand-written loops share."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from contenders.base import AS_GIVEN, LONGEST_FIRST, cut, mean_pooled, pad, padded_tokens, run_batches, stream_settings


@pytest.mark.parametrize("order", [LONGEST_FIRST, AS_GIVEN])
def test_every_text_is_in_one_batch(order: str) -> None:
    lengths = [3, 9, 1, 9, 4]
    batches = cut(lengths, order=order, batch=2)
    assert sorted(int(i) for batch in batches for i in batch) == [0, 1, 2, 3, 4]
    assert [len(batch) for batch in batches] == [2, 2, 1]


def test_longest_first_leaves_the_least_padding() -> None:
    lengths = [3, 9, 1, 9, 4]
    assert padded_tokens(lengths, cut(lengths, order=LONGEST_FIRST, batch=2)) == 9 * 2 + 4 * 2 + 1
    assert padded_tokens(lengths, cut(lengths, order=AS_GIVEN, batch=2)) == 9 * 2 + 9 * 2 + 4
    with pytest.raises(ValueError, match="shortest"):
        cut(lengths, order="shortest", batch=2)


def test_padding_is_masked_and_not_pooled() -> None:
    ids, mask = pad([[5, 6, 7], [8]])
    assert ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    states = np.array([[[1.0, 0.0]] * 3, [[0.0, 2.0], [9.0, 9.0], [9.0, 9.0]]])
    assert mean_pooled(states, mask) == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0]]))


def test_streams_run_side_by_side() -> None:
    together = threading.Barrier(2, timeout=10)
    seen: list[int] = []

    def compute(batch: np.ndarray) -> None:
        together.wait()
        seen.extend(batch.tolist())

    run_batches(compute, [np.array([0]), np.array([1])], streams=2)
    assert sorted(seen) == [0, 1]


def test_settings_use_all_cores() -> None:
    for cores in (1, 2, 8):
        found = stream_settings(cores, (2, 4))
        assert {"order": LONGEST_FIRST, "batch": 4, "streams": 1, "threads": cores} in found
        assert {"order": LONGEST_FIRST, "batch": 2, "streams": cores, "threads": 1} in found
        assert all(setting["streams"] * setting["threads"] == cores for setting in found)
