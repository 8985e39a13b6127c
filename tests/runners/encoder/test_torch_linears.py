"""Prepacked linear layers compute what the layers they replace do."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu
from transformers.activations import ACT2FN

from setpoint.runners.encoder.torch_linears import PackedLinear, can_prepack, prepack

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    not can_prepack(CPU, torch.float32), reason="oneDNN's packed weights are used on x86 CPUs only"
)
DTYPES = [dtype for dtype in (torch.float32, torch.bfloat16) if can_prepack(CPU, dtype)]


class _Layer(nn.Module):
    """A layer with the attribute names of BERT's."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(24, 40)
        self.intermediate_act_fn = ACT2FN[activation]
        self.out = nn.Sequential(nn.Linear(40, 24, bias=False))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.intermediate_act_fn(self.dense(hidden)))
        return out


def _close(dtype: torch.dtype) -> dict[str, float]:
    return {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.05, "rtol": 0.02}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("activation", "fused"),
    [("gelu", True), ("gelu_new", True), ("gelu_pytorch_tanh", True), ("silu", True), ("relu", True), ("mish", False)],
)
@torch.inference_mode()
def test_layers_and_the_activations_between_them(dtype: torch.dtype, activation: str, fused: bool) -> None:
    torch.manual_seed(0)
    layer = _Layer(activation).to(dtype)
    hidden = torch.randn(2, 7, 24).to(dtype)
    wanted = layer(hidden)
    assert prepack(layer) == 2
    assert isinstance(layer.dense, PackedLinear)
    assert isinstance(layer.out[0], PackedLinear)
    assert isinstance(layer.intermediate_act_fn, nn.Identity) is fused
    torch.testing.assert_close(layer(hidden), wanted, **_close(dtype))


@torch.inference_mode()
def test_a_shared_layer_stays_shared_and_is_not_fused() -> None:
    first, second = _Layer("gelu"), _Layer("gelu")
    second.dense = first.dense
    model = nn.ModuleList([first, second])
    hidden = torch.randn(5, 24)
    wanted = [first(hidden), second(hidden)]
    assert prepack(model) == 3
    assert first.dense is second.dense
    for layer, before in zip((first, second), wanted, strict=True):
        torch.testing.assert_close(layer(hidden), before, **_close(torch.float32))


@torch.inference_mode()
def test_subclasses_and_tiny_layers_are_left_alone() -> None:
    class Special(nn.Linear):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return gelu(super().forward(hidden))

    model = nn.ModuleDict({"special": Special(16, 16), "scores": nn.Linear(16, 2)})
    assert prepack(model) == 0


def test_it_shows_what_it_is() -> None:
    assert "in_features=16, out_features=24, activation=gelu" in repr(PackedLinear(nn.Linear(16, 24), ("gelu", "none")))


def test_only_for_cpus_and_dtypes_that_they_multiply() -> None:
    assert not can_prepack(torch.device("cuda"), torch.float32)
    assert not can_prepack(CPU, torch.float64)
