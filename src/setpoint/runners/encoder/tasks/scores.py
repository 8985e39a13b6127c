"""From logits to scores, as transformers' pipelines and sentence-transformers compute them: in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def softmax(logits: Array) -> Array:
    """Over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return result


def sigmoid(logits: Array) -> Array:
    """Of each number; very negative logits give 0 without an overflow."""
    with np.errstate(over="ignore"):
        result: Array = 1.0 / (1.0 + np.exp(-logits))
    return result


def identity(logits: Array) -> Array:
    """As they are."""
    return logits


FUNCTIONS = {"softmax": softmax, "sigmoid": sigmoid, "none": identity}


def best_first(scores: Array) -> list[int]:
    """Positions by score, highest first; equal scores keep their order."""
    return [int(position) for position in np.argsort(-scores, kind="stable")]
