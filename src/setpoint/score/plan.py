"""What a job is to do, apart from the model and the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from setpoint.domain.batch import BatchShape
from setpoint.domain.truncation import Truncation
from setpoint.errors import UsageError
from setpoint.runners.base import FieldKind, ResultField
from setpoint.score.inputs import InputPlan
from setpoint.score.target import Target
from setpoint.score.window import WindowLimits

WINDOW_ROWS = 8_192
WINDOW_TOKENS = 65_536
WINDOW_BYTES = 32 * 2**20
WINDOW_BATCHES = 32  # at least so many full batches are sorted together
MATRIX_WINDOW_TOKENS = 16_384  # where every token brings a vector of its own
MATRIX_WINDOW_BATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """Where rows come from in a source, where results go, and how the job behaves.

    `keep` names the input's columns that the output has; None keeps all. `labels` are the candidate labels that all
    rows share (the runner knows them, too). `facts` is JSON of the caller's that is saved with the ledger.
    """

    target: Target
    inputs: InputPlan = field(default_factory=InputPlan)
    keep: tuple[str, ...] | None = None
    prefix: str = ""  # of the result columns
    truncation: Truncation = Truncation.TRUNCATE
    labels: tuple[str, ...] | None = None
    limit_rows: int | None = None
    window: WindowLimits | None = None
    restart: bool = False
    overwrite: bool = False
    batch_timeout_s: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.limit_rows is not None and self.limit_rows < 1:
            raise UsageError(f"--limit must be at least 1 row, not {self.limit_rows}")
        if self.batch_timeout_s is not None and self.batch_timeout_s <= 0:
            raise UsageError(f"--batch-timeout must be more than 0 s, not {self.batch_timeout_s:g} s")


def default_window(shape: BatchShape, fields: Sequence[ResultField]) -> WindowLimits:
    """How much is sorted together: enough for little padding, little enough to lose a minute at most to a crash."""
    has_matrix = any(found.kind is FieldKind.MATRIX for found in fields)
    if has_matrix:
        max_tokens = max(MATRIX_WINDOW_TOKENS, MATRIX_WINDOW_BATCHES * shape.max_batch_tokens)
    else:
        max_tokens = max(WINDOW_TOKENS, WINDOW_BATCHES * shape.max_batch_tokens)
    # Where batches are large, as on an accelerator, short rows should still fill several of them.
    max_rows = max(WINDOW_ROWS, shape.max_batch_tokens // 2)
    return WindowLimits(max_rows=max_rows, max_tokens=max_tokens, max_bytes=WINDOW_BYTES)
