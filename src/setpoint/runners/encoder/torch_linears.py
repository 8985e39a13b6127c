"""Linear layers that read prepacked weights, with the activation that follows them fused, on x86 CPUs.

torch packs the weight of an `nn.Linear` anew at every call in bfloat16, and uses another library (MKL) in float32.
oneDNN with weights packed once is faster in both (docs/log.md: by 14% each on a CPU with AVX-512-BF16, and by as much
again where the activation is fused, since its own pass over memory goes away). Which layers are replaced depends on
the machine's kind and the dtype only, never on a timing, so that numbers are the same from run to run.
"""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

_SMALLEST = 8  # features; below that there is nothing to gain

# Pairs of attributes of one module: a linear layer and the activation that is applied to its output and nothing else.
_FUSED = (
    ("dense", "intermediate_act_fn"),  # BERT and its kin
    ("lin1", "activation"),  # DistilBERT
    ("ffn", "activation"),  # ALBERT
    ("gate_proj", "act_fn"),  # gated layers of Llama, Qwen3, Gemma, Nomic
)

# Class names of activations to oneDNN's (name, algorithm).
_ACTIVATIONS = {
    "GELUActivation": ("gelu", "none"),
    "GELUTanh": ("gelu", "tanh"),
    "NewGELUActivation": ("gelu", "tanh"),
    "SiLUActivation": ("swish", ""),
    "SiLU": ("swish", ""),
    "ReLU": ("relu", ""),
}


class PackedLinear(nn.Module):
    """`activation(x @ weight.T + bias)` by oneDNN. Inference only, on the CPU, in the weight's dtype."""

    def __init__(self, linear: nn.Linear, activation: tuple[str, str] = ("none", "")) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.activation, self.algorithm = activation
        with torch.no_grad():
            # An opaque oneDNN tensor: kept out of the module's parameters, which others iterate over.
            self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
            self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            hidden, self._packed, self._bias, self.activation, [], self.algorithm
        )
        return out

    def extra_repr(self) -> str:
        """As nn.Linear's, with the activation."""
        return f"in_features={self.in_features}, out_features={self.out_features}, activation={self.activation}"


def can_prepack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN's packed weights are to be used: x86, and a dtype that the CPU multiplies."""
    if device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    backend: Any = torch.backends.mkldnn
    if not backend.is_available() or not backend.enabled:
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def prepack(model: nn.Module) -> int:
    """Replace the linear layers of a private copy of a model in place. Returns how many."""
    replaced: dict[int, PackedLinear] = {}  # layers that are shared stay shared
    uses = Counter(id(child) for module in model.modules() for child in module.children())
    for module in list(model.modules()):
        for name, activation in _FUSED:
            linear, follows = getattr(module, name, None), getattr(module, activation, None)
            kind = _ACTIVATIONS.get(type(follows).__name__)
            if kind is not None and _is_plain(linear) and uses[id(linear)] == 1:
                replaced[id(linear)] = PackedLinear(linear, kind)
                setattr(module, name, replaced[id(linear)])
                setattr(module, activation, nn.Identity())
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if _is_plain(child):
                if id(child) not in replaced:
                    replaced[id(child)] = PackedLinear(child)
                setattr(module, name, replaced[id(child)])
    return len(replaced)


def _is_plain(linear: Any) -> TypeGuard[nn.Linear]:
    """An nn.Linear and not one of its subclasses, large enough to matter."""
    return type(linear) is nn.Linear and min(linear.in_features, linear.out_features) >= _SMALLEST
