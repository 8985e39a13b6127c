"""Keywords as users of transformers and sentence-transformers write them, to our options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from setpoint.domain.task import Task
from setpoint.errors import UsageError, nearest
from setpoint.runners.encoder.options import ALL_LABELS, EncoderOptions

ALIASES = {
    "candidate_labels": "labels",
    "aggregation_strategy": "aggregation",
    "torch_dtype": "dtype",
    "normalize_embeddings": "normalize",
}
# What a call may say otherwise than the load did: everything else is part of the loaded model.
_OF_CALLS: Mapping[Task, tuple[str, ...]] = {
    Task.TEXT_CLASSIFICATION: ("top_k", "function_to_apply", "multi_label"),
    Task.ZERO_SHOT_CLASSIFICATION: ("labels", "hypothesis_template", "multi_label"),
    Task.TOKEN_CLASSIFICATION: ("aggregation", "ignore_labels"),
    Task.FEATURE_EXTRACTION: ("prompt", "prompt_name"),
    Task.TEXT_RANKING: ("prompt", "prompt_name", "function_to_apply"),
}


def load_options(task: Any, model: Any, keywords: Mapping[str, Any]) -> EncoderOptions:
    """Options of a load. Raises UsageError that names an unknown keyword's nearest."""
    return EncoderOptions.from_keywords({"task": task, "model": model, **_renamed(keywords)})


def call_changes(task: Task, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a call changes. Raises UsageError for one that a call can't, or that there is not."""
    changes = _renamed(keywords)
    allowed = _OF_CALLS[task]
    for name in changes:
        if name in allowed:
            continue
        if name in {field.name for field in dataclasses.fields(EncoderOptions)}:
            raise UsageError(f"{name} can't be changed by a call of {task}; give it to setpoint.load")
        known = (*allowed, "batch_size", "errors")
        raise UsageError(f"unknown keyword {name!r}{nearest(name, known)}; a call of {task} takes {', '.join(known)}")
    return changes


def _renamed(keywords: Mapping[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in keywords.items():
        name = ALIASES.get(key, key)
        if name in renamed or (name != key and name in keywords):
            raise UsageError(f"{key} and {name} are the same; give one of them")
        renamed[name] = _value(name, value)
    return renamed


def _value(name: str, value: Any) -> Any:
    if name == "top_k" and value is None:
        return ALL_LABELS  # as in transformers: None asks for every label
    if name == "device" and isinstance(value, int) and not isinstance(value, bool):
        return "cpu" if value < 0 else f"cuda:{value}"
    if name == "device" and value is not None:
        return str(value)
    if name == "dtype":
        return str(value).removeprefix("torch.")
    return value
