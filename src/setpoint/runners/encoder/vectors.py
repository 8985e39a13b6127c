"""What sentence-transformers' users do with embeddings: as tensors, cut, normalised, compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from setpoint.errors import ModelError, UsageError

Vectors = npt.NDArray[np.float32]
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def as_tensor(vectors: Vectors) -> Tensor:
    """A tensor over the same numbers, on the CPU."""
    return torch.from_numpy(vectors)


def reshape(vectors: Vectors, *, truncate_dim: int | None, normalize: bool) -> Vectors:
    """Cut [rows, size] to the first `truncate_dim` numbers, then scale to unit length."""
    if truncate_dim is not None:
        if not 1 <= truncate_dim <= vectors.shape[1]:
            raise UsageError(f"truncate_dim must be from 1 to {vectors.shape[1]}, not {truncate_dim}")
        vectors = vectors[:, :truncate_dim]
    if normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def similarity(first: Any, second: Any, name: str) -> Tensor:
    """Scores of all pairs, [rows of first, rows of second]; the larger, the more alike (distances are negative)."""
    a, b = _matrix(first), _matrix(second)
    if name == "cosine":
        return torch.nn.functional.normalize(a, dim=1) @ torch.nn.functional.normalize(b, dim=1).T
    if name == "dot":
        return a @ b.T
    if name == "euclidean":
        return -torch.cdist(a, b, p=2.0)
    if name == "manhattan":
        return -torch.cdist(a, b, p=1.0)
    raise ModelError(f"the model's folder asks for the similarity {name!r}; known: {', '.join(SIMILARITIES)}")


def _matrix(vectors: Any) -> Tensor:
    if isinstance(vectors, list | tuple):
        vectors = torch.stack([torch.as_tensor(vector) for vector in vectors])
    found = torch.as_tensor(vectors)
    return found.unsqueeze(0) if found.dim() == 1 else found
