"""A loaded encoder: the transformers model, its tokenizer, and what its folder says about how to use both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from setpoint.domain.task import Task


class OutputKind(StrEnum):
    """What the network gives for a padded batch of B sequences of at most L tokens, and an executor for each of them.

    executor's array for a sequence of n tokens: EMBEDDING [D], SEQUENCE_LOGITS [C], TOKEN_LOGITS [n, C],
    TOKEN_STATES [n, H].
    """

    EMBEDDING = "embedding"  # [B, D], pooled (and projected, normalised, cut to truncate_dim)
    SEQUENCE_LOGITS = "sequence_logits"  # [B, C]
    TOKEN_LOGITS = "token_logits"  # [B, L, C]
    TOKEN_STATES = "token_states"  # [B, L, H]


class EncoderNetwork(nn.Module):
    """The model with what follows it, as one module over a padded batch: the reference all executors must match.

    `model` is the unmodified transformers model (with its task head where the task has one, the bare model for
    embeddings and token states); `pool` turns (last hidden state [B, L, H], mask [B, L]) into embeddings [B, D] and is
    None otherwise.
    """

    def __init__(self, model: nn.Module, *, output: OutputKind, pool: nn.Module | None) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.pool = pool

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Padded forward. All inputs int64 [B, L]; padding on the right, mask 1 for tokens and 0 for padding."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        out = self.model(**inputs)
        if self.output in (OutputKind.SEQUENCE_LOGITS, OutputKind.TOKEN_LOGITS):
            logits: Tensor = out.logits
            return logits
        hidden: Tensor = out.last_hidden_state
        if self.pool is None:
            return hidden
        pooled: Tensor = self.pool(hidden, attention_mask)
        return pooled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncoderModel:
    """A model ready to be given to an executor. `network` is in float32 on the CPU, in eval mode."""

    source: str  # as the user wrote it
    folder: Path  # where its files are
    task: Task
    output: OutputKind
    network: EncoderNetwork
    tokenizer: Any  # a fast transformers tokenizer
    config: Any  # the transformers config
    max_length: int  # longest sequence, special tokens included
    uses_type_ids: bool
    labels: tuple[str, ...] = ()  # id2label in order; empty for embeddings
    multi_label: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)  # sentence-transformers prompts by name
    default_prompt: str | None = None
    embedding_size: int | None = None
    origin: str = "folder"  # from where the files came: "folder", "hub cache", "installed package ...", "hub"
    digest: str = ""  # of the weights, config and tokenizer files

    @property
    def causal(self) -> bool:
        """Whether tokens see only what stands before them (decoder embedders)."""
        return bool(getattr(self.config, "is_causal", False) or getattr(self.config, "is_decoder", False))
