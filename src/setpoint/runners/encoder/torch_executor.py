"""What torch's executors share: where and how wide they compute, and what they say of it."""

from __future__ import annotations

import torch

from setpoint.domain.batch import BatchCost
from setpoint.runners.encoder.torch_device import choose_device, choose_dtype, default_threads


class TorchExecutor:
    """Device, dtype, threads and streams of an executor. `name` and `cost` are its class's."""

    name: str
    cost: BatchCost

    def __init__(self, *, dtype: str, device: str, num_threads: int | None, num_streams: int) -> None:
        self._device = choose_device(device)
        self._torch_dtype: torch.dtype = choose_dtype(dtype, self._device)
        self._dtype = dtype
        self._num_streams = num_streams
        self._num_threads = default_threads(num_streams) if num_threads is None else num_threads

    @property
    def dtype(self) -> str:
        """What the body computes in."""
        return self._dtype

    @property
    def device(self) -> str:
        """Where, as torch names it."""
        return str(self._device)

    @property
    def num_streams(self) -> int:
        """How many threads may be in `forward` at once."""
        return self._num_streams
