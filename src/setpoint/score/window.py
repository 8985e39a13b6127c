"""What is sorted together: consecutive rows, cut into batches, and put back in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from setpoint.batching.pack import form_batches
from setpoint.domain.batch import BatchShape
from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.runners.base import EncodedRow, Runner, TokenSequence
from setpoint.score.isolate import Outcome, describe_error
from setpoint.score.meter import Work, work_of

NUM_PROBES = 7  # batches of the first window that show how cost depends on length


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive rows to be tokenized together. `payload` is the caller's own and comes back with the results."""

    first_row: int
    rows: Sequence[RowInput | RowFailure]
    sizes_bytes: Sequence[int]  # of all that is kept of each row
    payload: Any = None
    where: Callable[[int], str] = field(default=lambda offset: f"offset {offset}")

    @property
    def num_rows(self) -> int:
        """Rows in the block."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows `start` to `stop` of a block that belong to a window."""

    block: Block
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedWindow:
    """Consecutive rows, each with its result or the reason why it has none."""

    first_row: int
    pieces: tuple[Piece, ...]
    results: list[RowResult | RowFailure]
    num_sequences: list[int]  # that each row became

    @property
    def num_rows(self) -> int:
        """Rows in the window."""
        return len(self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """How much is sorted together and in memory at once."""

    max_rows: int
    max_tokens: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Rows, from 0, that an earlier run has a reason to fear."""

    suspects: Collection[int] = ()  # their batch hung: each is computed by itself
    guilty: Collection[int] = ()  # hung by themselves: not computed again


Item: TypeAlias = tuple[EncodedRow | RowFailure, Block, int]  # a row, the block it came in, its offset there


@dataclass(slots=True, eq=False, kw_only=True)
class Window:
    """Rows under way. The sequences of row i are `sequences[starts[i]:starts[i + 1]]`."""

    index: int
    first_row: int
    rows: list[EncodedRow | RowFailure]
    pieces: tuple[Piece, ...]
    sequences: list[TokenSequence]
    starts: list[int]
    lengths: npt.NDArray[np.int64]  # [sequences], in tokens
    owners: npt.NDArray[np.intp]  # [sequences], the row of each
    batches: list[npt.NDArray[np.intp]]  # positions in `sequences`: every one exactly once
    outcomes: list[Outcome | None]
    num_left: int  # batches that are not done

    def work(self, shape: BatchShape) -> Work:
        """What its batches will cost together."""
        works = [work_of(self.lengths[batch], shape.cost) for batch in self.batches]
        return Work(
            batches=len(works),
            tokens=sum(work.tokens for work in works),
            squares=sum(work.squares for work in works),
        )

    def row_tokens(self) -> npt.NDArray[np.int64]:
        """Tokens of each row [rows]; 0 for one that failed."""
        tokens = (0 if isinstance(row, RowFailure) else row.num_tokens for row in self.rows)
        return np.fromiter(tokens, dtype=np.int64, count=len(self.rows))

    def finish(self, runner: Runner) -> FinishedWindow:
        """Turn outcomes into results, in input order."""
        return FinishedWindow(
            first_row=self.first_row,
            pieces=self.pieces,
            results=[self._result(runner, offset) for offset in range(len(self.rows))],
            num_sequences=[end - start for start, end in itertools.pairwise(self.starts)],
        )

    def _result(self, runner: Runner, offset: int) -> RowResult | RowFailure:
        row = self.rows[offset]
        if isinstance(row, RowFailure):
            return row
        arrays: list[npt.NDArray[Any]] = []
        for outcome in self.outcomes[self.starts[offset] : self.starts[offset + 1]]:
            if isinstance(outcome, RowFailure):
                return outcome
            if outcome is None:
                raise RuntimeError(f"row {self.first_row + offset + 1} was never computed")
            arrays.append(outcome)
        try:
            return runner.decode(row, arrays)
        except Exception as error:  # noqa: BLE001 - whatever decoding raises belongs to this row
            return RowFailure(reason=Reason.MODEL_FAILED, detail=f"reading the result: {describe_error(error)}")


def form_window(items: Sequence[Item], *, index: int, shape: BatchShape, suspects: Collection[int] = ()) -> Window:
    """Cut consecutive rows into batches, longest first. `suspects` are rows, from 0, that share no batch."""
    rows = [row for row, _, _ in items]
    sequences: list[TokenSequence] = []
    starts = [0]
    for row in rows:
        if isinstance(row, EncodedRow):
            sequences.extend(row.sequences)
        starts.append(len(sequences))
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    owners = np.repeat(np.arange(len(rows)), [end - start for start, end in itertools.pairwise(starts)])
    first_row = items[0][1].first_row + items[0][2]
    batches = _batches(lengths, owners, [row - first_row for row in suspects], shape)
    return Window(
        index=index,
        first_row=first_row,
        rows=rows,
        pieces=_pieces(items),
        sequences=sequences,
        starts=starts,
        lengths=lengths,
        owners=owners,
        batches=_probes_first(batches) if index == 0 else batches,
        outcomes=[None] * len(sequences),
        num_left=len(batches),
    )


def _batches(
    lengths: npt.NDArray[np.int64], owners: npt.NDArray[np.intp], suspects: Sequence[int], shape: BatchShape
) -> list[npt.NDArray[np.intp]]:
    if not suspects:
        return form_batches(lengths, shape)
    is_suspect = np.isin(owners, suspects)
    trusted = np.flatnonzero(~is_suspect)
    batches = [trusted[batch] for batch in form_batches(lengths[trusted], shape)]
    return batches + [np.array([position], dtype=np.intp) for position in np.flatnonzero(is_suspect)]


def _pieces(items: Sequence[Item]) -> tuple[Piece, ...]:
    """The blocks that consecutive items came from, each with the range of its rows."""
    pieces: list[Piece] = []
    start = 0
    for position in range(1, len(items) + 1):
        block = items[start][1]
        if position == len(items) or items[position][1] is not block:
            pieces.append(Piece(block=block, start=items[start][2], stop=items[position - 1][2] + 1))
            start = position
    return tuple(pieces)


def _probes_first(batches: list[npt.NDArray[np.intp]]) -> list[npt.NDArray[np.intp]]:
    """Move a few batches of all lengths to the front, the longest first, so that the first forecast knows them all."""
    count = min(NUM_PROBES, len(batches))
    picked = np.unique(np.linspace(0, len(batches) - 1, count).astype(int)) if count else np.empty(0, dtype=int)
    chosen = set(picked.tolist())
    return [batches[i] for i in picked] + [batch for i, batch in enumerate(batches) if i not in chosen]
