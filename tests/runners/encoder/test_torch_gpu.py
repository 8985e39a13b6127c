"""Packed rows on an accelerator: variable-length kernels in half precision, a call a sequence in float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from setpoint.runners.encoder.model import OutputKind
from setpoint.runners.encoder.torch_device import available_devices, supported_dtypes
from setpoint.runners.encoder.torch_packed import TorchPacked
from tests.runners.encoder.encoders import largest_difference, one_at_a_time, random_sequences, tiny_encoder

DEVICE = available_devices()[0]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu", reason="torch finds no accelerator on this machine"),
]

LENGTHS = (17, 2, 130, 64, 97, 1, 400)
FAMILIES = ("bert", "modernbert", "mpnet", "qwen3", "mistral", "gemma3_text")  # full, windowed, biased, causal, both


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_equals_the_cpu(family: str) -> None:
    model = tiny_encoder(family, OutputKind.TOKEN_STATES)
    sequences = random_sequences(model, LENGTHS)
    outputs = TorchPacked(model, device=DEVICE).forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < 1e-3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_stays_close(family: str, dtype: str) -> None:
    if dtype not in supported_dtypes(torch.device(DEVICE)):
        pytest.skip(f"this {DEVICE} does not compute in {dtype}")
    model = tiny_encoder(family, OutputKind.TOKEN_STATES)
    sequences = random_sequences(model, LENGTHS)
    outputs = TorchPacked(model, device=DEVICE, dtype=dtype).forward(sequences)
    for got, wanted in zip(outputs, one_at_a_time(model, sequences), strict=True):
        cosine = (got * wanted).sum() / (np.linalg.norm(got) * np.linalg.norm(wanted))
        assert cosine > 0.997
