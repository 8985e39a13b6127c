"""How many operations an encoder needs for given lengths: the numerator of MFU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFlops:
    """An encoder's linear layers and attention, counted as multiply and add, norms and activations left out.

    A token costs 2 operations for every weight that it meets in a linear layer; a pair of tokens of one sequence costs
    4 x attention width in every layer (scores and weighted values). Source: Kaplan et al., 2020, arXiv:2001.08361,
    section 2.1, with the attention term kept.
    """

    linear_weights: int  # that every token meets
    num_layers: int
    attention_width: int  # heads x head size

    def count(self, num_tokens: int, sum_len2: int) -> float:
        """Operations for sequences of so many tokens together and this sum of squared lengths."""
        pairs = 4.0 * self.num_layers * self.attention_width * sum_len2
        return 2.0 * self.linear_weights * num_tokens + pairs
