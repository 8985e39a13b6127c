"""Padded batches give what the model gives for each sequence alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from setpoint.domain.batch import BatchCost
from setpoint.errors import ModelError, OutOfMemory
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.executor import Executor
from setpoint.runners.encoder.model import OutputKind
from setpoint.runners.encoder.torch_device import supported_dtypes
from setpoint.runners.encoder.torch_padded import TorchPadded
from tests.runners.encoder.encoders import (
    EVERY_FAMILY_AND_OUTPUT,
    largest_difference,
    one_at_a_time,
    random_sequences,
    tiny_encoder,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (17, 2, 61, 1, 33, 17)


@pytest.mark.parametrize(("family", "output"), EVERY_FAMILY_AND_OUTPUT)
def test_every_family_padded_equals_one_at_a_time(family: str, output: OutputKind) -> None:
    model = tiny_encoder(family, output)
    sequences = random_sequences(model, LENGTHS)
    outputs = TorchPadded(model, device="cpu").forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < 2e-5


@pytest.mark.skipif("bfloat16" not in supported_dtypes(torch.device("cpu")), reason="this CPU has no bfloat16")
@pytest.mark.parametrize("output", [kind for kind in OutputKind if kind is not OutputKind.TOKEN_STATES])
@pytest.mark.parametrize("family", ["bert", "qwen3", "deberta-v2", "albert"])
def test_heads_and_poolings_stay_in_float32(family: str, output: OutputKind) -> None:
    model = tiny_encoder(family, output)
    sequences = random_sequences(model, LENGTHS)
    executor = TorchPadded(model, device="cpu", dtype="bfloat16")
    outputs = executor.forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < 0.6
    bits = np.concatenate([array.ravel() for array in outputs]).view(np.uint32)
    assert (bits & 0xFFFF).any()  # more digits than bfloat16 has


def test_mixed_segments_empty_batches_and_empty_sequences() -> None:
    model = tiny_encoder("bert")
    executor: Executor = TorchPadded(model, device="cpu", num_streams=2)
    first, second = random_sequences(model, (12, 8))
    sequences = [first, TokenSequence(second.ids)]
    assert largest_difference(executor.forward(sequences), one_at_a_time(model, sequences)) < 2e-5
    assert executor.forward([]) == []
    with pytest.raises(ModelError, match="no tokens"):
        executor.forward([TokenSequence(np.zeros(0, np.int32))])
    described = (executor.name, executor.dtype, executor.cost, executor.num_streams)
    assert described == ("torch-padded", "float32", BatchCost.PADDED, 2)
    executor.close()
    executor.close()


def test_running_out_of_memory_is_raised_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = TorchPadded(tiny_encoder("bert"), device="cpu")

    def raising(*_args: object, **_kwargs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(executor._network, "forward", raising)
    with pytest.raises(OutOfMemory, match="CUDA out of memory"):
        executor.forward(random_sequences(tiny_encoder("bert"), (5,)))
