"""text-classification: one text or a pair to a label, or to several with their scores.

Columns: `label`, `score`; or `labels`, `scores` (best first) for several labels (`top_k`, `multi_label`). The function
that makes scores of logits is the pipeline's choice: sigmoid for multi-label models and single labels, softmax else,
none for regression. Pairs are cut longest first, as tokenizers do. Windows go over the first text, the second (at most
half of the room) is in each; a row's scores are the mean of its windows' scores, weighted by tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.runners.base import EncodedRow, FieldKind, ResultField
from setpoint.runners.encoder.options import ALL_LABELS, EncoderOptions
from setpoint.runners.encoder.tasks.base import (
    Array,
    Context,
    each_row,
    encoded,
    fit_pair,
    refuse_extras,
    weighted_mean,
)
from setpoint.runners.encoder.tasks.scores import FUNCTIONS, best_first
from setpoint.runners.encoder.tokens import Content

LABEL_FIELDS = (ResultField(name="label", kind=FieldKind.STRING), ResultField(name="score", kind=FieldKind.FLOAT))
LABELS_FIELDS = (ResultField(name="labels", kind=FieldKind.STRINGS), ResultField(name="scores", kind=FieldKind.FLOATS))


class TextClassification:
    """Coder of text-classification."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._labels = context.model.labels
        self._function = FUNCTIONS[_function(context)]
        self._top_k = _top_k(context)

    @property
    def fields(self) -> tuple[ResultField, ...]:
        """One label, or several."""
        return LABEL_FIELDS if self._top_k is None else LABELS_FIELDS

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize texts and pairs."""
        failures = refuse_extras(rows, self._context.model.task, pair=True, candidates=False)
        places = [(number, "text", row.text) for number, row in enumerate(rows)]
        places += [(number, "text_pair", row.pair) for number, row in enumerate(rows) if row.has_pair]
        contents, bad = self._context.tokenize_texts(places)
        failures |= {number: failure for number, failure in bad.items() if number not in failures}
        seconds = {number: content for (number, _, _), content in zip(places[len(rows) :], contents[len(rows) :])}

        def encode(number: int) -> EncodedRow | RowFailure:
            first, second = contents[number], seconds.get(number)
            assert first is not None
            return _fit_text(self._context, first) if second is None else _fit_texts(self._context, first, second)

        return each_row(rows, failures, encode)

    def decode(self, row: EncodedRow, outputs: Sequence[Array]) -> RowResult:
        """Scores of a row; outputs are logits [labels] of each window."""
        scores = weighted_mean([self._function(logits) for logits in outputs], [len(part) for part in row.sequences])
        if self._top_k is None:
            best = int(scores.argmax())
            values = {"label": self._labels[best], "score": float(scores[best])}
        else:
            order = best_first(scores)[: self._top_k]
            values = {"labels": [self._labels[i] for i in order], "scores": [float(scores[i]) for i in order]}
        return RowResult(values=values, num_tokens=row.num_tokens, truncated_tokens=row.truncated_tokens)


def _fit_text(context: Context, content: Content) -> EncodedRow | RowFailure:
    """One text as one sequence, or as windows."""
    tokenizer = context.tokenizer
    room = tokenizer.max_length - tokenizer.single.num_special
    fit = context.policy.fit(len(content), room)
    if fit is None:
        return context.too_long(len(content) + tokenizer.single.num_special)
    sequences = [tokenizer.join(content.ids[start:stop]) for start, stop in fit.spans]
    return encoded(sequences, truncated_tokens=fit.truncated_tokens, extra=fit.spans)


def _fit_texts(context: Context, first: Content, second: Content) -> EncodedRow | RowFailure:
    """Two texts as one sequence, or as windows over the first."""
    fit = fit_pair(context, len(first), len(second), over_second=False)
    if isinstance(fit, RowFailure):
        return fit
    rest = second.ids[slice(*fit.other)]
    sequences = [context.tokenizer.join(first.ids[start:stop], rest) for start, stop in fit.spans]
    return encoded(sequences, truncated_tokens=fit.truncated_tokens)


def _function(context: Context) -> str:
    """The pipeline's rule, unless the user says otherwise."""
    options, config = context.options, context.model.config
    if options.function_to_apply is not None:
        return options.function_to_apply
    problem = getattr(config, "problem_type", None)
    if options.multi_label is None and problem == "regression":
        return "none"
    return "sigmoid" if context.multi_label or len(context.model.labels) == 1 else "softmax"


def _top_k(context: Context) -> int | None:
    """How many labels a row gets as lists, or None for the best alone."""
    options: EncoderOptions = context.options
    if options.top_k is None:
        return len(context.model.labels) if context.multi_label else None
    if options.top_k == ALL_LABELS:
        return len(context.model.labels)
    return int(options.top_k)
