"""What an encoder's batch costs, to the first order: `t = a + b*tokens + c*sum len^2`.

`a` is what a batch costs however small it is (dispatch, kernel launches, reading the weights), `b` what a token costs
in the linear layers, `c` what a pair of tokens of one sequence costs in attention. With padding a batch is processed
as if every sequence were as long as its longest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from setpoint.batching.order import Lengths, as_lengths
from setpoint.domain.batch import BatchCost


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderCost:
    """The three coefficients, none negative. Serves as the price that `batching.pack.optimal_batches` asks for."""

    a_s: float
    b_s_per_token: float
    c_s_per_token2: float

    def __post_init__(self) -> None:
        for name in ("a_s", "b_s_per_token", "c_s_per_token2"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and at least 0, not {value!r}")

    def seconds(self, num_tokens: int, sum_len2: int, *, num_batches: int = 1) -> float:
        """Predicted seconds of batches that process these tokens and this sum of squared lengths together."""
        return num_batches * self.a_s + self.b_s_per_token * num_tokens + self.c_s_per_token2 * sum_len2

    def predict(self, lengths: Lengths, cost: BatchCost) -> float:
        """Predicted seconds of one batch of sequences of these lengths; 0 for an empty one, which is never run."""
        num_tokens, sum_len2 = batch_moments(lengths, cost)
        return self.seconds(num_tokens, sum_len2, num_batches=1 if len(lengths) else 0)

    def predict_batches(self, lengths_by_batch: Iterable[Lengths], cost: BatchCost) -> float:
        """Predicted seconds of batches that run one after the other."""
        return math.fsum(self.predict(lengths, cost) for lengths in lengths_by_batch)


def batch_moments(lengths: Lengths, cost: BatchCost) -> tuple[int, int]:
    """Tokens and sum of squared lengths that a batch makes the model process, padding included."""
    values = as_lengths(lengths)
    if len(values) == 0:
        return 0, 0
    if cost == BatchCost.PADDED:
        longest = int(values.max())
        return len(values) * longest, len(values) * longest**2
    return int(values.sum()), int(values @ values)
