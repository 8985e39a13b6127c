"""The shape of batches: how tokens are counted, how many a batch holds, how many batches run side by side."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BatchCost(StrEnum):
    """How a batch's tokens are counted: as the executor will process them."""

    PADDED = "padded"  # number of sequences x longest
    PACKED = "packed"  # sum of lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """How batches are formed for a runner, and how many run side by side.

    A batch holds at most `max_batch_tokens` tokens (counted as `cost` says) unless a single sequence alone is longer,
    and at most `max_batch_size` sequences where that is given. `num_streams` callers may be inside `forward` at once.
    """

    max_batch_tokens: int
    max_batch_size: int | None = None
    cost: BatchCost = BatchCost.PACKED
    num_streams: int = 1
