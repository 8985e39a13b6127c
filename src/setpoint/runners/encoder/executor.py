"""What computes a batch of token sequences: packed or padded torch, OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from setpoint.domain.batch import BatchCost
from setpoint.runners.base import TokenSequence


class Executor(Protocol):
    """Computes one array a sequence. Shapes by the model's OutputKind (see `model.py`), always float32, on the host.

    `forward` returns after the work is done (synchronised), in the batch's order, and raises OutOfMemory when the
    batch does not fit. Up to `num_streams` threads may be inside it at once.
    """

    @property
    def name(self) -> str:
        """`torch-packed`, `torch-padded` or `openvino`."""
        ...

    @property
    def dtype(self) -> str:
        """`float32`, `bfloat16`, `float16` or `int8`."""
        ...

    @property
    def cost(self) -> BatchCost:
        """How this executor's work grows: with the sum of lengths or with count x longest."""
        ...

    @property
    def num_streams(self) -> int:
        """How many callers it serves at once."""
        ...

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute a batch."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...
