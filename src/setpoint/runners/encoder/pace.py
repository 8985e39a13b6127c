"""How fast an executor is on a sample: the measurement behind `--backend auto` and the shape of batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from setpoint.batching.pack import form_batches
from setpoint.domain.batch import BatchShape
from setpoint.errors import OutOfMemory
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.executor import Executor

_MAX_PASSES = 2


def sample_within(executor: Executor, sample: Sequence[TokenSequence], *, seconds: float) -> list[TokenSequence]:
    """As much of the sample, spread over its lengths, as the executor computes in about `seconds`; at least eight."""
    ordered = sorted(sample, key=len)
    probe = ordered[len(ordered) * 3 // 4]
    executor.forward([probe])  # the first call of a shape is slower
    begin = time.perf_counter()
    executor.forward([probe])
    tokens_per_s = len(probe) / max(time.perf_counter() - begin, 1e-9)
    total = sum(map(len, ordered))
    keep = min(len(ordered), max(8, int(len(ordered) * tokens_per_s * seconds / total)))
    if keep == len(ordered):
        return ordered
    return [ordered[i * (len(ordered) - 1) // (keep - 1)] for i in range(keep)]


def measure_pace(
    executor: Executor, sample: Sequence[TokenSequence], shape: BatchShape, *, seconds: float
) -> float | None:
    """Useful tokens per second with all streams busy: the best of at most two passes over the sample in `seconds`.

    The first pass is warm-up: executors compile for shapes that they have not seen. Each batch is timed by itself, so
    that a sample of few batches does not show the stream that ends last instead of the speed of a long job. None where
    a batch does not fit in memory.
    """
    batches = [[sample[i] for i in batch] for batch in form_batches([len(item) for item in sample], shape)]
    total = sum(map(len, sample))

    def timed(batch: Sequence[TokenSequence]) -> float:
        begin = time.perf_counter()
        executor.forward(batch)
        return time.perf_counter() - begin

    best, end = float("inf"), float("inf")
    try:
        with ThreadPoolExecutor(shape.num_streams) as pool:
            for number in range(1 + _MAX_PASSES):
                begin = time.perf_counter()
                busy = sum(pool.map(timed, batches))
                now = time.perf_counter()
                if number == 0:
                    end = now + seconds
                    continue
                best = min(best, busy / shape.num_streams)
                if now + (now - begin) > end:
                    break
    except OutOfMemory:
        return None
    return total / best
