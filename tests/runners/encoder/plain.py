"""The simplest executor there is, and runners made with it: what tests hold tokens, tasks and heads against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.runners.base import EncodedRow, TokenSequence
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.runner import EncoderRunner


class PlainExecutor:
    """Pads a batch on the right and runs the network in float32."""

    name = "torch-padded"
    dtype = "float32"
    cost = BatchCost.PADDED
    num_streams = 1

    def __init__(self, model: EncoderModel) -> None:
        self._model = model

    def forward(self, batch: Sequence[TokenSequence]) -> list[np.ndarray]:
        longest = max(map(len, batch))
        ids = torch.full((len(batch), longest), self._model.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(ids)
        types = torch.zeros_like(ids)
        for row, sequence in enumerate(batch):
            ids[row, : len(sequence)] = torch.from_numpy(sequence.ids)
            mask[row, : len(sequence)] = 1
            if sequence.type_ids is not None:
                types[row, : len(sequence)] = torch.from_numpy(sequence.type_ids)
        with torch.inference_mode():
            out = self._model.network(ids, mask, types if self._model.uses_type_ids else None).numpy()
        if self._model.output in (OutputKind.TOKEN_LOGITS, OutputKind.TOKEN_STATES):
            return [out[row, : len(sequence)].copy() for row, sequence in enumerate(batch)]
        return list(out)

    def close(self) -> None:
        pass


def plain_runner(model: str | Path, task: str, **options: Any) -> EncoderRunner:
    chosen = EncoderOptions(model=str(model), task=task, **options)
    loaded = load_model(chosen)
    shape = BatchShape(max_batch_tokens=4_096, max_batch_size=8, cost=BatchCost.PADDED)
    return EncoderRunner(loaded, chosen, executor=PlainExecutor(loaded), shape=shape)


def score(runner: EncoderRunner, rows: Sequence[RowInput]) -> list[RowResult | RowFailure]:
    """All sequences of all rows in padded batches of mixed lengths, then back to rows."""
    encoded = runner.encode(rows)
    assert len(encoded) == len(rows)
    sequences = [sequence for row in encoded if isinstance(row, EncodedRow) for sequence in row.sequences]
    outputs: list[np.ndarray] = []
    for begin in range(0, len(sequences), 8):
        outputs += runner.forward(sequences[begin : begin + 8])
    results: list[RowResult | RowFailure] = []
    used = 0
    for row in encoded:
        if isinstance(row, RowFailure):
            results.append(row)
            continue
        results.append(runner.decode(row, outputs[used : used + len(row.sequences)]))
        used += len(row.sequences)
    return results


def texts(*values: Any) -> list[RowInput]:
    return [RowInput(text=value) for value in values]


def value(result: RowResult | RowFailure, name: str) -> Any:
    assert isinstance(result, RowResult), result
    return result.values[name]
