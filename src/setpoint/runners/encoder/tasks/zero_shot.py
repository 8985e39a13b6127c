"""zero-shot-classification: a text and candidate labels to the labels with their scores, best first.

Each label becomes a hypothesis that follows the text in a sequence of its own, so that texts and labels are batched
together. Scores are the pipeline's: the entailment logits of a row's labels against each other, or for `multi_label`
entailment against contradiction label by label. The text is cut, never the hypothesis. Windows are the same for all
labels of a row; its scores are the mean of the windows' scores, weighted by tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.domain.truncation import Truncation
from setpoint.runners.base import EncodedRow, ResultField
from setpoint.runners.encoder.tasks.base import Array, Context, each_row, encoded, refuse_extras, weighted_mean
from setpoint.runners.encoder.tasks.scores import best_first, softmax
from setpoint.runners.encoder.tasks.text_classification import LABELS_FIELDS
from setpoint.runners.encoder.tokens import Content


class ZeroShotClassification:
    """Coder of zero-shot-classification."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._template = context.options.hypothesis_template
        names = [label.lower() for label in context.model.labels]
        self._entailment = next(index for index, name in enumerate(names) if name.startswith("entail"))
        # Which of the others counts as contradiction is the pipeline's convention.
        self._contradiction = -1 if self._entailment == 0 else 0

    @property
    def fields(self) -> tuple[ResultField, ...]:
        """All labels with their scores."""
        return LABELS_FIELDS

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize each text once, and each hypothesis once however many rows it goes to."""
        failures = refuse_extras(rows, self._context.model.task, pair=False, candidates=True)
        labels = [self._labels(row) for row in rows]
        failures |= {number: found for number, found in enumerate(labels) if isinstance(found, RowFailure)}
        contents, bad = self._context.tokenize_texts((number, "text", row.text) for number, row in enumerate(rows))
        failures = bad | failures
        hypotheses = self._tokenize_hypotheses([found for found in labels if not isinstance(found, RowFailure)])

        def encode(number: int) -> EncodedRow | RowFailure:
            content, found = contents[number], labels[number]
            assert content is not None
            assert not isinstance(found, RowFailure)
            return self._fit(content, found, [hypotheses[label] for label in found])

        return each_row(rows, failures, encode)

    def decode(self, row: EncodedRow, outputs: Sequence[Array]) -> RowResult:
        """Scores of a row's labels; outputs are logits [classes] of each sequence."""
        labels: tuple[str, ...] = row.extra
        num_labels = len(labels)
        windows = [np.stack(outputs[i : i + num_labels]) for i in range(0, len(outputs), num_labels)]
        weights = [len(part) for part in row.sequences[::num_labels]]
        scores = weighted_mean([self._scores(logits) for logits in windows], weights)
        order = best_first(scores)
        values = {"labels": [labels[i] for i in order], "scores": [float(scores[i]) for i in order]}
        return RowResult(values=values, num_tokens=row.num_tokens, truncated_tokens=row.truncated_tokens)

    def _scores(self, logits: Array) -> Array:
        """[labels, classes] to [labels]."""
        if self._context.multi_label or len(logits) == 1:
            against: Array = softmax(logits[:, [self._contradiction, self._entailment]])[:, 1]
            return against
        return softmax(logits[:, self._entailment])

    def _labels(self, row: RowInput) -> tuple[str, ...] | RowFailure:
        labels = row.candidates if row.candidates is not None else self._context.options.labels
        if not labels:
            return RowFailure(reason=Reason.MISSING_TEXT, detail="no candidate labels")
        for position, label in enumerate(labels, start=1):
            if not isinstance(label, str) or not label.strip():
                return RowFailure(reason=Reason.NOT_TEXT, detail=f"candidate label {position} is {label!r:.40}")
            if not label.isascii() and any("\ud800" <= character <= "\udfff" for character in label):
                return RowFailure(
                    reason=Reason.INVALID_UNICODE, detail=f"candidate label {position} has a lone surrogate"
                )
        return tuple(labels)

    def _tokenize_hypotheses(self, of_rows: Sequence[tuple[str, ...]]) -> dict[str, Content]:
        labels = list(dict.fromkeys(label for found in of_rows for label in found))
        texts = [self._template.format(label) for label in labels]
        return dict(zip(labels, self._context.tokenizer.tokenize(texts), strict=True))

    def _fit(self, text: Content, labels: tuple[str, ...], hypotheses: Sequence[Content]) -> EncodedRow | RowFailure:
        tokenizer, policy = self._context.tokenizer, self._context.policy
        rooms = [tokenizer.max_length - tokenizer.double.num_special - len(hypothesis) for hypothesis in hypotheses]
        if min(rooms) < 1:
            longest = max(map(len, hypotheses))
            return RowFailure(
                reason=Reason.TOO_LONG, detail=f"a hypothesis of {longest} tokens leaves no room for text"
            )
        for hypothesis in hypotheses:
            if (outside := self._context.outside("a hypothesis", hypothesis.ids)) is not None:
                return outside
        if policy.truncation is Truncation.WINDOW:  # the same windows for every label
            rooms = [min(rooms)] * len(rooms)
        fits = [fit for room in rooms if (fit := policy.fit(len(text), room)) is not None]
        if len(fits) < len(rooms):
            return self._context.too_long(len(text) + tokenizer.max_length - min(rooms))
        num_windows = len(fits[0].spans)
        sequences = [
            tokenizer.join(text.ids[slice(*fit.spans[window])], hypothesis.ids)
            for window in range(num_windows)
            for fit, hypothesis in zip(fits, hypotheses, strict=True)
        ]
        truncated_tokens = sum(fit.truncated_tokens for fit in fits)
        return encoded(sequences, truncated_tokens=truncated_tokens, extra=labels)
