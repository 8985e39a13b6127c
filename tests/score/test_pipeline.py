"""Rows in are rows out, in order, with every trouble kept to the row it belongs to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.domain.task import Task
from setpoint.domain.truncation import Truncation
from setpoint.errors import InputError, Interrupted, JobStopped
from setpoint.measure.clock import FakeClock, MonotonicClock
from setpoint.runners.base import EncodedRow, TokenSequence
from setpoint.runners.fake import FakeFaults, FakeRunner, token_id
from setpoint.score import pipeline as pipeline_module
from setpoint.score.control import FatalRow, Hung, StopToken, Watchdog
from setpoint.score.meter import Meter, work_of
from setpoint.score.pipeline import MAX_WINDOWS, Pipeline
from setpoint.score.window import Block, FinishedWindow, Quarantine, WindowLimits

SHAPE = BatchShape(max_batch_tokens=24, cost=BatchCost.PADDED, num_streams=2)
LIMITS = WindowLimits(max_rows=16, max_tokens=200, max_bytes=10_000)


def blocks_of(texts: Sequence[Any], size: int = 5) -> Iterator[Block]:
    for first in range(0, len(texts), size):
        part = texts[first : first + size]
        yield Block(
            first_row=first,
            rows=[text if isinstance(text, RowFailure) else RowInput(text=text) for text in part],
            sizes_bytes=[len(str(text)) for text in part],
            payload=("payload", first),
            where=lambda offset, first=first: f"line {first + offset + 1}",
        )


def make(runner: FakeRunner, **options: Any) -> Pipeline:
    clock = MonotonicClock()
    defaults: dict[str, Any] = {
        "limits": LIMITS,
        "meter": Meter(clock),
        "watchdog": Watchdog(clock),
        "patience": lambda work: 60.0,
    }
    return Pipeline(runner, **{**defaults, **options})


def score(runner: FakeRunner, texts: Sequence[Any], **options: Any) -> list[RowResult | RowFailure]:
    results: list[RowResult | RowFailure] = []
    for window in make(runner, **options).run(blocks_of(texts)):
        assert window.first_row == len(results)
        assert sum(piece.stop - piece.start for piece in window.pieces) == window.num_rows
        results.extend(window.results)
    return results


def alone(runner: FakeRunner, text: str) -> Any:
    row = runner.encode([RowInput(text=text)])[0]
    assert isinstance(row, EncodedRow)
    return runner.decode(row, runner.forward(list(row.sequences))).values["embedding"]


words = st.lists(st.sampled_from(["a", "bb", "ccc", "word", "long"]), min_size=1, max_size=30).map(" ".join)
cells = st.one_of(words, st.sampled_from(["", "  ", None, 3, "\ud800"]))


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(cells, max_size=60), num_streams=st.integers(min_value=1, max_value=3))
def test_every_row_comes_out_once_and_in_order(texts: list[Any], num_streams: int) -> None:
    runner = FakeRunner(shape=replace(SHAPE, num_streams=num_streams))
    results = score(runner, texts)
    assert len(results) == len(texts)
    for text, result in zip(texts, results):
        expected = runner.encode([RowInput(text=text)])[0]
        if isinstance(expected, RowFailure):
            assert result == expected
        else:
            assert isinstance(result, RowResult)
            np.testing.assert_array_equal(result.values["embedding"], alone(FakeRunner(), text))


@settings(max_examples=20, deadline=None)
@given(texts=st.lists(words, min_size=1, max_size=60), delays=st.randoms(use_true_random=False))
def test_batches_do_not_depend_on_timing(texts: list[str], delays: Any) -> None:
    def batches(jitter: bool) -> list[tuple[int, ...]]:
        runner = FakeRunner(
            shape=SHAPE, on_forward=(lambda batch: time.sleep(delays.random() / 2_000)) if jitter else None
        )
        score(runner, texts)
        return sorted(runner.batches)

    assert batches(jitter=False) == batches(jitter=True)


def test_a_shape_with_streams_is_used_by_that_many_threads() -> None:
    barrier = threading.Barrier(2)
    runner = FakeRunner(shape=SHAPE, on_forward=lambda batch: barrier.wait(timeout=10) and None)
    texts = ["one two three four five six seven eight nine ten"] * 4  # two batches of two
    score(runner, texts)
    assert runner.max_concurrency == 2


def test_no_more_windows_than_allowed_are_under_way() -> None:
    seen: list[int] = []

    def counting() -> Iterator[Block]:
        for block in blocks_of(["one two three"] * 400, size=16):
            seen.append(block.first_row)
            yield block

    runner = FakeRunner(shape=SHAPE)
    stream = make(runner).run(counting())
    next(stream)
    time.sleep(0.3)
    assert len(seen) <= MAX_WINDOWS + 1  # windows of 16 rows, blocks of 16 rows, and the block being cut
    assert sum(window.num_rows for window in stream) == 400 - 16


def test_long_rows_and_heavy_rows_both_close_a_window() -> None:
    limits = WindowLimits(max_rows=1_000, max_tokens=100, max_bytes=1_000)
    many_tokens = [window.num_rows for window in make(FakeRunner(), limits=limits).run(blocks_of(["a " * 30] * 9))]
    many_bytes = [window.num_rows for window in make(FakeRunner(), limits=limits).run(blocks_of(["x" * 300] * 9))]
    assert max(many_tokens) == 3
    assert max(many_bytes) == 3


def test_the_next_window_starts_before_the_last_batch_of_this_one_is_done() -> None:
    first_is_slow = threading.Event()
    started: list[int] = []

    def on_forward(batch: Sequence[TokenSequence]) -> None:
        started.append(len(batch))
        if any(len(sequence) > 25 for sequence in batch):
            assert first_is_slow.wait(timeout=10)
        elif len(started) == 6:  # the first window has four batches, one of which waits here
            first_is_slow.set()

    texts = ["slow " * 30, *["a b"] * 15] + ["c d"] * 200
    results = score(FakeRunner(shape=SHAPE, on_forward=on_forward), texts)
    assert len(results) == 216
    assert all(isinstance(result, RowResult) for result in results)


# Failures of single rows ----------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(poisoned=st.sets(st.integers(min_value=0, max_value=39), max_size=6))
def test_a_failing_batch_is_bisected_to_the_guilty_rows(poisoned: set[int]) -> None:
    texts = [f"w{i} " * (i % 7 + 1) + ("poison" if i in poisoned else "fine") for i in range(40)]
    runner = FakeRunner(shape=SHAPE, faults=FakeFaults(raises_on={token_id("poison")}))
    results = score(runner, texts)
    for i, result in enumerate(results):
        if i in poisoned:
            assert isinstance(result, RowFailure)
            assert result.reason is Reason.MODEL_FAILED
            assert "RuntimeError: the fake model cannot compute token" in result.detail
        else:
            assert isinstance(result, RowResult)


@settings(max_examples=30, deadline=None)
@given(poisoned=st.sets(st.integers(min_value=0, max_value=39), max_size=6))
def test_a_result_that_is_not_finite_fails_its_row_alone(poisoned: set[int]) -> None:
    texts = [f"w{i} " * (i % 7 + 1) + ("poison" if i in poisoned else "fine") for i in range(40)]
    runner = FakeRunner(shape=SHAPE, faults=FakeFaults(nan_on={token_id("poison")}))
    reasons = [result.reason if isinstance(result, RowFailure) else None for result in score(runner, texts)]
    assert [i for i, reason in enumerate(reasons) if reason is Reason.NOT_FINITE] == sorted(poisoned)
    assert reasons.count(None) == 40 - len(poisoned)


def test_a_nan_that_a_neighbour_caused_is_cured_by_computing_alone() -> None:
    class Contagious(FakeRunner):
        def forward(self, batch: Sequence[TokenSequence]) -> list[np.ndarray]:
            outputs = super().forward(batch)
            return [np.full_like(output, np.inf) for output in outputs] if len(batch) > 1 else outputs

    results = score(Contagious(shape=SHAPE), ["a b c"] * 10)
    assert all(isinstance(result, RowResult) for result in results)


def test_running_out_of_memory_splits_and_remembers() -> None:
    runner = FakeRunner(shape=BatchShape(max_batch_tokens=100, num_streams=1), faults=FakeFaults(memory_tokens=40))
    texts = ["one two three"] * 64  # 5 tokens each, 20 a batch
    job = make(runner, limits=WindowLimits(max_rows=32, max_tokens=10_000, max_bytes=100_000))
    results = [result for window in job.run(blocks_of(texts)) for result in window.results]
    assert all(isinstance(result, RowResult) for result in results)
    assert job.limit_tokens == 25
    num_failed = runner.num_calls - len(runner.batches)
    assert num_failed == 2  # 100 tokens, then 50; nothing above 25 is tried again
    assert max(sum(batch) for batch in runner.batches) <= 25


def test_a_limit_learnt_earlier_is_kept_to() -> None:
    runner = FakeRunner(shape=BatchShape(max_batch_tokens=100), faults=FakeFaults(memory_tokens=30))
    assert len(score(runner, ["one two three"] * 64, max_batch_tokens=25)) == 64
    assert runner.num_calls == len(runner.batches)


def test_a_row_that_does_not_fit_even_alone_is_failed() -> None:
    runner = FakeRunner(shape=SHAPE, faults=FakeFaults(memory_tokens=20))
    results = score(runner, ["a b c", "x " * 50, "d e f"])
    assert [type(result) for result in results] == [RowResult, RowFailure, RowResult]
    assert isinstance(results[1], RowFailure)
    assert str(results[1]) == "out_of_memory: 52 tokens do not fit in memory even alone"


def test_a_row_that_fits_only_without_the_other_stream_comes_out() -> None:
    inside = 0
    lock = threading.Lock()

    class Crowded(FakeRunner):
        def forward(self, batch: Sequence[TokenSequence]) -> list[np.ndarray]:
            nonlocal inside
            with lock:
                inside += 1
                crowded = inside > 1
            try:
                time.sleep(0.002)
                if crowded or (inside > 1 and len(batch[0]) > 20):
                    raise MemoryError
                return super().forward(batch)
            finally:
                with lock:
                    inside -= 1

    results = score(Crowded(shape=replace(SHAPE, num_streams=3)), ["w " * (i % 20 + 1) for i in range(60)])
    assert all(isinstance(result, RowResult) for result in results)


def test_a_model_that_fails_on_everything_stops_the_job() -> None:
    runner = FakeRunner(shape=SHAPE, faults=FakeFaults(raises_on={token_id("w")}))
    with pytest.raises(JobStopped, match="failed on each of the first 100 sequences"):
        score(runner, ["w"] * 500)


def test_many_failures_after_a_success_do_not_stop_it() -> None:
    runner = FakeRunner(shape=SHAPE, faults=FakeFaults(raises_on={token_id("w")}))
    results = score(runner, ["fine and longer than the others", *["w"] * 300])
    assert sum(isinstance(result, RowFailure) for result in results) == 300


def test_a_runner_that_loses_a_result_fails_rows_not_order() -> None:
    class Lossy(FakeRunner):
        def forward(self, batch: Sequence[TokenSequence]) -> list[np.ndarray]:
            outputs = super().forward(batch)
            return outputs[:-1] if any(token_id("lost") in sequence.ids for sequence in batch) else outputs

    results = score(Lossy(shape=SHAPE), ["a", "lost", "b"] * 4)
    assert [isinstance(result, RowFailure) for result in results] == [False, True, False] * 4
    assert "returned 0 results for 1" in str(results[1])


def test_a_tokenizer_that_raises_fails_that_row_alone() -> None:
    class PanicException(BaseException):
        """Named as the exception of a panic in Rust, which is no Exception."""

    class Brittle(FakeRunner):
        def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
            if any(row.text == "panic" for row in rows):
                raise PanicException("index out of bounds")
            if any(row.text == "bug" for row in rows):
                raise KeyError("bug")
            return super().encode(rows)

    results = score(Brittle(shape=SHAPE), ["a", "panic", "b", "bug", "c"])
    assert [isinstance(result, RowFailure) for result in results] == [False, True, False, True, False]
    assert str(results[1]) == "model_failed: tokenizing: PanicException: index out of bounds"


def test_a_result_that_cannot_be_read_fails_that_row_alone() -> None:
    class Unreadable(FakeRunner):
        def decode(self, row: EncodedRow, outputs: Sequence[Any]) -> RowResult:
            if row.num_tokens == 4:
                raise ValueError("four")
            return super().decode(row, outputs)

    results = score(Unreadable(shape=SHAPE), ["a", "b c", "d e f"])
    assert [isinstance(result, RowFailure) for result in results] == [False, True, False]
    assert str(results[1]) == "model_failed: reading the result: ValueError: four"


def test_rows_failed_by_the_source_are_not_computed() -> None:
    failure = RowFailure(reason=Reason.INVALID_RECORD, detail="3 fields instead of 2")
    runner = FakeRunner(shape=SHAPE)
    results = score(runner, ["a", failure, "b", failure])
    assert [result for result in results if isinstance(result, RowFailure)] == [failure, failure]
    assert sum(map(len, runner.batches)) == 2


def test_rows_of_many_sequences_fail_as_one() -> None:
    runner = FakeRunner(
        task=Task.ZERO_SHOT_CLASSIFICATION, shape=SHAPE, faults=FakeFaults(raises_on={token_id("poison")})
    )
    rows = [
        RowInput(text="some text", candidates=("one", "two", "three")),
        RowInput(text="some text", candidates=("one", "poison")),
        RowInput(text="some text", candidates=("four",)),
    ]
    block = Block(first_row=0, rows=rows, sizes_bytes=[1, 1, 1])
    windows = list(make(runner).run([block]))
    results = windows[0].results
    assert [isinstance(result, RowFailure) for result in results] == [False, True, False]
    assert windows[0].num_sequences == [3, 2, 1]


# The end of the job ---------------------------------------------------------------------------------------------------


def test_a_fatal_reason_stops_at_its_row() -> None:
    runner = FakeRunner(shape=SHAPE, max_length=8, truncation=Truncation.ERROR)
    with pytest.raises(FatalRow, match=r"row 3 \(line 3\) is too_long: .* the limit is 8"):
        score(runner, ["a", "b", "w " * 20, "c"], fatal={Reason.TOO_LONG})


def test_an_error_of_the_source_passes_through() -> None:
    def vanishing() -> Iterator[Block]:
        yield from blocks_of(["a"] * 5)
        raise InputError("the file has vanished")

    with pytest.raises(InputError, match="vanished"):
        list(make(FakeRunner(shape=SHAPE)).run(vanishing()))
    assert_no_threads_left()


def test_no_rows_are_no_windows() -> None:
    assert list(make(FakeRunner()).run([])) == []


def test_stopping_hands_out_what_is_finished_and_computes_nothing_more() -> None:
    stop = StopToken()
    runner = FakeRunner(shape=replace(SHAPE, num_streams=1))
    finished: list[FinishedWindow] = []
    calls_at_stop: list[int] = []

    def consume() -> None:
        for window in make(runner, stop=stop).run(blocks_of(["one two three"] * 2_000)):
            finished.append(window)
            if len(finished) == 3:
                stop.request("Ctrl-C")
                time.sleep(0.05)
                calls_at_stop.append(runner.num_calls)

    with pytest.raises(Interrupted, match="stopped by Ctrl-C"):
        consume()
    assert runner.num_calls <= calls_at_stop[0] + 1
    assert 3 <= len(finished) <= 3 + MAX_WINDOWS
    assert [window.first_row for window in finished] == [16 * i for i in range(len(finished))]
    assert_no_threads_left()


def test_leaving_early_ends_the_threads() -> None:
    stream = make(FakeRunner(shape=SHAPE)).run(blocks_of(["one two three"] * 2_000))
    next(stream)
    stream.close()
    assert_no_threads_left()


def assert_no_threads_left() -> None:
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("setpoint-")]


def test_a_batch_that_does_not_come_back_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_module, "_JOIN_S", 0.05)
    clock = FakeClock()
    come_back = threading.Event()

    def on_forward(batch: Sequence[TokenSequence]) -> None:
        if any(len(sequence) > 20 for sequence in batch):
            clock.advance(61)
            come_back.wait(timeout=30)

    job = make(FakeRunner(shape=SHAPE, on_forward=on_forward), meter=Meter(clock), watchdog=Watchdog(clock))
    with pytest.raises(Hung, match=r"computing row 8 has not come back for 61 s") as caught:
        list(job.run(blocks_of([*["a b"] * 7, "w " * 30, *["c d"] * 5])))
    assert caught.value.rows == (7,)
    come_back.set()


def test_a_tokenizer_that_does_not_come_back_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_module, "_JOIN_S", 0.05)
    clock = FakeClock()
    come_back = threading.Event()

    class Stuck(FakeRunner):
        def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
            clock.advance(61)
            come_back.wait(timeout=30)
            return super().encode(rows)

    with pytest.raises(Hung, match="tokenizing 5 rows between row 1 and row 5"):
        list(make(Stuck(), meter=Meter(clock), watchdog=Watchdog(clock)).run(blocks_of(["a"] * 5)))
    come_back.set()


def test_rows_that_hung_before_are_computed_apart_or_not_at_all() -> None:
    runner = FakeRunner(shape=SHAPE)
    results = score(runner, ["a b"] * 12, quarantine=Quarantine(suspects={2, 3}, guilty={7}))
    assert [i for i, result in enumerate(results) if isinstance(result, RowFailure)] == [7]
    assert sorted(map(len, runner.batches)) == [1, 1, 3, 6]


def test_work_is_planned_and_done_in_full() -> None:
    runner = FakeRunner(shape=SHAPE)
    meter = Meter(MonotonicClock())
    texts = ["w " * (i % 9 + 1) for i in range(100)]
    for window in make(runner, meter=meter).run(blocks_of(texts)):
        meter.rows_done(window.num_rows)
    reading = meter.read()
    assert reading.planned == reading.done
    assert reading.encoded_rows == reading.rows_done == 100
    assert reading.useful_tokens == sum(i % 9 + 3 for i in range(100))
    expected = [work_of(np.array(batch), BatchCost.PADDED) for batch in runner.batches]
    assert reading.done.tokens == sum(work.tokens for work in expected)
    assert reading.done.squares == sum(work.squares for work in expected)
    assert reading.done.batches == len(runner.batches) == len(reading.samples)
