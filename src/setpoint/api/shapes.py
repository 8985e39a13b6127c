"""Answers in the shapes of transformers' pipelines."""

from __future__ import annotations

from typing import Any

from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.domain.task import Task
from setpoint.runners.encoder.options import EncoderOptions


def to_answer(options: EncoderOptions, row: RowInput | RowFailure, result: RowResult) -> Any:
    """The answer to one row.

    text-classification       {label, score}, or a list of them if `top_k` or `multi_label` was given
    zero-shot-classification  {sequence, labels, scores}
    token-classification      a list of {entity_group, score, word, start, end}; {entity, score, index, word, start,
                              end} without aggregation
    feature-extraction        float32 [size]; with pooling "none" nested lists [1][tokens][size]
    text-ranking              {score} for a pair, {scores} for documents
    """
    values = result.values
    if options.task is Task.TEXT_CLASSIFICATION:
        return _labels(options, values)
    if options.task is Task.ZERO_SHOT_CLASSIFICATION:
        sequence = row.text if isinstance(row, RowInput) else None
        return {"sequence": sequence, "labels": values["labels"], "scores": values["scores"]}
    if options.task is Task.TOKEN_CLASSIFICATION:
        return [_token(entity) if "index" in entity else entity for entity in values["entities"]]
    if options.task is Task.FEATURE_EXTRACTION:
        return values["embedding"] if "embedding" in values else [values["token_embeddings"].tolist()]
    return dict(values)


def _labels(options: EncoderOptions, values: Any) -> Any:
    if "label" in values:
        return {"label": values["label"], "score": values["score"]}
    answers = [{"label": label, "score": score} for label, score in zip(values["labels"], values["scores"])]
    # A model of several labels gives them all to a table's columns; the pipeline gives the best unless asked.
    return answers[0] if options.top_k is None and options.multi_label is None else answers


def _token(entity: dict[str, Any]) -> dict[str, Any]:
    order = ("score", "index", "word", "start", "end")
    return {"entity": entity["entity_group"], **{name: entity[name] for name in order}}
