"""Encoders in memory from tiny models, and what their network gives one sequence at a time: the oracle of executors."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from setpoint.domain.task import Task
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.model import EncoderModel, EncoderNetwork, OutputKind
from setpoint.runners.encoder.pooling import Pooling
from tests.runners.encoder.tiny import FAMILIES, NO_TYPE_IDS, tiny_model

TASKS = {
    OutputKind.EMBEDDING: Task.FEATURE_EXTRACTION,
    OutputKind.TOKEN_STATES: Task.FEATURE_EXTRACTION,
    OutputKind.SEQUENCE_LOGITS: Task.TEXT_CLASSIFICATION,
    OutputKind.TOKEN_LOGITS: Task.TOKEN_CLASSIFICATION,
}
EVERY_FAMILY_AND_OUTPUT = [
    (family, output)
    for family in FAMILIES
    for output in OutputKind
    if (family, output) != ("gemma3_text", OutputKind.TOKEN_LOGITS)  # transformers has no such head
]


@functools.cache
def tiny_encoder(
    family: str, output: OutputKind = OutputKind.TOKEN_STATES, pooling: str = "mean", **overrides: Any
) -> EncoderModel:
    """Cached: tests must not change the model."""
    model, tokenizer = tiny_model(family, TASKS[output], **overrides)
    pool = Pooling([pooling]) if output is OutputKind.EMBEDDING else None
    return EncoderModel(
        source=f"tiny-{family}",
        folder=Path(),
        task=TASKS[output],
        output=output,
        network=EncoderNetwork(model, output=output, pool=pool).eval(),
        tokenizer=tokenizer,
        config=model.config,
        max_length=500,
        uses_type_ids=family not in NO_TYPE_IDS,
    )


def random_sequences(model: EncoderModel, lengths: Iterable[int], *, seed: int = 0) -> list[TokenSequence]:
    """Random ordinary tokens, with the special ones at the ends where there is room; segments change in the middle."""
    rng = np.random.default_rng(seed)
    tokenizer = model.tokenizer
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id or tokenizer.eos_token_id
    found = []
    for length in lengths:
        ids = rng.integers(5, len(tokenizer), length).astype(np.int32)
        ids[-1] = last
        if first is not None and length > 1:
            ids[0] = first
        types = (np.arange(length) > length // 2).astype(np.int32) if model.uses_type_ids else None
        found.append(TokenSequence(ids, types))
    return found


def one_at_a_time(model: EncoderModel, sequences: Sequence[TokenSequence]) -> list[np.ndarray]:
    """The network in float32 without padding, without company."""
    outputs = []
    with torch.inference_mode():
        for sequence in sequences:
            ids = torch.tensor(sequence.ids, dtype=torch.int64)[None]
            types = None if sequence.type_ids is None else torch.tensor(sequence.type_ids, dtype=torch.int64)[None]
            outputs.append(model.network(ids, torch.ones_like(ids), types)[0].numpy())
    return outputs


def largest_difference(outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Largest absolute difference; asserts equal shapes, float32 and finite numbers."""
    assert len(outputs) == len(wanted)
    for got, reference in zip(outputs, wanted, strict=True):
        assert got.shape == reference.shape
        assert got.dtype == np.float32
        assert np.isfinite(got).all()
    return max(float(np.abs(got - reference).max()) for got, reference in zip(outputs, wanted, strict=True))
