"""The tasks, by the names that the hub and transformers' pipelines use."""

from __future__ import annotations

from enum import StrEnum

from setpoint.errors import UsageError, unknown


class Task(StrEnum):
    """What a model is asked to do with each row."""

    TEXT_CLASSIFICATION = "text-classification"
    ZERO_SHOT_CLASSIFICATION = "zero-shot-classification"
    TOKEN_CLASSIFICATION = "token-classification"
    FEATURE_EXTRACTION = "feature-extraction"
    TEXT_RANKING = "text-ranking"


ALIASES = {
    "sentiment-analysis": Task.TEXT_CLASSIFICATION,
    "ner": Task.TOKEN_CLASSIFICATION,
    "sentence-similarity": Task.FEATURE_EXTRACTION,
    "embed": Task.FEATURE_EXTRACTION,
    "embeddings": Task.FEATURE_EXTRACTION,
    "rerank": Task.TEXT_RANKING,
    "reranking": Task.TEXT_RANKING,
}


def parse_task(name: str) -> Task:
    """Return the task for a name or alias; raises UsageError that names the nearest known task."""
    key = name.strip().lower().replace("_", "-")
    if key in ALIASES:
        return ALIASES[key]
    try:
        return Task(key)
    except ValueError:
        raise UsageError(unknown("task", name, [*Task, *ALIASES])) from None
