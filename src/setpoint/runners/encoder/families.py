"""What each family of models needs before it can read packed rows: positions, and attention that can be told of them.

Most families call attention through transformers' registry and take position ids; nothing of theirs is touched. MPNet
computes attention itself, with a position bias over the whole row, and gets those two methods replaced on our private
copy of the model. Families that are not listed are tried by the same rules: the check at load decides.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from setpoint.runners.base import IntArray
from setpoint.runners.encoder.packed_attention import PACKED, attend, register
from setpoint.runners.encoder.packing import current_packing

# Rotary embeddings whose angles change with the longest sequence of the batch, so that company would matter.
_BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """How a family numbers the tokens of one sequence.

    `padding_id` is None for 0, 1, 2, ...; otherwise numbers begin at padding_id + 1 and a padding token within the
    text takes the number padding_id and counts for nothing, as in RoBERTa.
    """

    padding_id: int | None

    def of(self, ids: IntArray) -> npt.NDArray[np.int64]:
        """Position ids of a sequence, int64 [length]."""
        if self.padding_id is None:
            return np.arange(len(ids), dtype=np.int64)
        real = (ids != self.padding_id).astype(np.int64)
        numbers: npt.NDArray[np.int64] = np.cumsum(real) * real + self.padding_id
        return numbers


def unpackable(model: nn.Module) -> str | None:
    """Why a transformers model cannot read packed rows, or None if it may be tried. `model` may have a task head."""
    config: Any = model.config
    kind = config.model_type
    base: Any = getattr(model, "base_model", model)
    if "position_ids" not in inspect.signature(base.forward).parameters:
        return f"{kind} takes no position ids"
    if not (_is_mpnet(base) or getattr(base, "_supports_attention_backend", False)):
        return f"{kind} computes attention itself, outside of transformers' attention registry"
    if getattr(config, "is_encoder_decoder", False):
        return f"{kind} is an encoder-decoder"
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)}
    if kinds.intersection(_BATCH_DEPENDENT_ROPE):
        return f"the rotary positions of this {kind} depend on the longest sequence of a batch"
    return None


def positions_of(model: nn.Module) -> Positions:
    """How the model numbers positions: as RoBERTa if its embeddings count from their padding index, else from 0."""
    for module in model.modules():
        if hasattr(module, "create_position_ids_from_inputs_embeds"):
            padding: Any = module.padding_idx
            return Positions(padding_id=int(padding))
    return Positions(padding_id=None)


def prepare(model: nn.Module) -> None:
    """Make a private copy of a model attend within the active packing. Changes the copy only."""
    register()
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation = PACKED
    base: Any = getattr(model, "base_model", model)
    if _is_mpnet(base):
        _prepare_mpnet(base)


def _is_mpnet(base: nn.Module) -> bool:
    from transformers import MPNetModel

    return isinstance(base, MPNetModel)


def _prepare_mpnet(base: Any) -> None:
    encoder = base.encoder
    of_one = encoder.compute_position_bias

    def compute_position_bias(_self: Any, hidden: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        """The bias of one sequence of the greatest length: relative, so that shorter ones are its corner."""
        bias: Tensor = of_one(hidden[:, : current_packing().longest])
        return bias

    encoder.compute_position_bias = types.MethodType(compute_position_bias, encoder)
    for layer in encoder.layer:
        attention = layer.attention.attn
        attention.forward = types.MethodType(_mpnet_attention, attention)


def _mpnet_attention(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **_kwargs: Any,
) -> tuple[Tensor]:
    """MPNetSelfAttention over a packed row [1, T, H]."""
    if attention_mask is not None or output_attentions:
        raise ValueError("a packed MPNet takes no attention mask and returns no attentions")
    shape = (*hidden_states.shape[:-1], -1, self.attention_head_size)
    query, key, value = (part(hidden_states).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
    states = attend(query, key, value, scale=None, bias=position_bias)
    return (self.o(torch.flatten(states, 2)),)
