"""The packed executor: the sequences of a batch end to end in one row, no padding, on unmodified models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from setpoint.domain.batch import BatchCost
from setpoint.errors import ModelError
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.families import positions_of, prepare, unpackable
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.packing import Packing, Scratch
from setpoint.runners.encoder.torch_device import computing
from setpoint.runners.encoder.torch_executor import TorchExecutor
from setpoint.runners.encoder.torch_linears import can_prepack, prepack
from setpoint.runners.encoder.torch_parts import padding_id, private_copy, split


class TorchPacked(TorchExecutor):
    """Computes batches as packed rows. Raises ModelError for a model that `unpackable` names a reason for.

    `dtype` is float32, bfloat16 or float16; `device` as torch names it, or `auto`. `num_threads` is per stream, None
    shares torch's setting among `num_streams`. The model's weights are shared with `model` where dtype and device
    allow it.
    """

    name = "torch-packed"
    cost = BatchCost.PACKED

    def __init__(
        self,
        model: EncoderModel,
        *,
        dtype: str = "float32",
        device: str = "auto",
        num_threads: int | None = None,
        num_streams: int = 1,
    ) -> None:
        reason = unpackable(model.network.model)
        if reason is not None:
            raise ModelError(f"model {model.source!r} cannot read packed rows: {reason}")
        super().__init__(dtype=dtype, device=device, num_threads=num_threads, num_streams=num_streams)
        self._output = model.output
        network = private_copy(model.network, dtype=self._torch_dtype, device=self._device)
        self._positions = positions_of(network.model)
        self._pad_id = padding_id(network)
        self._parts = split(network)
        prepare(self._parts.body)
        self._rounds = can_prepack(self._device, self._torch_dtype)
        if self._rounds:
            prepack(self._parts.body)
        accepted = inspect.signature(self._parts.body.forward).parameters
        self._takes_type_ids = "token_type_ids" in accepted
        self._fixed = {"use_cache": False} if "use_cache" in accepted else {}
        self._scratch = Scratch()

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute a batch in any order of lengths; one float32 array a sequence, in the batch's order."""
        if not batch:
            return []
        if min(map(len, batch)) == 0:
            raise ModelError("a sequence of the batch has no tokens")
        order = sorted(range(len(batch)), key=lambda index: len(batch[index]))
        ascending = [batch[index] for index in order]
        with computing(self._device, self._num_threads):
            arrays = self._compute(ascending)
        results: list[npt.NDArray[Any]] = [np.empty(0)] * len(batch)
        for index, array in zip(order, arrays, strict=True):
            results[index] = array
        return results

    def close(self) -> None:
        """Release the weights. The executor cannot be used afterwards; closing again does nothing."""
        for name in ("_parts", "_scratch"):
            self.__dict__.pop(name, None)

    def _compute(self, ascending: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        packing = Packing.of(
            [len(sequence) for sequence in ascending],
            device=self._device,
            scratch=self._scratch,
            round_up=self._rounds,
        )
        row = self._row(ascending, packing)
        with packing.active():
            states = self._parts.body(**row, **self._fixed).last_hidden_state[0].float()  # [T, H]
        if self._output is OutputKind.TOKEN_STATES:
            return _cut(states, packing)
        if self._output is OutputKind.TOKEN_LOGITS:
            assert self._parts.head is not None
            ids = row["input_ids"]
            return _cut(self._parts.head(states.unsqueeze(0), ids, torch.ones_like(ids))[0], packing)
        groups = _padded_groups(states, row["input_ids"][0], packing, self._pad_id)
        parts = [self._finish(*padded) for padded in groups]
        whole = torch.cat(parts).float().cpu().numpy()
        return list(whole)

    def _row(self, ascending: Sequence[TokenSequence], packing: Packing) -> dict[str, Tensor]:
        """The model's inputs [1, T]; the tail repeats the first token."""
        tail = packing.row_tokens - packing.num_tokens
        ids = [sequence.ids for sequence in ascending]
        positions = [self._positions.of(each) for each in ids]
        row = {
            "input_ids": np.concatenate([*ids, ids[0][:1].repeat(tail)]),
            "position_ids": np.concatenate([*positions, positions[0][:1].repeat(tail)]),
        }
        if self._takes_type_ids and any(sequence.type_ids is not None for sequence in ascending):
            types = [_type_ids(sequence) for sequence in ascending]
            row["token_type_ids"] = np.concatenate([*types, types[0][:1].repeat(tail)])
        return {
            name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)).to(self._device).unsqueeze(0)
            for name, array in row.items()
        }

    def _finish(self, states: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Pooling or the task's head, over a padded batch."""
        if self._output is OutputKind.EMBEDDING:
            assert self._parts.pool is not None
            pooled: Tensor = self._parts.pool(states, mask)
            return pooled
        assert self._parts.head is not None
        return self._parts.head(states, ids, mask)


def _type_ids(sequence: TokenSequence) -> npt.NDArray[np.int32]:
    return np.zeros(len(sequence), np.int32) if sequence.type_ids is None else sequence.type_ids


def _cut(states: Tensor, packing: Packing) -> list[npt.NDArray[Any]]:
    """[T, C] to one array [length, C] a sequence."""
    whole = states.float().cpu().numpy()
    return [whole[start : start + length] for start, length in zip(packing.starts, packing.lengths, strict=True)]


def _padded_groups(
    states: Tensor, ids: Tensor, packing: Packing, pad_id: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Neighbours as padded batches (states [n, L, H], ids, mask), none longer than twice its shortest.

    Heads and poolings are written for padded batches; like this they waste at most half of what little they cost.
    """
    lengths, starts = packing.lengths, packing.starts
    first = 0
    while first < len(lengths):
        last = first + 1
        while last < len(lengths) and lengths[last] <= 2 * lengths[first]:
            last += 1
        own = torch.tensor(lengths[first:last])
        begins = torch.tensor(starts[first:last])
        positions = torch.arange(lengths[last - 1])
        inside = positions < own[:, None]
        index = torch.where(inside, begins[:, None] + positions, begins[:, None]).to(states.device)
        mask = inside.to(device=states.device, dtype=torch.int64)
        yield states[index], ids[index].masked_fill(mask == 0, pad_id), mask
        first = last
