"""The runner protocol: the seam between a job (files, order, batches) and a model.

A row becomes one or more sequences (`encode`), sequences are computed in batches that the caller forms (`forward`),
and a row's outputs become its result (`decode`). Only `forward` may touch an accelerator.

    RowInput ──encode──▶ EncodedRow(sequences) ──forward──▶ one array a sequence ──decode──▶ RowResult
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from setpoint.domain.batch import BatchCost as BatchCost
from setpoint.domain.batch import BatchShape as BatchShape
from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.domain.task import Task

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequence:
    """One sequence as the model reads it, special tokens included.

    `ids` and `type_ids` are int32 of shape [length]; `type_ids` is None for models without segments.
    """

    ids: IntArray
    type_ids: IntArray | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    """A row after tokenizing.

    `num_tokens` is the sum of the sequences' lengths. `extra` is the runner's own (offsets, candidate labels, window
    weights) and is handed back to `decode` untouched.
    """

    sequences: tuple[TokenSequence, ...]
    num_tokens: int
    truncated_tokens: int = 0
    extra: Any = None


class FieldKind(StrEnum):
    """Types of result columns, named without any file format's types."""

    STRING = "string"
    STRINGS = "strings"  # list of strings
    FLOAT = "float"  # float32
    FLOATS = "floats"  # list of float32
    VECTOR = "vector"  # float32, fixed size: ResultField.size
    MATRIX = "matrix"  # list of float32 vectors of fixed size: token states
    INT = "int"
    INTS = "ints"
    ENTITIES = "entities"  # list of {entity_group, score, word, start, end}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultField:
    """One result column: its conventional name, its kind, and for vectors the size."""

    name: str
    kind: FieldKind
    size: int | None = None


@runtime_checkable
class Runner(Protocol):
    """A loaded model. `encode` and `decode` may be called from any thread; `forward` from up to `num_streams`."""

    @property
    def task(self) -> Task:
        """What it does."""
        ...

    @property
    def fields(self) -> Sequence[ResultField]:
        """The result columns that `decode` fills, in order."""
        ...

    @property
    def shape(self) -> BatchShape:
        """The batches it wants: measured, or given by the user."""
        ...

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its numbers depend on: model digest, tokenizer digest, task options, dtype, backend, versions. JSON."""
        ...

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize rows, one entry each, in order. Never raises for a bad row."""
        ...

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute one array a sequence, in order; synchronised when it returns.

        Raises OutOfMemory when the batch does not fit. Non-finite numbers are returned as they are: the job checks.
        """
        ...

    def decode(self, row: EncodedRow, outputs: Sequence[npt.NDArray[Any]]) -> RowResult:
        """Turn the outputs of a row's sequences into its result."""
        ...
