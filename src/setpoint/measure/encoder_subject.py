"""Encoders as something to sweep: a visit is one pass over a part of the rows, in batches as a job would form them.

Batches are formed from *all* rows, so that they hold the same rows as in a job, and a visit runs one of every k
neighbours in length, another each time: a part that has no bias by length, and k visits run every batch once.
Within a visit the order is shuffled. Each batch is timed on the clock, after waiting for what the accelerator has
queued.
"""

from __future__ import annotations

import hashlib
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from setpoint.batching.pack import form_batches
from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.curve import Value, Workload
from setpoint.errors import InputError, UsageError
from setpoint.measure.clock import NS_PER_S, Clock
from setpoint.measure.subject import Sample, Visit
from setpoint.runners.base import Runner, TokenSequence

LOAD_NAMES = ("max_batch_tokens", "batch_size")
LENGTH_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_PROBE_BATCHES = 8  # of the first visit to a setting, when nobody knows yet how long a batch takes
_MIN_BATCHES = 4
_NO_LIMIT = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """A batch that is ready to run, with what a sample says about it."""

    sequences: Sequence[TokenSequence]
    num_tokens: int
    processed_tokens: int
    sum_len2: int
    longest: int


@dataclass(slots=True, kw_only=True)
class _Plan:
    """A setting's batches, longest first, and which of them come next. Kept for as long as the subject lives."""

    batches: Sequence[_Batch]
    random: np.random.Generator
    stride: int | None = None  # None: nothing was timed yet
    rounds: list[list[int]] = field(default_factory=list)  # the parts that are still to come

    def next_part(self) -> list[_Batch]:
        """One batch of every `stride` neighbours in length, picked at random among those that did not come yet."""
        if self.stride is None:
            part = self._deal(max(1, len(self.batches) // _PROBE_BATCHES))[0]
        else:
            if not self.rounds:
                self.rounds = self._deal(self.stride)
            part = self.rounds.pop()
        return [self.batches[i] for i in self.random.permutation(part).tolist()]

    def _deal(self, stride: int) -> list[list[int]]:
        """Deal the batches to `stride` parts, those of each run of neighbours in an order of its own.

        With one common start for all runs, a part would have longer batches than another throughout.
        """
        parts: list[list[int]] = [[] for _ in range(stride)]
        for first in range(0, len(self.batches), stride):
            last = min(first + stride, len(self.batches))
            for number, part in enumerate(self.random.permutation(stride)[: last - first].tolist()):
                parts[part].append(first + number)
        return parts

    def learn(self, samples: Sequence[Sample], *, pass_seconds: float, num_streams: int) -> None:
        """After the first visit: how many batches a visit of `pass_seconds` has."""
        if self.stride is not None:
            return
        typical_s = statistics.median(sample.end_ns - sample.start_ns for sample in samples) / NS_PER_S
        num_wanted = max(_MIN_BATCHES, round(pass_seconds * num_streams / max(typical_s, 1e-9)))
        self.stride = max(1, len(self.batches) // num_wanted)


class EncoderSubject:
    """Implements `setpoint.measure.subject.Subject` for runners of encoders.

    `make_runner` is called once for each variant: a setting without its load (`max_batch_tokens` or `batch_size`).
    The runner's shape says how tokens are counted and how many batches run side by side. `synchronize` waits for all
    work that the accelerator has queued, and is called before every reading of the clock. A visit takes about
    `pass_seconds`, or one pass over all rows where that is shorter. Raises InputError for no sequences.
    """

    def __init__(
        self,
        make_runner: Callable[[Mapping[str, Value]], Runner],
        sequences: Sequence[TokenSequence],
        *,
        clock: Clock,
        synchronize: Callable[[], None] = lambda: None,
        seed: int = 0,
        name: str = "rows",
        pass_seconds: float = 0.7,
    ) -> None:
        if not sequences:
            raise InputError(f"{name}: there is no row to measure with; give at least one that can be tokenized")
        self._make_runner = make_runner
        self._sequences = sequences
        self._lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        self._clock = clock
        self._synchronize = synchronize
        self._seed = seed
        self._pass_seconds = pass_seconds
        self._workload = _describe(sequences, self._lengths, name=name, seed=seed)
        self._runners: dict[tuple[tuple[str, Value], ...], Runner] = {}
        self._plans: dict[tuple[tuple[str, Value], ...], _Plan] = {}

    @property
    def workload(self) -> Workload:
        """The rows: how many, their lengths, and their digest."""
        return self._workload

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each sequence; what `plan_points` plans with."""
        return [int(length) for length in self._lengths]

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """The fingerprint of each runner made so far, by variant; that of the only one as it is."""
        found = {_text(key): dict(runner.fingerprint) for key, runner in self._runners.items()}
        return next(iter(found.values())) if len(found) == 1 else found

    def open(self, setting: Mapping[str, Value]) -> EncoderTrial:
        """Load the variant's runner, if need be, and form the batches. Raises UsageError without exactly one load."""
        loads = [name for name in LOAD_NAMES if name in setting]
        if len(loads) != 1:
            raise UsageError(f"a setting has either {' or '.join(LOAD_NAMES)}, not {', '.join(loads) or 'neither'}")
        load = setting[loads[0]]
        if isinstance(load, str) or load < 1 or load != int(load):
            raise UsageError(f"{loads[0]} must be a whole number of at least 1, not {load!r}")
        variant = {name: value for name, value in setting.items() if name not in LOAD_NAMES}
        key = tuple(sorted(variant.items()))
        if key not in self._runners:
            self._runners[key] = self._make_runner(variant)
        runner = self._runners[key]
        shape = BatchShape(
            max_batch_tokens=int(load) if loads[0] == "max_batch_tokens" else _NO_LIMIT,
            max_batch_size=int(load) if loads[0] == "batch_size" else None,
            cost=runner.shape.cost,
            num_streams=runner.shape.num_streams,
        )
        plan_key = tuple(sorted(setting.items()))
        if plan_key not in self._plans:
            self._plans[plan_key] = self._plan(shape, _text(plan_key))
        return EncoderTrial(
            runner, self._plans[plan_key], shape, self._clock, self._synchronize, pass_seconds=self._pass_seconds
        )

    def _plan(self, shape: BatchShape, key: str) -> _Plan:
        batches = []
        for members in form_batches(self._lengths, shape):
            lengths = self._lengths[members]
            longest = int(lengths.max())
            processed = np.full(len(members), longest) if shape.cost == BatchCost.PADDED else lengths
            batches.append(
                _Batch(
                    sequences=[self._sequences[i] for i in members],
                    num_tokens=int(lengths.sum()),
                    processed_tokens=int(processed.sum()),
                    sum_len2=int(processed @ processed),
                    longest=longest,
                )
            )
        seeds = [self._seed, int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())]
        return _Plan(batches=batches, random=np.random.default_rng(seeds))


class EncoderTrial:
    """An encoder at one setting; implements `setpoint.measure.subject.Trial`."""

    def __init__(
        self,
        runner: Runner,
        plan: _Plan,
        shape: BatchShape,
        clock: Clock,
        synchronize: Callable[[], None],
        *,
        pass_seconds: float,
    ) -> None:
        self._runner = runner
        self._plan = plan
        self._clock = clock
        self._synchronize = synchronize
        self._pass_seconds = pass_seconds
        self._num_streams = max(1, shape.num_streams)
        self._pool = ThreadPoolExecutor(self._num_streams) if self._num_streams > 1 else None

    def visit(self) -> Visit:
        """Run the next part of the batches. Raises what the runner raises: OutOfMemory where a batch does not fit."""
        part = self._plan.next_part()
        self._synchronize()
        start_ns = self._clock.now_ns()
        streams = [[self._run(batch) for batch in part]] if self._pool is None else self._run_side_by_side(part)
        self._synchronize()
        end_ns = self._clock.now_ns()
        samples = sorted((sample for stream in streams for sample in stream), key=lambda sample: sample.start_ns)
        self._plan.learn(samples, pass_seconds=self._pass_seconds, num_streams=self._num_streams)
        # At the end of a visit the stream with the last batch works alone; in a long job that is nothing. So the window
        # is as long as the streams were at work in the middle, or large batches would look slow.
        idle_ns = 0
        if len(streams) > 1:
            idle_ns = sum(end_ns - stream[-1].end_ns for stream in streams)
        window_ns = (end_ns - start_ns) - idle_ns // len(streams)
        inside_ns = sum(sample.end_ns - sample.start_ns for sample in samples) // len(streams)
        return Visit(
            samples=samples,
            start_ns=start_ns,
            end_ns=start_ns + window_ns,
            client_ns=max(0, window_ns - inside_ns),
        )

    def close(self) -> None:
        """End the threads; runners are kept, as the next setting of the variant needs them."""
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self, batch: _Batch) -> Sample:
        self._synchronize()
        start_ns = self._clock.now_ns()
        self._runner.forward(batch.sequences)
        self._synchronize()
        end_ns = self._clock.now_ns()
        return Sample(
            start_ns=start_ns,
            end_ns=end_ns,
            latency_ns={"batch": end_ns - start_ns},
            num_items=len(batch.sequences),
            num_tokens=batch.num_tokens,
            processed_tokens=batch.processed_tokens,
            sum_len2=batch.sum_len2,
            longest=batch.longest,
        )

    def _run_side_by_side(self, part: Sequence[_Batch]) -> list[list[Sample]]:
        """Each stream takes the next batch as soon as it is free; returns the samples of each that had one."""
        assert self._pool is not None
        waiting = iter(part)
        lock = threading.Lock()

        def stream() -> list[Sample]:
            done: list[Sample] = []
            while True:
                with lock:
                    batch = next(waiting, None)
                if batch is None:
                    return done
                done.append(self._run(batch))

        streams = [self._pool.submit(stream) for _ in range(self._num_streams)]
        return [samples for each in streams if (samples := each.result())]


def _text(key: tuple[tuple[str, Value], ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in key)


def _describe(
    sequences: Sequence[TokenSequence], lengths: np.ndarray[Any, np.dtype[np.int64]], *, name: str, seed: int
) -> Workload:
    digest = hashlib.blake2b(digest_size=16)
    for sequence in sequences:
        digest.update(len(sequence).to_bytes(4, "little"))
        digest.update(np.ascontiguousarray(sequence.ids, dtype="<i4").tobytes())
    quantiles = np.quantile(lengths, LENGTH_QUANTILES, method="inverted_cdf")
    return Workload(
        name=name,
        num_items=len(sequences),
        num_tokens=int(lengths.sum()),
        length_quantiles={q: int(value) for q, value in zip(LENGTH_QUANTILES, quantiles)},
        digest=digest.hexdigest(),
        seed=seed,
    )
