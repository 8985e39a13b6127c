"""A private copy of a network, in an executor's dtype and device, split where packing ends: body, head, pooling.

The body (the transformer itself) computes the states of all tokens, in the dtype. The head (what the task's class adds
to the body) and the pooling are small and stay in float32. The head is the task's own code: it runs on a padded batch
and calls its body, which answers with states that were computed before.
"""

from __future__ import annotations

import contextvars
import copy
import itertools
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from setpoint.runners.encoder.model import EncoderNetwork

_states: contextvars.ContextVar[Tensor] = contextvars.ContextVar("setpoint_states")


def private_copy(network: EncoderNetwork, *, dtype: torch.dtype, device: torch.device) -> EncoderNetwork:
    """Copy a network's structure and configs; weights are shared where neither dtype nor device change.

    Only the body's weights take the dtype. Buffers keep theirs: tables of rotary angles lose too much in bfloat16.
    """
    in_body = {id(weight) for weight in body_of(network.model).parameters()}
    memo: dict[int, Any] = {}
    for tensor in itertools.chain(network.parameters(), network.buffers()):
        lower = id(tensor) in in_body and tensor.is_floating_point()
        moved = tensor.detach().to(device=device, dtype=dtype if lower else None)
        if isinstance(tensor, nn.Parameter):
            memo[id(tensor)] = nn.Parameter(moved, requires_grad=False)
        else:
            memo[id(tensor)] = moved
    return copy.deepcopy(network, memo).eval()


def padding_id(network: EncoderNetwork) -> int:
    """The id that fills padding: the config's, by which classifiers over decoders find the last token; else 0."""
    config: Any = network.model.config
    pad = getattr(config.get_text_config(), "pad_token_id", None)
    return 0 if pad is None else int(pad)


def body_of(model: nn.Module) -> nn.Module:
    """The transformer within a model with a task head; the model itself if it has none."""
    return cast("nn.Module", getattr(model, "base_model", model))


@dataclass
class _BodyOutput(ModelOutput):  # type: ignore[misc]
    """Every field that a task head may ask of its body."""

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    cache: Any = None
    hidden_states: Any = None
    attentions: Any = None

    def __getattr__(self, name: str) -> None:
        if name != "past_key_values":  # what `cache` was called before transformers 5.20
            raise AttributeError(name)


class _Recorded(nn.Module):
    """Stands in for the body inside a head: answers with the states that `Head` was given."""

    def __init__(self, pooler: nn.Module | None, activation: nn.Module | None) -> None:
        super().__init__()
        self.pooler = pooler
        self.activation = activation

    def forward(self, *_args: Any, **_kwargs: Any) -> _BodyOutput:
        states = _states.get()
        pooled = None
        if self.pooler is not None:
            # ALBERT's pooler is a bare linear layer over the first token; the others' take all states.
            pooled = self.pooler(states[:, 0]) if type(self.pooler) is nn.Linear else self.pooler(states)
            if self.activation is not None:
                pooled = self.activation(pooled)
        return _BodyOutput(last_hidden_state=states, pooler_output=pooled)


class Head:
    """What a task's class does after its body: (states [B, L, H], ids [B, L], mask [B, L]) to logits."""

    def __init__(self, model: nn.Module, recorded: nn.Module) -> None:
        # A second shell around the same modules, of which one is replaced: the model itself keeps its body.
        shell = copy.copy(model)
        shell._modules = dict(model._modules)
        shell._modules[model.base_model_prefix] = recorded  # type: ignore[index]
        self._shell = shell

    def __call__(self, states: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits [B, C] or [B, L, C], in the head's dtype."""
        token = _states.set(states)
        try:
            logits: Tensor = self._shell(input_ids=ids, attention_mask=mask).logits
        finally:
            _states.reset(token)
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A network in parts. `head` is None for a bare model, `pool` for anything but embeddings."""

    body: nn.Module
    head: Head | None
    pool: nn.Module | None


def split(network: EncoderNetwork) -> Parts:
    """Split a private copy. Takes the body's own pooler, which reads the first token of a row, over to the head."""
    model = network.model
    body: Any = body_of(model)
    pooler = getattr(body, "pooler", None)
    if isinstance(pooler, nn.Module):
        body.pooler = None
    else:
        pooler = None
    if body is model:
        return Parts(body=body, head=None, pool=network.pool)
    if pooler is not None:
        pooler.float()
    activation = getattr(body, "pooler_activation", None)
    return Parts(body=body, head=Head(model, _Recorded(pooler, activation).eval()), pool=network.pool)
