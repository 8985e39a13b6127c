"""The ways that the demonstration compares: a transformers pipeline three times, Setpoint twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from setpoint.batching.pack import form_batches
from setpoint.domain.batch import BatchCost
from setpoint.domain.row import RowInput
from setpoint.errors import SetpointError
from setpoint.measure.clock import Clock
from setpoint.runners.base import EncodedRow, Runner

PIPELINE_BATCH = 32  # what people write


class PipelineLaps:
    """A transformers pipeline that is given these batches one after the other."""

    dtype = "float32"
    cost = BatchCost.PADDED

    def __init__(
        self,
        title: str,
        embed: Callable[[Sequence[str]], npt.NDArray[Any]],
        texts: Sequence[str],
        batches: Sequence[Sequence[int]],
    ) -> None:
        self.title = title
        self.tool = "transformers float32"
        self.label = "pipeline float32"
        self.batches = batches
        self._embed = embed
        self._texts = texts
        self.vectors: list[Any] = [None] * len(texts)

    def warm_up(self) -> None:
        """One call."""
        self._embed([self._texts[i] for i in self.batches[0]])

    def run(self, clock: Clock) -> list[float]:
        """All texts once; vectors land in the texts' order."""
        taken = []
        for batch in self.batches:
            begin = clock.now_ns()
            found = self._embed([self._texts[i] for i in batch])
            taken.append((clock.now_ns() - begin) / 1e9)
            for i, vector in zip(batch, found, strict=True):
                self.vectors[i] = vector
        return taken


class RunnerLaps:
    """Setpoint's runner over the same texts: tokenized, sorted by length, cut into its batches, order put back."""

    def __init__(self, title: str, runner: Runner, texts: Sequence[str]) -> None:
        facts = runner.fingerprint
        self.title = title
        self.tool = f"Setpoint {str(facts['backend']).partition('-')[0]} {facts['dtype']}"
        self.dtype = str(facts["dtype"])
        self.label = f"Setpoint {self.dtype}"
        self.cost = runner.shape.cost
        self._runner = runner
        self._rows = [RowInput(text=text) for text in texts]
        self.batches: Sequence[Sequence[int]] = [list(map(int, batch)) for batch in self._form(self._encode())]
        self.vectors: list[Any] = [None] * len(texts)

    def warm_up(self) -> None:
        """All texts once, since executors prepare for every new shape."""
        rows = self._encode()
        self._pass(rows, lambda batch: self._compute(rows, batch))

    def run(self, clock: Clock) -> list[float]:
        """All texts once, tokenizing included."""
        taken: list[float] = []
        rows = self._encode()

        def timed(batch: Sequence[int]) -> None:
            begin = clock.now_ns()
            self._compute(rows, batch)
            taken.append((clock.now_ns() - begin) / 1e9)

        self._pass(rows, timed)
        return taken

    def _encode(self) -> list[EncodedRow]:
        rows = self._runner.encode(self._rows)
        bad = [row for row in rows if not isinstance(row, EncodedRow)]
        if bad:
            raise SetpointError(f"a text of the demonstration cannot be read: {bad[0]}")
        return [row for row in rows if isinstance(row, EncodedRow)]

    def _form(self, rows: Sequence[EncodedRow]) -> list[npt.NDArray[np.intp]]:
        return form_batches([row.num_tokens for row in rows], self._runner.shape)

    def _pass(self, rows: Sequence[EncodedRow], visit: Callable[[Sequence[int]], None]) -> None:
        batches = [list(map(int, batch)) for batch in self._form(rows)]
        with ThreadPoolExecutor(self._runner.shape.num_streams) as pool:
            for _ in pool.map(visit, batches):
                pass

    def _compute(self, rows: Sequence[EncodedRow], batch: Sequence[int]) -> None:
        outputs = self._runner.forward([rows[i].sequences[0] for i in batch])
        for i, output in zip(batch, outputs, strict=True):
            self.vectors[i] = self._runner.decode(rows[i], [output]).values["embedding"]


def in_order(count: int, size: int) -> list[list[int]]:
    """Batches of `size` as the texts come."""
    return [list(range(i, min(i + size, count))) for i in range(0, count, size)]


def by_length(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Batches of `size` after sorting by length, longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return [order[i : i + size] for i in range(0, len(order), size)]
