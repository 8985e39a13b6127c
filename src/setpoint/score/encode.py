"""Tokenize blocks of rows so that whatever goes wrong stays with the row it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.runners.base import EncodedRow, Runner
from setpoint.score.control import FatalRow, Watchdog
from setpoint.score.isolate import describe_error
from setpoint.score.window import Block


class BlockEncoder:
    """Encodes blocks on a runner, under a watchdog.

    `bound_s` gives the seconds after which it counts as hung; rows in `guilty` (from 0) are failed unseen; a row that
    is failed for a reason in `fatal` ends the job.
    """

    def __init__(
        self,
        runner: Runner,
        watchdog: Watchdog,
        *,
        bound_s: Callable[[], float],
        guilty: Collection[int] = (),
        fatal: Collection[Reason] = (),
    ) -> None:
        self._runner = runner
        self._watchdog = watchdog
        self._bound_s = bound_s
        self._guilty = guilty
        self._fatal = frozenset(fatal)

    def encode(self, block: Block) -> list[EncodedRow | RowFailure]:
        """One entry a row, in order. Raises FatalRow for a row that ends the job."""
        encoded: list[EncodedRow | RowFailure | None] = [self._known(block, offset) for offset in range(block.num_rows)]
        offsets = [offset for offset, row in enumerate(encoded) if row is None]
        inputs = [row for offset in offsets if isinstance(row := block.rows[offset], RowInput)]
        rows = range(block.first_row, block.first_row + block.num_rows)
        with self._watchdog.watching("tokenizing", rows, self._bound_s()):
            found = self._tokenize(inputs)
        for offset, outcome in zip(offsets, found, strict=True):
            encoded[offset] = outcome
        whole = [outcome for outcome in encoded if outcome is not None]
        self._refuse_fatal(block, whole)
        return whole

    def _known(self, block: Block, offset: int) -> RowFailure | None:
        row = block.rows[offset]
        if isinstance(row, RowFailure):
            return row
        if block.first_row + offset in self._guilty:
            detail = "the model did not come back from this row in an earlier run"
            return RowFailure(reason=Reason.MODEL_FAILED, detail=detail)
        return None

    def _tokenize(self, inputs: list[RowInput]) -> list[EncodedRow | RowFailure]:
        if not inputs:
            return []
        try:
            found = self._runner.encode(inputs)
            if len(found) != len(inputs):
                raise RuntimeError(f"the tokenizer returned {len(found)} rows for {len(inputs)}")
            return found
        except BaseException as error:
            if not _belongs_to_a_row(error):
                raise
            if len(inputs) == 1:
                detail = f"tokenizing: {describe_error(error)}"
                return [RowFailure(reason=Reason.MODEL_FAILED, detail=detail)]
        middle = len(inputs) // 2
        return self._tokenize(inputs[:middle]) + self._tokenize(inputs[middle:])

    def _refuse_fatal(self, block: Block, encoded: Sequence[EncodedRow | RowFailure]) -> None:
        if not self._fatal:
            return
        for offset, row in enumerate(encoded):
            if isinstance(row, RowFailure) and row.reason in self._fatal:
                raise FatalRow(f"row {block.first_row + offset + 1} ({block.where(offset)}) is {row}")


def _belongs_to_a_row(error: BaseException) -> bool:
    # A tokenizer written in Rust panics with an exception that is no Exception.
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
