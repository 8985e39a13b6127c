"""Masks and attention as they are traced into a graph: plain tensor operations, nothing decided by the example.

transformers' own masks are left out when an example needs none, and let a row see nothing at all (padding beyond a
sliding window), which becomes NaN in a graph. Here a mask is always built, and what must not be seen gets a score so
low that it weighs nothing, but stays finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from setpoint.runners.encoder.packed_attention import UnsupportedAttention, refuse_unknown

TRACED = "setpoint_traced"
_UNSEEN = -1e9  # a score that exp() takes to zero beside any other, and bfloat16 can hold


@contextmanager
def traceable(model: nn.Module) -> Iterator[None]:
    """Let a model attend by `traced_attention` meanwhile, where its attention goes through transformers' registry."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(TRACED, traced_attention)
    AttentionMaskInterface.register(TRACED, traced_mask)
    base: Any = getattr(model, "base_model", model)
    configs: dict[int, Any] = {}
    if getattr(base, "_supports_attention_backend", False):
        configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    try:
        for config, _ in before:
            config._attn_implementation = TRACED
        yield
    finally:
        for config, name in before:
            config._attn_implementation = name


def traced_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor],
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **_settings: Any,
) -> Tensor:
    """Mask function as transformers calls it: what is added to the scores, float32 [B, 1, Q, K].

    `mask_function` (batch, head, query, key) -> bool must work on index tensors that broadcast, as all of
    transformers' own do.
    """
    queries = (torch.arange(q_length, device=device) + q_offset)[None, None, :, None]
    keys = (torch.arange(kv_length, device=device) + kv_offset)[None, None, None, :]
    batches = torch.arange(batch_size, device=device)[:, None, None, None]
    heads = torch.arange(1, device=device)[None, :, None, None]
    seen = mask_function(batches, heads, queries, keys)
    if attention_mask is not None:
        seen = seen & attention_mask.bool()[:, None, None, :]
    unseen = (~seen).float() * _UNSEEN
    return unseen.expand(batch_size, -1, q_length, kv_length)


def traced_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function as transformers calls it: query [B, Hq, L, D], key and value [B, Hkv, L, D], to [B, L, Hq, D].

    Windows and causality lie in the mask. Raises UnsupportedAttention for dropout, for a missing mask, and for
    arguments that are not known to leave the numbers alone.
    """
    name = type(module).__name__
    refuse_unknown(name, kwargs)
    if dropout:
        raise UnsupportedAttention(f"{name} asks for dropout {dropout}; the model is not in eval mode")
    if attention_mask is None:
        raise UnsupportedAttention(f"{name} attends without a mask")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask.to(query.dtype), scale=scaling)
    return out.transpose(1, 2).contiguous(), None
