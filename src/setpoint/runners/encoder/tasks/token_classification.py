"""token-classification: a text to its entities (`entities`), aggregated as transformers' pipeline does.

Offsets are characters of the text as it came. Windows are stitched together token by token before aggregating, so that
an entity across the border of two windows is one entity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.runners.base import EncodedRow, FieldKind, ResultField
from setpoint.runners.encoder.tasks.base import Array, Context, each_row, encoded, refuse_extras, stitch
from setpoint.runners.encoder.tasks.entities import EntityReader, Tokens
from setpoint.runners.encoder.tasks.scores import softmax
from setpoint.runners.encoder.tokens import Content


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Extra:
    """The text, its tokens as far as they were read, and the windows over them."""

    text: str
    content: Content
    spans: tuple[tuple[int, int], ...]


class TokenClassification:
    """Coder of token-classification."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reader = EntityReader(
            tokenizer=context.model.tokenizer,
            labels=context.model.labels,
            aggregation=context.options.aggregation,
            ignored=frozenset(context.options.ignore_labels),
        )

    @property
    def fields(self) -> tuple[ResultField, ...]:
        """Entities."""
        return (ResultField(name="entities", kind=FieldKind.ENTITIES),)

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize texts and keep where each token stands."""
        failures = refuse_extras(rows, self._context.model.task, pair=False, candidates=False)
        texts = ((number, "text", row.text) for number, row in enumerate(rows))
        contents, bad = self._context.tokenize_texts(texts, offsets=True)

        def encode(number: int) -> EncodedRow | RowFailure:
            content = contents[number]
            assert content is not None
            return self._fit(rows[number].text, content)

        return each_row(rows, bad | failures, encode)

    def decode(self, row: EncodedRow, outputs: Sequence[Array]) -> RowResult:
        """Entities of a row; outputs are logits [tokens, labels] of each window, special tokens included."""
        extra: _Extra = row.extra
        template = self._context.tokenizer.single
        before, after = len(template.prefix), len(template.suffix)
        scores = softmax(stitch([logits[before : len(logits) - after] for logits in outputs], extra.spans))
        assert extra.content.offsets is not None
        tokens = Tokens(
            text=extra.text,
            ids=extra.content.ids.tolist(),
            offsets=extra.content.offsets.tolist(),
            scores=scores,
            first_index=before + extra.spans[0][0],
        )
        values: dict[str, Any] = {"entities": self._reader.read(tokens)}
        return RowResult(values=values, num_tokens=row.num_tokens, truncated_tokens=row.truncated_tokens)

    def _fit(self, text: str, content: Content) -> EncodedRow | RowFailure:
        tokenizer = self._context.tokenizer
        fit = self._context.policy.fit(len(content), tokenizer.max_length - tokenizer.single.num_special)
        if fit is None:
            return self._context.too_long(len(content) + tokenizer.single.num_special)
        sequences = [tokenizer.join(content.ids[start:stop]) for start, stop in fit.spans]
        read = content.part(fit.spans[0][0], fit.spans[-1][1])
        spans = tuple((start - fit.spans[0][0], stop - fit.spans[0][0]) for start, stop in fit.spans)
        extra = _Extra(text=text, content=read, spans=spans)
        return encoded(sequences, truncated_tokens=fit.truncated_tokens, extra=extra)
