"""How many operations a model needs, read off its layers."""

from __future__ import annotations

from torch import nn

from setpoint.domain.flops import EncoderFlops
from setpoint.errors import ModelError
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.torch_parts import body_of


def encoder_flops(model: EncoderModel) -> EncoderFlops:
    """Count the linear weights that every token meets: those of the layers, not of poolers and heads.

    Raises ModelError for a model whose config does not say how many layers and heads it has.
    """
    config = model.config
    layers = getattr(config, "num_hidden_layers", None)
    width = getattr(config, "hidden_size", None)
    if layers is None or width is None:
        raise ModelError(f"model {model.source!r}: its config does not say how many layers it has or how wide they are")
    heads = getattr(config, "num_attention_heads", None)
    head_size = getattr(config, "head_dim", None)
    body = body_of(model.network.model)
    weights: int = sum(
        module.weight.numel()
        for name, module in body.named_modules()
        if isinstance(module, nn.Linear) and "pooler" not in name.split(".")
    )
    attention_width = heads * head_size if heads and head_size else width
    return EncoderFlops(linear_weights=weights, num_layers=int(layers), attention_width=int(attention_width))
