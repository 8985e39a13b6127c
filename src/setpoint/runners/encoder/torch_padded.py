"""The padded executor: what every model can do. Fed batches of like lengths, it wastes little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from setpoint.domain.batch import BatchCost
from setpoint.errors import ModelError
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.padded_batch import pad_batch
from setpoint.runners.encoder.torch_device import computing
from setpoint.runners.encoder.torch_executor import TorchExecutor
from setpoint.runners.encoder.torch_parts import body_of, padding_id, private_copy


class TorchPadded(TorchExecutor):
    """Computes right-padded batches with an attention mask, by torch's own attention where the model can use it.

    Arguments as `TorchPacked`'s.
    """

    name = "torch-padded"
    cost = BatchCost.PADDED

    def __init__(
        self,
        model: EncoderModel,
        *,
        dtype: str = "float32",
        device: str = "auto",
        num_threads: int | None = None,
        num_streams: int = 1,
    ) -> None:
        super().__init__(dtype=dtype, device=device, num_threads=num_threads, num_streams=num_streams)
        self._output = model.output
        self._network = private_copy(model.network, dtype=self._torch_dtype, device=self._device)
        # Body in the dtype, head and pooling in float32: the states change where they leave the body.
        body_of(self._network.model).register_forward_hook(_to_float32)
        self._pad_id = padding_id(self._network)

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute a batch; one float32 array a sequence, in the batch's order, padding cut off."""
        if not batch:
            return []
        if min(map(len, batch)) == 0:
            raise ModelError("a sequence of the batch has no tokens")
        with computing(self._device, self._num_threads):
            whole = self._network(*self._inputs(batch)).float().cpu().numpy()
        if self._output in (OutputKind.EMBEDDING, OutputKind.SEQUENCE_LOGITS):
            return list(whole)
        # Copies, so that a short sequence does not keep the whole batch alive.
        return [np.array(states[: len(sequence)]) for states, sequence in zip(whole, batch, strict=True)]

    def close(self) -> None:
        """Release the weights. The executor cannot be used afterwards; closing again does nothing."""
        self.__dict__.pop("_network", None)

    def _inputs(self, batch: Sequence[TokenSequence]) -> tuple[Tensor, Tensor, Tensor | None]:
        """ids, mask and type ids, int64 [B, L]."""
        arrays = pad_batch(batch, self._pad_id)
        given = any(sequence.type_ids is not None for sequence in batch)
        on_device = [torch.from_numpy(array).to(self._device) for array in arrays]
        return on_device[0], on_device[1], on_device[2] if given else None


def _to_float32(_module: nn.Module, _inputs: Any, out: Any) -> Any:
    """Forward hook: the floating outputs of the body in float32."""
    for name in ("last_hidden_state", "pooler_output"):
        states = getattr(out, name, None)
        if isinstance(states, Tensor):
            out[name] = states.float()
    return out
