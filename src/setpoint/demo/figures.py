"""What the laps mean: padding, the machine's limit, and one sentence that says what to make of it here. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from setpoint.batching.pack import padding_waste
from setpoint.demo.race import Result
from setpoint.domain.flops import EncoderFlops

_LEVEL = 1.05  # less than this much apart is called level


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What has to be computed: the texts' lengths in tokens, and what a model spends on them."""

    lengths: Sequence[int]
    flops: EncoderFlops

    @property
    def num_tokens(self) -> int:
        """Useful tokens of all texts."""
        return sum(self.lengths)

    @property
    def operations(self) -> float:
        """Operations for all texts, without any padding."""
        return self.flops.count(self.num_tokens, sum(n * n for n in self.lengths))


def waste_of(result: Result, work: Work) -> float:
    """Share of the tokens processed that was padding."""
    way = result.way
    return padding_waste([[work.lengths[i] for i in batch] for batch in way.batches], way.cost)


def mfu_of(result: Result, work: Work, peaks: Mapping[str, float | None]) -> float | None:
    """Useful operations a second over the peak measured for the dtype; None where none could be measured."""
    peak = peaks.get(result.way.dtype)
    return None if peak is None else work.operations / result.seconds / peak


def limit_of(result: Result, work: Work, peaks: Mapping[str, float | None]) -> float | None:
    """Texts a second if nothing but the matrix products took time."""
    peak = peaks.get(result.way.dtype)
    return None if peak is None else len(work.lengths) * peak / work.operations


def conclusion(results: Sequence[Result], work: Work) -> str:
    """One sentence about these ways: one at a time, as they come, sorted, packed, chosen (in this order)."""
    one, unsorted, by_length, packed, chosen = results
    rate = {id(result): result.items_per_s.median for result in results}
    waste = f"{waste_of(unsorted, work):.0%} of the tokens processed were padding"
    first = f"batches as they come {_against(rate[id(unsorted)], rate[id(one)])} ({waste})"
    second = f"sorted by length they {_against(rate[id(by_length)], rate[id(one)])}"
    third = f"packed without padding the texts {_against(rate[id(packed)], rate[id(one)])}"
    fourth = f"{chosen.way.tool}, chosen by measuring, {_against(rate[id(chosen)], rate[id(one)])}"
    return f"On this machine {first}; {second}; {third}; {fourth}."


def _against(rate: float, other: float) -> str:
    """`ran 3.1 times as fast as one at a time`, and so on."""
    if rate >= other * _LEVEL:
        return f"ran {rate / other:.1f} times as fast as one at a time"
    if other >= rate * _LEVEL:
        return f"ran {other / rate:.1f} times slower than one at a time"
    return "ran level with one at a time"
