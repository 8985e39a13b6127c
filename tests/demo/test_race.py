"""The race on a fake clock: what is timed, how often, in which order, and what the figures say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from setpoint.demo.figures import Work, conclusion, limit_of, mfu_of, waste_of
from setpoint.demo.race import Result, race
from setpoint.demo.ways import by_length, in_order
from setpoint.domain.batch import BatchCost
from setpoint.domain.flops import EncoderFlops
from setpoint.measure.clock import Clock, FakeClock

LENGTHS = [4, 100, 10, 50, 4, 8]
WORK = Work(lengths=LENGTHS, flops=EncoderFlops(linear_weights=1000, num_layers=2, attention_width=8))


class FakeWay:
    """Every call takes as many milliseconds as its longest text has tokens, and costs n x longest."""

    dtype = "float32"
    tool = "nobody, float32"
    label = "nobody"
    cost = BatchCost.PADDED

    def __init__(self, title: str, batches: Sequence[Sequence[int]], clock: FakeClock, *, speed: float = 1.0) -> None:
        self.title = title
        self.batches = batches
        self.speed = speed
        self.warmed = 0
        self.ran = 0
        self._clock = clock

    def warm_up(self) -> None:
        self.warmed += 1
        self._clock.advance(1000)  # slow, and not to be counted

    def run(self, clock: Clock) -> list[float]:
        assert self.warmed == 1
        self.ran += 1
        taken = []
        for batch in self.batches:
            seconds = len(batch) * max(LENGTHS[i] for i in batch) / 1000 / self.speed
            self._clock.advance(seconds)
            taken.append(seconds)
        return taken


def run(ways: Sequence[FakeWay], clock: FakeClock, laps: int = 3) -> list[Result]:
    return race(ways, num_texts=len(LENGTHS), clock=clock, laps=laps)


def test_warm_up_is_not_counted_and_every_lap_is() -> None:
    clock = FakeClock()
    way = FakeWay("one", in_order(6, 1), clock)
    (result,) = run([way], clock, laps=4)
    assert way.ran == len(result.laps) == 4
    assert result.seconds == pytest.approx(sum(LENGTHS) / 1000)
    assert result.items_per_s.median == pytest.approx(6 / 0.176)
    assert result.num_calls == 24


def test_rounds_are_interleaved() -> None:
    clock = FakeClock()
    seen: list[str] = []
    ways = [FakeWay(str(n), in_order(6, 1), clock) for n in range(3)]
    race(ways, num_texts=6, clock=clock, laps=5, tick=seen.append)
    rounds = [title.split(": ")[1] for title in seen if title.startswith("round")]
    assert [sorted(rounds[i : i + 3]) for i in range(0, 15, 3)] == [["0", "1", "2"]] * 5
    assert len({tuple(rounds[i : i + 3]) for i in range(0, 15, 3)}) > 1


def test_few_calls_have_no_p99() -> None:
    clock = FakeClock()
    (result,) = run([FakeWay("all", in_order(6, 6), clock)], clock)
    assert result.call_p99 is None
    assert result.call_p50 is None  # three calls
    assert result.slowest_call == pytest.approx(0.6)


def test_figures_are_those_of_the_arithmetic() -> None:
    clock = FakeClock()
    unsorted, ordered = run([FakeWay("a", in_order(6, 2), clock), FakeWay("b", by_length(LENGTHS, 2), clock)], clock)
    assert waste_of(unsorted, WORK) == pytest.approx(1 - 176 / (2 * 100 + 2 * 50 + 2 * 8))
    assert waste_of(ordered, WORK) == pytest.approx(1 - 176 / (2 * 100 + 2 * 10 + 2 * 4))
    operations = 2 * 1000 * 176 + 4 * 2 * 8 * sum(n * n for n in LENGTHS)
    peaks = {"float32": 1e9}
    assert mfu_of(unsorted, WORK, peaks) == pytest.approx(operations / unsorted.seconds / 1e9)
    assert limit_of(unsorted, WORK, peaks) == pytest.approx(6 * 1e9 / operations)
    assert mfu_of(unsorted, WORK, {"float32": None}) is None


def test_the_sentence_says_which_way_was_faster() -> None:
    clock = FakeClock()
    one = FakeWay("one", in_order(6, 1), clock)
    worse = FakeWay("as they come", in_order(6, 6), clock)
    level = FakeWay("sorted", in_order(6, 1), clock, speed=1.01)
    better = FakeWay("packed", in_order(6, 1), clock, speed=2)
    best = FakeWay("chosen", in_order(6, 1), clock, speed=4)
    sentence = conclusion(run([one, worse, level, better, best], clock), WORK)
    assert "as they come ran 3.4 times slower than one at a time (71% of" in sentence
    assert "sorted by length they ran level with one at a time" in sentence
    assert "packed without padding the texts ran 2.0 times as fast" in sentence
    assert "ran 4.0 times as fast" in sentence


def test_batches_hold_every_text_once() -> None:
    for batches in (in_order(6, 4), by_length(LENGTHS, 4)):
        assert sorted(i for batch in batches for i in batch) == list(range(6))
    assert by_length(LENGTHS, 4)[0] == [1, 3, 2, 5]
