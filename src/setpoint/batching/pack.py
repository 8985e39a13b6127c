"""Which items share a batch: as many as the token budget holds, like lengths together.

Three ways, all of which put every item into exactly one batch and keep to the budget, except that an item which alone
is larger gets a batch of its own:

form_batches      sorted, each batch filled to the budget; what a job uses before it knows what a batch costs
optimal_batches   sorted, cut where a fitted cost model says the whole set is cheapest
arrival_batches   filled to the budget in the order of arrival; what sorting is compared with
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from setpoint.batching.order import IndexArray, Lengths, as_lengths, length_order
from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.errors import UsageError


class BatchPrice(Protocol):
    """A cost model of the form `a + b*tokens + c*sum len^2` seconds a batch, none of them negative."""

    @property
    def a_s(self) -> float:
        """Seconds a batch costs however small it is."""
        ...

    @property
    def b_s_per_token(self) -> float:
        """Seconds a token costs."""
        ...

    @property
    def c_s_per_token2(self) -> float:
        """Seconds a pair of tokens of one sequence costs: attention."""
        ...


def form_batches(lengths: Lengths, shape: BatchShape) -> list[IndexArray]:
    """Sort items by length and fill batches to the budget; returns each batch's positions in `lengths`.

    The longest items come first, so that running out of memory shows at once and the last batches are short ones.
    Raises UsageError for a budget or batch size below 1.
    """
    values = as_lengths(lengths)
    order = length_order(values, longest_first=True)
    return _cut(order, _fill(values[order].tolist(), shape))


def arrival_batches(lengths: Lengths, shape: BatchShape) -> list[IndexArray]:
    """Fill batches to the budget in the order given: the same limits as `form_batches` without its sorting."""
    values = as_lengths(lengths)
    return _cut(np.arange(len(values), dtype=np.intp), _fill(values.tolist(), shape))


def optimal_batches(lengths: Lengths, price: BatchPrice, shape: BatchShape) -> list[IndexArray]:
    """Sort items by length and cut them where the predicted cost of all batches together is least.

    Under padded cost a batch of n items costs `a + n*(b*longest + c*longest^2)`: large batches save a, small ones
    save padding. Never predicted to cost more than `form_batches`, whose cuts are among those considered. Without
    padding only the number of batches matters, and filling them is already optimal. O(items x largest batch).
    """
    values = as_lengths(lengths)
    order = length_order(values, longest_first=True)
    if shape.cost == BatchCost.PACKED:
        return _cut(order, _fill(values[order].tolist(), shape))
    _check(shape)
    return _cut(order, _cheapest_sizes(values[order], price, shape))


def batch_cost_tokens(lengths: Lengths, cost: BatchCost) -> int:
    """Tokens that a batch of these lengths makes the model process, padding included."""
    values = as_lengths(lengths)
    if len(values) == 0:
        return 0
    return int(len(values) * values.max() if cost == BatchCost.PADDED else values.sum())


def padding_waste(lengths_by_batch: Iterable[Lengths], cost: BatchCost) -> float:
    """Share of processed tokens that is padding: 1 - useful/processed over all batches; 0 where nothing was processed.

    `lengths_by_batch` has the useful lengths of each batch's sequences.
    """
    useful = processed = 0
    for lengths in lengths_by_batch:
        useful += batch_cost_tokens(lengths, BatchCost.PACKED)
        processed += batch_cost_tokens(lengths, cost)
    return 1.0 - useful / processed if processed else 0.0


def _check(shape: BatchShape) -> None:
    if shape.max_batch_tokens < 1:
        raise UsageError(f"the token budget of a batch must be at least 1, not {shape.max_batch_tokens}")
    if shape.max_batch_size is not None and shape.max_batch_size < 1:
        raise UsageError(f"the batch size must be at least 1, not {shape.max_batch_size}")


def _fill(lengths: Sequence[int], shape: BatchShape) -> list[int]:
    """Sizes of consecutive batches, each as full as the budget allows."""
    _check(shape)
    padded = shape.cost == BatchCost.PADDED
    max_size = shape.max_batch_size or len(lengths)
    sizes: list[int] = []
    size = total = longest = 0
    for length in lengths:
        needed = (size + 1) * max(longest, length) if padded else total + length
        if size and (needed > shape.max_batch_tokens or size == max_size):
            sizes.append(size)
            size = total = longest = 0
        size += 1
        total += length
        longest = max(longest, length)
    return [*sizes, size] if size else sizes


def _cheapest_sizes(lengths: npt.NDArray[np.int64], price: BatchPrice, shape: BatchShape) -> list[int]:
    """Sizes of consecutive padded batches of least cost; `lengths` [n] is sorted, longest first.

    `rest[i]` is the least cost of all items from i on. A batch of n items that begins at i is padded to `lengths[i]`:

        rest[i] = min over n of  a + n * weight[i] + rest[i + n],    n <= the most items the budget holds at lengths[i]
    """
    num_items = len(lengths)
    fits = np.where(lengths > 0, shape.max_batch_tokens // np.maximum(lengths, 1), num_items)
    caps = np.minimum(np.maximum(fits, 1), shape.max_batch_size or num_items).tolist()
    weights = (price.b_s_per_token * lengths + price.c_s_per_token2 * lengths.astype(np.float64) ** 2).tolist()
    counts = np.arange(1, num_items + 1, dtype=np.float64)
    rest = np.zeros(num_items + 1)
    chosen = [0] * num_items
    scratch = np.empty(num_items)
    for i in range(num_items - 1, -1, -1):
        most = min(caps[i], num_items - i)
        candidates = scratch[:most]
        np.multiply(counts[:most], weights[i], out=candidates)
        candidates += rest[i + 1 : i + 1 + most]
        best = int(candidates.argmin())
        chosen[i] = best + 1
        rest[i] = price.a_s + candidates[best]
    sizes: list[int] = []
    i = 0
    while i < num_items:
        sizes.append(chosen[i])
        i += chosen[i]
    return sizes


def _cut(order: IndexArray, sizes: Sequence[int]) -> list[IndexArray]:
    if not sizes:
        return []
    return np.split(order, np.cumsum(sizes[:-1]))
