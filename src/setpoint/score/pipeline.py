"""From blocks of rows to finished windows in input order, with tokenizing beside the compute.

                 one thread                 num_streams threads            the caller's thread
    blocks ──▶ encode ─ windows ─ batches ──▶ forward ──▶ outcomes ──▶ decode ─▶ FinishedWindow

A window is what is sorted together. Windows are cut by rows and tokens alone, so the same input gives the same
batches however fast anything runs. Batches of the next window wait in the same queue, so no stream idles at a
window's end. At most `MAX_WINDOWS` are under way; that, and the block being encoded, is all that is in memory.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from setpoint.batching.stream import windows
from setpoint.domain.row import Reason, RowFailure
from setpoint.errors import Interrupted
from setpoint.runners.base import Runner
from setpoint.score.control import StopToken, Watchdog
from setpoint.score.encode import BlockEncoder
from setpoint.score.isolate import IsolatingRunner
from setpoint.score.meter import Activity, Meter, Work, work_of
from setpoint.score.window import Block, FinishedWindow, Item, Quarantine, Window, WindowLimits, form_window

MAX_WINDOWS = 3  # one being finished, one computed, one prepared
_TICK_S = 0.25  # how soon a stop, a hang or a dead thread is noticed
_JOIN_S = 5.0


class Pipeline:
    """Runs one stream of rows through a runner. Used once."""

    def __init__(
        self,
        runner: Runner,
        *,
        limits: WindowLimits,
        meter: Meter,
        watchdog: Watchdog,
        patience: Callable[[Work | None], float],
        stop: StopToken | None = None,
        max_batch_tokens: int | None = None,
        quarantine: Quarantine | None = None,
        fatal: Collection[Reason] = (),
    ) -> None:
        """`patience` gives the seconds after which a batch of so much work (None: tokenizing) counts as hung.

        `max_batch_tokens` is a limit that an earlier run learnt; a row failed for a reason in `fatal` ends the job.
        """
        self._runner = runner
        self._shape = runner.shape
        self._isolating = IsolatingRunner(runner, max_batch_tokens=max_batch_tokens)
        self._limits = limits
        self._meter = meter
        self._watchdog = watchdog
        self._patience = patience
        self._stop = stop or StopToken()
        quarantine = quarantine or Quarantine()
        self._suspects = quarantine.suspects
        self._encoder = BlockEncoder(
            runner, watchdog, bound_s=lambda: patience(None), guilty=quarantine.guilty, fatal=fatal
        )
        self._slots = threading.Semaphore(MAX_WINDOWS)
        self._is_over = threading.Event()
        self._tasks: queue.SimpleQueue[tuple[Window, npt.NDArray[np.intp]] | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[Window | _End | BaseException] = queue.SimpleQueue()
        self._window_lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    @property
    def limit_tokens(self) -> int | None:
        """What running out of memory has taught, now or earlier."""
        return self._isolating.limit_tokens

    def run(self, blocks: Iterable[Block], *, tick: Callable[[], None] = lambda: None) -> Generator[FinishedWindow]:
        """Yield finished windows in input order. `tick` is called several times a second while waiting.

        Raises what reading the blocks raises; Interrupted when asked to stop, after handing out what is finished;
        Hung when the model does not come back; FatalRow. Errors of single rows are results.
        """
        self._start(blocks)
        finished: dict[int, Window] = {}
        next_index = 0
        num_windows: int | None = None
        try:
            while num_windows is None or next_index < num_windows:
                news = self._wait(tick)
                if isinstance(news, BaseException):
                    raise news
                if isinstance(news, _End):
                    num_windows = news.num_windows
                elif news is not None:
                    finished[news.index] = news
                while next_index in finished:
                    with self._meter.during(Activity.DECODING):
                        window = finished.pop(next_index).finish(self._runner)
                    yield window
                    next_index += 1
                    self._slots.release()
                    tick()
                if news is None and self._stop.requested:
                    raise Interrupted(f"stopped by {self._stop.why}")
        finally:
            self._shut_down()

    def _start(self, blocks: Iterable[Block]) -> None:
        feeder = threading.Thread(target=self._guard, args=(self._feed, blocks), name="setpoint-encode", daemon=True)
        workers = [
            threading.Thread(target=self._guard, args=(self._work,), name=f"setpoint-compute-{number}", daemon=True)
            for number in range(self._shape.num_streams)
        ]
        self._threads = [feeder, *workers]
        for thread in self._threads:
            thread.start()

    def _shut_down(self) -> None:
        self._is_over.set()
        self._slots.release()  # wakes whoever waits, so that it sees that all is over
        for _ in self._threads:
            self._tasks.put(None)
        deadline_s = time.monotonic() + _JOIN_S
        for thread in self._threads:  # daemons: one that hangs in native code does not keep the process
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _guard(self, target: Callable[..., None], *args: Any) -> None:
        """Run a thread's work; whatever it raises ends the job, in the caller's thread."""
        try:
            target(*args)
        except _Over:
            pass
        except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell, and must not die silently
            self._news.put(error)

    def _wait(self, tick: Callable[[], None]) -> Window | _End | BaseException | None:
        """The next piece of news; None when asked to stop and there is none."""
        while True:
            try:
                return self._news.get(timeout=0 if self._stop.requested else _TICK_S)
            except queue.Empty:
                if self._stop.requested:
                    return None
            tick()
            self._watchdog.check()

    # The encoding thread ---------------------------------------------------------------------------------------------

    def _feed(self, blocks: Iterable[Block]) -> None:
        num_windows = 0
        stream = windows(
            self._items(blocks),
            num_tokens=self._weight,
            max_rows=self._limits.max_rows,
            max_tokens=self._limits.max_tokens,
        )
        while True:
            self._take_slot()
            items = next(stream, None)
            if items is None:
                break
            window = form_window(items, index=num_windows, shape=self._shape, suspects=self._suspects)
            num_windows += 1
            self._publish(window)
        self._news.put(_End(num_windows=num_windows))

    def _items(self, blocks: Iterable[Block]) -> Iterator[Item]:
        iterator = iter(blocks)
        while True:
            with self._meter.during(Activity.READING):
                block = next(iterator, None)
            if block is None:
                return
            with self._meter.during(Activity.TOKENIZING):
                encoded = self._encoder.encode(block)
            for offset, row in enumerate(encoded):
                yield row, block, offset
            self._check_over()

    def _weight(self, item: Item) -> int:
        """Tokens of a row, or more where the row's bytes would fill the window sooner."""
        row, block, offset = item
        num_tokens = 0 if isinstance(row, RowFailure) else row.num_tokens
        return max(num_tokens, block.sizes_bytes[offset] * self._limits.max_tokens // self._limits.max_bytes)

    def _publish(self, window: Window) -> None:
        self._meter.planned(window.row_tokens(), num_sequences=len(window.sequences), work=window.work(self._shape))
        if not window.batches:
            self._news.put(window)
        for batch in window.batches:
            self._tasks.put((window, batch))

    def _take_slot(self) -> None:
        while not self._slots.acquire(timeout=_TICK_S):
            self._check_over()
        self._check_over()

    def _check_over(self) -> None:
        if self._is_over.is_set() or self._stop.requested:
            raise _Over

    # The computing threads -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=_TICK_S)
            except queue.Empty:
                task = None
            self._check_over()
            if task is None:
                continue
            window, batch = task
            self._compute(window, batch)
            with self._window_lock:
                window.num_left -= 1
                is_done = window.num_left == 0
            if is_done:
                self._news.put(window)

    def _compute(self, window: Window, batch: npt.NDArray[np.intp]) -> None:
        lengths = window.lengths[batch]
        work = work_of(lengths, self._shape.cost)
        positions = batch.tolist()
        sequences = [window.sequences[position] for position in positions]
        rows = window.owners[batch] + window.first_row
        self._meter.batch_begins()
        begun_ns = self._meter.clock.now_ns()
        with self._watchdog.watching("computing", rows, self._patience(work)):  # type: ignore[arg-type]
            outcomes, is_undisturbed = self._isolating.compute(sequences)
        duration_ns = self._meter.clock.now_ns() - begun_ns
        for position, outcome in zip(positions, outcomes):
            window.outcomes[position] = outcome
        self._meter.spent(Activity.COMPUTING, duration_ns)
        self._meter.computed(
            work,
            num_sequences=len(positions),
            useful_tokens=int(lengths.sum()),
            sample_s=duration_ns / 1e9 if is_undisturbed else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    num_windows: int


class _Over(Exception):
    """Tells a thread of the pipeline to end."""
