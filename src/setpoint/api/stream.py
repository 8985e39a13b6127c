"""Rows through a runner in the caller's own thread: bounded windows, sorted inside, answered in order.

    rows ──▶ encode ─ window ─▶ batches ──▶ forward on num_streams threads ──▶ answers
                                while the next window is read and encoded

Two windows at most are in memory. The caller's iterable is read in the caller's thread, and nothing outlives the call
but idle threads. Failures are kept to their rows by the same parts that a job uses.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from setpoint.batching.stream import windows
from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.errors import UsageError
from setpoint.measure.clock import MonotonicClock
from setpoint.runners.base import FieldKind, Runner
from setpoint.score.control import Watchdog
from setpoint.score.encode import BlockEncoder
from setpoint.score.isolate import IsolatingRunner
from setpoint.score.window import Block, Item, Window, form_window

_BLOCK_ROWS = 64  # tokenized together
_LIST_ROWS = 4_096
_STREAM_ROWS = 1_024  # an iterable may be slow, and nothing of a window comes out before the whole of it went in
_WINDOW_TOKENS = 524_288
_STATE_WINDOW_TOKENS = 65_536  # where every token is answered with a vector


class RowStream:
    """Computes rows on a loaded model. Calls from several threads share its `num_streams` workers."""

    def __init__(self, runner: Runner) -> None:
        self._isolating = IsolatingRunner(runner)
        # Named unlike a job's threads: the command line ends a process in which one of those is stuck.
        self._pool = ThreadPoolExecutor(max_workers=runner.shape.num_streams, thread_name_prefix="scorer")

    def run(
        self,
        runner: Runner,
        rows: Iterable[RowInput | RowFailure],
        *,
        batch_size: int | None = None,
        whole_list: bool = False,
    ) -> Iterator[RowResult | RowFailure]:
        """Yield a result or a failure for each row, in order. `runner` may be the model under other options.

        Raises what reading the rows raises, and JobStopped for a model that computes nothing at all.
        """
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        shape = runner.shape
        if batch_size is not None:
            shape = dataclasses.replace(shape, max_batch_size=batch_size)
        per_token = any(field.kind is FieldKind.MATRIX for field in runner.fields)
        cut = windows(
            _items(runner, rows),
            num_tokens=lambda item: 0 if isinstance(item[0], RowFailure) else item[0].num_tokens,
            max_rows=_LIST_ROWS if whole_list else _STREAM_ROWS,
            max_tokens=_STATE_WINDOW_TOKENS if per_token else _WINDOW_TOKENS,
        )
        formed = (form_window(items, index=index, shape=shape) for index, items in enumerate(cut))
        return self._answers(runner, formed)

    def close(self) -> None:
        """Let the workers go once they are done."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _answers(self, runner: Runner, formed: Iterator[Window]) -> Iterator[RowResult | RowFailure]:
        under_way: list[tuple[Window, list[Future[None]]]] = []
        try:
            for window in formed:
                under_way.append((window, [self._pool.submit(self._compute, window, part) for part in window.batches]))
                if len(under_way) > 1:
                    yield from self._finish(runner, *under_way.pop(0))
            while under_way:
                yield from self._finish(runner, *under_way.pop(0))
        finally:
            for _, futures in under_way:
                for future in futures:
                    future.cancel()

    def _compute(self, window: Window, batch: npt.NDArray[np.intp]) -> None:
        positions = batch.tolist()
        outcomes, _ = self._isolating.compute([window.sequences[position] for position in positions])
        for position, outcome in zip(positions, outcomes, strict=True):
            window.outcomes[position] = outcome

    @staticmethod
    def _finish(runner: Runner, window: Window, futures: list[Future[None]]) -> Iterator[RowResult | RowFailure]:
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        yield from window.finish(runner).results


def _items(runner: Runner, rows: Iterable[RowInput | RowFailure]) -> Iterator[Item]:
    """Rows with their tokens, block by block."""
    encoder = BlockEncoder(runner, Watchdog(MonotonicClock()), bound_s=lambda: math.inf)
    iterator = iter(rows)
    first_row = 0
    while block_rows := list(itertools.islice(iterator, _BLOCK_ROWS)):
        block = Block(first_row=first_row, rows=block_rows, sizes_bytes=[0] * len(block_rows))
        for offset, row in enumerate(encoder.encode(block)):
            yield row, block, offset
        first_row += len(block_rows)
