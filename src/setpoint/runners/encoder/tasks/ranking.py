"""text-ranking: how well a text answers a query, by a cross-encoder: `score` of a pair, or `scores` of a query's
documents in the order of the documents.

The activation is the one that sentence-transformers' CrossEncoder would use: the folder's, else a sigmoid. Pairs are
cut longest first. Windows go over the document, and the best one's score counts: a document answers a query if any
part of it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.errors import ModelError
from setpoint.runners.base import EncodedRow, FieldKind, ResultField, TokenSequence
from setpoint.runners.encoder.sentence_folder import read_sentence_folder
from setpoint.runners.encoder.tasks.base import Array, Context, each_row, encoded, fit_pair
from setpoint.runners.encoder.tasks.scores import FUNCTIONS
from setpoint.runners.encoder.tokens import Content

SCORE_FIELD = ResultField(name="score", kind=FieldKind.FLOAT)
SCORES_FIELD = ResultField(name="scores", kind=FieldKind.FLOATS)
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extra:
    """How many windows each document became, and whether the row was one pair."""

    num_windows: tuple[int, ...]
    is_pair: bool


class TextRanking:
    """Coder of text-ranking."""

    def __init__(self, context: Context) -> None:
        self._context = context
        options = context.options
        self._function = FUNCTIONS[options.function_to_apply or _activation(context)]
        self._prompt = context.prompt(name=options.prompt_name, text=options.prompt)

    @property
    def fields(self) -> tuple[ResultField, ...]:
        """A score, or a score for each document."""
        return (SCORES_FIELD if self._context.options.documents else SCORE_FIELD,)

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize each query once, and its documents."""
        failures = {number: failure for number, row in enumerate(rows) if (failure := _incomplete(row)) is not None}
        queries, bad = self._context.tokenize_texts(
            ((number, "the query", row.text) for number, row in enumerate(rows)), prompt=self._prompt
        )
        places = [(number, *named) for number, row in enumerate(rows) for named in _documents(row)]
        contents, bad_documents = self._context.tokenize_texts(places)
        failures = bad_documents | bad | failures
        documents: list[list[Content | None]] = [[] for _ in rows]
        for (number, _, _), content in zip(places, contents, strict=True):
            documents[number].append(content)

        def encode(number: int) -> EncodedRow | RowFailure:
            query, found = queries[number], [content for content in documents[number] if content is not None]
            assert query is not None
            return self._fit(query, found, is_pair=rows[number].candidates is None)

        return each_row(rows, failures, encode)

    def decode(self, row: EncodedRow, outputs: Sequence[Array]) -> RowResult:
        """Scores; outputs are logits [1] of each sequence."""
        extra: _Extra = row.extra
        scores = []
        begin = 0
        for num_windows in extra.num_windows:
            best = max(outputs[begin : begin + num_windows], key=lambda logits: float(logits[0]))
            scores.append(float(self._function(best)[0]))
            begin += num_windows
        values: dict[str, Any] = {"score": scores[0]} if extra.is_pair else {"scores": scores}
        return RowResult(values=values, num_tokens=row.num_tokens, truncated_tokens=row.truncated_tokens)

    def _fit(self, query: Content, documents: Sequence[Content], *, is_pair: bool) -> EncodedRow | RowFailure:
        sequences: list[TokenSequence] = []
        num_windows: list[int] = []
        truncated_tokens = 0
        for document in documents:
            fit = fit_pair(self._context, len(query), len(document), over_second=True)
            if isinstance(fit, RowFailure):
                return fit
            asked = query.ids[slice(*fit.other)]
            sequences += [self._context.tokenizer.join(asked, document.ids[start:stop]) for start, stop in fit.spans]
            num_windows.append(len(fit.spans))
            truncated_tokens += fit.truncated_tokens
        extra = _Extra(num_windows=tuple(num_windows), is_pair=is_pair)
        return encoded(sequences, truncated_tokens=truncated_tokens, extra=extra)


def _incomplete(row: RowInput) -> RowFailure | None:
    if row.candidates is None and not row.has_pair:
        return RowFailure(reason=Reason.INVALID_RECORD, detail="a query needs a document (a pair) or documents")
    if row.candidates is not None and len(row.candidates) == 0:
        return RowFailure(reason=Reason.MISSING_TEXT, detail="no documents")
    return None


def _documents(row: RowInput) -> list[tuple[str, Any]]:
    if row.candidates is None:
        return [("the document", row.pair)] if row.has_pair else []
    return [(f"document {position}", document) for position, document in enumerate(row.candidates, start=1)]


def _activation(context: Context) -> str:
    """What CrossEncoder would apply: newer folders say so in their own file, older ones in the model's config."""
    config = context.model.config
    nested = getattr(config, "sentence_transformers", None) or {}
    named = (
        read_sentence_folder(context.model.folder).activation
        or nested.get("activation_fn")
        or getattr(config, "sbert_ce_default_activation_function", None)
    )
    if named is None:
        return "sigmoid"
    kind = str(named).rpartition(".")[2]
    if not str(named).startswith("torch.nn.") or kind not in _ACTIVATIONS:
        raise ModelError(f"the model's activation {named!r} is not supported; choose one with function_to_apply")
    return _ACTIVATIONS[kind]
