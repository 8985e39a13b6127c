"""Compute a batch so that whatever goes wrong stays with the rows it belongs to.

    runs out of memory    split, and remembered: later batches are cut to what fitted
    raises                halved until the guilty sequence is alone
    answers NaN           that sequence is tried alone once, since a neighbour may be to blame

A sequence's outcome is an array or a RowFailure; what is raised from here ends the job.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from setpoint.batching.pack import batch_cost_tokens, form_batches
from setpoint.domain.row import Reason, RowFailure
from setpoint.errors import JobStopped, OutOfMemory
from setpoint.runners.base import Runner, TokenSequence

Outcome: TypeAlias = npt.NDArray[Any] | RowFailure

MAX_FAILURES_BEFORE_SUCCESS = 100  # a model that computes nothing at all is broken, not unlucky
_MAX_DETAIL_CHARS = 300


class SharedAccess:
    """Many forward passes at once, or one all alone: a row that does not fit beside others may fit by itself."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._num_inside = 0
        self._is_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Enter beside others; waits while somebody is alone."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_alone)
            self._num_inside += 1
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Enter alone; waits until all others have left."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_alone)
            self._is_alone = True
            self._condition.wait_for(lambda: self._num_inside == 0)
            self._num_inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._is_alone = False
            self._leave()

    def _leave(self) -> None:
        with self._condition:
            self._num_inside -= 1
            self._condition.notify_all()


class IsolatingRunner:
    """Runs batches on a runner for several threads; see the module's text."""

    def __init__(self, runner: Runner, *, max_batch_tokens: int | None = None) -> None:
        self._runner = runner
        self._shape = runner.shape
        self._access = SharedAccess()
        self._lock = threading.Lock()
        self._limit_tokens = max_batch_tokens
        self._num_failures = 0
        self._has_succeeded = False

    @property
    def limit_tokens(self) -> int | None:
        """The most tokens a batch may have, learnt from running out of memory; None as long as that never happened."""
        return self._limit_tokens

    def compute(self, batch: Sequence[TokenSequence]) -> tuple[list[Outcome], bool]:
        """One outcome a sequence, in order, and whether it was a single forward pass without any trouble.

        Raises JobStopped where the model has failed on everything so far.
        """
        if not self._fits(batch):
            return self._compute_parts(batch, self._parts_that_fit(batch)), False
        failed: str | None = None
        try:
            with self._access.shared():
                arrays = self._forward(batch)
        except (OutOfMemory, MemoryError):
            pass
        except Exception as error:  # noqa: BLE001 - whatever a model raises belongs to one of these rows
            failed = describe_error(error)
        else:
            self._has_succeeded = True
            return self._check_finite(batch, arrays)
        # Out here the exception is gone, and with it the failed batch's memory that its traceback kept alive.
        if failed is None:
            return self._after_out_of_memory(batch), False
        return self._after_failure(batch, failed), False

    def _forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        arrays = self._runner.forward(batch)
        if len(arrays) != len(batch):
            raise RuntimeError(f"the model returned {len(arrays)} results for {len(batch)} sequences")
        return arrays

    def _fits(self, batch: Sequence[TokenSequence]) -> bool:
        limit = self._limit_tokens
        return limit is None or len(batch) == 1 or self._tokens(batch) <= limit

    def _tokens(self, batch: Sequence[TokenSequence]) -> int:
        return batch_cost_tokens([len(sequence) for sequence in batch], self._shape.cost)

    def _parts_that_fit(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[np.intp]]:
        limit = max(1, self._limit_tokens or 1)
        return form_batches(
            [len(sequence) for sequence in batch], dataclasses.replace(self._shape, max_batch_tokens=limit)
        )

    def _compute_parts(
        self, batch: Sequence[TokenSequence], parts: Sequence[Sequence[int] | npt.NDArray[np.intp]]
    ) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        for part in parts:
            found, _ = self.compute([batch[position] for position in part])
            outcomes.update(zip(map(int, part), found))
        return [outcomes[position] for position in range(len(batch))]

    def _after_out_of_memory(self, batch: Sequence[TokenSequence]) -> list[Outcome]:
        if len(batch) == 1:
            return [self._compute_alone(batch)]
        with self._lock:
            # Half of what failed: a budget just below it would fail again on the next batch that is a bit longer.
            limit = max(1, self._tokens(batch) // 2)
            self._limit_tokens = min(limit, self._limit_tokens or limit)
        return self._compute_parts(batch, self._parts_that_fit(batch))

    def _after_failure(self, batch: Sequence[TokenSequence], detail: str) -> list[Outcome]:
        if len(batch) > 1:
            middle = len(batch) // 2
            return self._compute_parts(batch, [range(middle), range(middle, len(batch))])
        failure = RowFailure(reason=Reason.MODEL_FAILED, detail=detail)
        self._count_failure(failure)
        return [failure]

    def _check_finite(
        self, batch: Sequence[TokenSequence], arrays: list[npt.NDArray[Any]]
    ) -> tuple[list[Outcome], bool]:
        outcomes: list[Outcome] = list(arrays)
        bad = [position for position, array in enumerate(arrays) if not _is_finite(array)]
        for position in bad:
            again = self._compute_alone([batch[position]]) if len(batch) > 1 else None
            # Another kind of failure the second time would hide what the first answer said.
            outcomes[position] = again if isinstance(again, np.ndarray) else _not_finite(arrays[position])
        return outcomes, not bad

    def _compute_alone(self, batch: Sequence[TokenSequence]) -> Outcome:
        try:
            with self._access.alone():
                array = self._forward(batch)[0]
        except (OutOfMemory, MemoryError):
            detail = f"{len(batch[0])} tokens do not fit in memory even alone"
            failure = RowFailure(reason=Reason.OUT_OF_MEMORY, detail=detail)
        except Exception as error:  # noqa: BLE001 - as above
            failure = RowFailure(reason=Reason.MODEL_FAILED, detail=describe_error(error))
        else:
            self._has_succeeded = True
            return array if _is_finite(array) else _not_finite(array)
        self._count_failure(failure)
        return failure

    def _count_failure(self, failure: RowFailure) -> None:
        with self._lock:
            self._num_failures += 1
            is_broken = not self._has_succeeded and self._num_failures >= MAX_FAILURES_BEFORE_SUCCESS
        if is_broken:
            raise JobStopped(
                f"the model has failed on each of the first {self._num_failures} sequences, "
                f"the last time with {failure}; nothing was computed, so the model or its options are at fault"
            )


def describe_error(error: BaseException) -> str:
    """The type and first line of an error, short enough for a cell."""
    text = str(error).strip().split("\n", 1)[0]
    whole = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return whole if len(whole) <= _MAX_DETAIL_CHARS else whole[: _MAX_DETAIL_CHARS - 1] + "…"


def _not_finite(array: npt.NDArray[Any]) -> RowFailure:
    count = int(array.size - np.isfinite(array).sum())
    return RowFailure(reason=Reason.NOT_FINITE, detail=f"{count} of {array.size} numbers are NaN or infinite")


def _is_finite(array: npt.NDArray[Any]) -> bool:
    # One dot product is several times faster than isfinite().all() on a small array; it may overflow, so only its
    # good answer is final.
    if array.dtype.kind != "f":
        return True
    if array.dtype.itemsize >= 4 and np.isfinite(np.vdot(array, array)):
        return True
    return bool(np.isfinite(array).all())
