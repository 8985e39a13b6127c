"""Length order and the way back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

IndexArray = npt.NDArray[np.intp]
Lengths = Sequence[int] | npt.NDArray[np.integer]


def length_order(lengths: Lengths, *, longest_first: bool = False) -> IndexArray:
    """Return the positions that sort `lengths`: `order[k]` is the item that comes k-th. Equal lengths keep their order.

    The same lengths give the same order everywhere. Shape [len(lengths)].
    """
    values = as_lengths(lengths)
    return np.argsort(-values if longest_first else values, kind="stable")


def inverse(order: Sequence[int] | npt.NDArray[np.integer]) -> IndexArray:
    """Return where each item went: `sorted_items[inverse(order)]` are the items as they came.

    Raises ValueError if `order` is not a permutation of 0 ... n-1.
    """
    positions = np.asarray(order, dtype=np.intp)
    back = np.full(len(positions), -1, dtype=np.intp)
    if len(positions) and (positions.min() < 0 or positions.max() >= len(positions)):
        raise ValueError(f"an order of {len(positions)} items names an item outside of them")
    back[positions] = np.arange(len(positions), dtype=np.intp)
    if (back < 0).any():
        raise ValueError("an order names an item twice and leaves another out")
    return back


def as_lengths(lengths: Lengths) -> npt.NDArray[np.int64]:
    """Lengths in tokens as int64 [n]; raises ValueError for a negative one."""
    values = np.asarray(lengths, dtype=np.int64)
    if values.ndim != 1:
        raise ValueError(f"lengths must be one row of numbers, not of shape {values.shape}")
    if len(values) and values.min() < 0:
        raise ValueError(f"item {int(values.argmin())} has a negative length: {int(values.min())}")
    return values
