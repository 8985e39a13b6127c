"""feature-extraction: a text to one vector (`embedding`), or with pooling "none" to a state per token
(`token_embeddings`, special tokens included).

A prompt stands before the text and is never cut. Windows are combined by their mean, weighted by tokens; where the
model's vectors have unit length, so has the mean. Token states of windows are stitched together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.domain.truncation import Truncation
from setpoint.runners.base import EncodedRow, FieldKind, ResultField
from setpoint.runners.encoder.model import OutputKind
from setpoint.runners.encoder.pooling import EmbeddingHead
from setpoint.runners.encoder.tasks.base import (
    Array,
    Context,
    each_row,
    encoded,
    refuse_extras,
    stitch,
    weighted_mean,
)
from setpoint.runners.encoder.tokens import Content


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extra:
    """The windows of a row as ranges of its tokens, and how many tokens of prompt stand in each."""

    spans: tuple[tuple[int, int], ...]
    num_prompt: int


class FeatureExtraction:
    """Coder of feature-extraction. `prompt_name` and `prompt` replace the prompt of the options."""

    def __init__(self, context: Context, *, prompt_name: str | None = None, prompt: str | None = None) -> None:
        self._context = context
        options = context.options
        if prompt_name is None and prompt is None:
            prompt_name, prompt = options.prompt_name, options.prompt
        self._prompt = context.prompt(name=prompt_name, text=prompt)
        self._states = context.model.output is OutputKind.TOKEN_STATES

    @property
    def fields(self) -> tuple[ResultField, ...]:
        """A vector, or a vector a token."""
        size = self._context.model.embedding_size
        if self._states:
            return (ResultField(name="token_embeddings", kind=FieldKind.MATRIX, size=size),)
        return (ResultField(name="embedding", kind=FieldKind.VECTOR, size=size),)

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize texts with the prompt before them."""
        failures = refuse_extras(rows, self._context.model.task, pair=False, candidates=False)
        texts = ((number, "text", row.text) for number, row in enumerate(rows))
        contents, bad = self._context.tokenize_texts(texts, prompt=self._prompt)

        def encode(number: int) -> EncodedRow | RowFailure:
            content = contents[number]
            assert content is not None
            return self._fit(content)

        return each_row(rows, bad | failures, encode)

    def decode(self, row: EncodedRow, outputs: Sequence[Array]) -> RowResult:
        """Vectors [size] of each window, or states [tokens, size]."""
        if self._states:
            values: dict[str, Any] = {"token_embeddings": self._stitch(row.extra, outputs)}
        else:
            values = {"embedding": self._mean(row, outputs)}
        return RowResult(values=values, num_tokens=row.num_tokens, truncated_tokens=row.truncated_tokens)

    def _fit(self, content: Content) -> EncodedRow | RowFailure:
        tokenizer, policy = self._context.tokenizer, self._context.policy
        room = tokenizer.max_length - tokenizer.single.num_special
        in_each = self._prompt.num_tokens if len(content) > room and policy.truncation is Truncation.WINDOW else 0
        if in_each >= room:
            return RowFailure(reason=Reason.TOO_LONG, detail=f"a prompt of {in_each} tokens leaves no room for text")
        fit = policy.fit(len(content) - in_each, room - in_each)
        if fit is None:
            return self._context.too_long(len(content) + tokenizer.single.num_special)
        prompt, text = content.ids[:in_each], content.ids[in_each:]
        sequences = [tokenizer.join(np.concatenate([prompt, text[start:stop]])) for start, stop in fit.spans]
        extra = _Extra(spans=fit.spans, num_prompt=in_each)
        return encoded(sequences, truncated_tokens=fit.truncated_tokens, extra=extra)

    def _mean(self, row: EncodedRow, outputs: Sequence[Array]) -> Array:
        vector = weighted_mean(outputs, [len(part) for part in row.sequences])
        if len(outputs) == 1 or not self._gives_unit_length():
            return vector
        return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)

    def _gives_unit_length(self) -> bool:
        head = self._context.model.network.pool
        return isinstance(head, EmbeddingHead) and head.gives_unit_length

    def _stitch(self, extra: _Extra, outputs: Sequence[Array]) -> Array:
        """States of the whole text: special tokens and prompt from the outer windows, the rest stitched together."""
        if len(outputs) == 1:
            return outputs[0]
        template = self._context.tokenizer.single
        before, after = len(template.prefix) + extra.num_prompt, len(template.suffix)
        text = stitch([states[before : len(states) - after] for states in outputs], extra.spans)
        return np.concatenate([outputs[0][:before], text, outputs[-1][len(outputs[-1]) - after :]])
