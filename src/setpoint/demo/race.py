"""Several ways of doing the same work, timed side by side: warmed up, repeated, in shuffled order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from setpoint.domain.batch import BatchCost
from setpoint.measure.clock import Clock
from setpoint.measure.stats import Percentile, Repeats, median_of_repeats, percentile


class Way(Protocol):
    """One way through all the texts."""

    @property
    def title(self) -> str:
        """What it does, in a few words."""
        ...

    @property
    def tool(self) -> str:
        """Whose way it is, and in which dtype."""
        ...

    @property
    def label(self) -> str:
        """The same, short enough for a table."""
        ...

    @property
    def dtype(self) -> str:
        """For the comparison with the machine's limit."""
        ...

    @property
    def cost(self) -> BatchCost:
        """Whether its batches are padded."""
        ...

    @property
    def batches(self) -> Sequence[Sequence[int]]:
        """Which texts share a call."""
        ...

    def warm_up(self) -> None:
        """Do what is slower the first time."""
        ...

    def run(self, clock: Clock) -> list[float]:
        """Go once through all the texts; returns the seconds of each call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One way, once through all the texts."""

    seconds: float
    call_seconds: tuple[float, ...]


@dataclass(slots=True, kw_only=True)
class Result:
    """A way's laps. Figures are of texts: items a second, and what one text waits until its call is done."""

    way: Way
    num_texts: int
    laps: list[Lap] = field(default_factory=list)

    @property
    def items_per_s(self) -> Repeats:
        """Texts a second: median of the laps."""
        return median_of_repeats([self.num_texts / lap.seconds for lap in self.laps])

    @property
    def seconds(self) -> float:
        """Median seconds of a lap."""
        return median_of_repeats([lap.seconds for lap in self.laps]).median

    @property
    def call_p50(self) -> Percentile | None:
        """Median seconds of a call; None where there are too few calls for an interval."""
        return percentile(self._calls(), 0.50)

    @property
    def call_p99(self) -> Percentile | None:
        """The 99th percentile of a call's seconds, likewise."""
        return percentile(self._calls(), 0.99)

    @property
    def slowest_call(self) -> float:
        """Seconds of the slowest call of all laps."""
        return max(self._calls())

    @property
    def num_calls(self) -> int:
        """Calls over all laps."""
        return len(self._calls())

    def _calls(self) -> list[float]:
        return [seconds for lap in self.laps for seconds in lap.call_seconds]


def race(
    ways: Sequence[Way],
    *,
    num_texts: int,
    clock: Clock,
    laps: int,
    seed: int = 0,
    tick: Callable[[str], None] = lambda title: None,
) -> list[Result]:
    """Time every way `laps` times over, each round in another order, so that a drift of the machine hits all alike.

    `tick` hears what begins.
    """
    results = [Result(way=way, num_texts=num_texts) for way in ways]
    for way in ways:
        tick(f"warming up: {way.title}")
        way.warm_up()
    rng = random.Random(seed)
    for number in range(laps):
        for result in _shuffled(results, rng):
            tick(f"round {number + 1} of {laps}: {result.way.title}")
            begin = clock.now_ns()
            calls = result.way.run(clock)
            result.laps.append(Lap(seconds=(clock.now_ns() - begin) / 1e9, call_seconds=tuple(calls)))
    return results


def _shuffled(results: Iterable[Result], rng: random.Random) -> list[Result]:
    order = list(results)
    rng.shuffle(order)
    return order
