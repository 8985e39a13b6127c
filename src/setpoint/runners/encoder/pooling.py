"""From token states to one vector a sequence, in plain tensor operations so that any converter can trace it.

The numbers are those of sentence-transformers: pooling, then Dense and Normalize in the folder's order, then the cut to
`truncate_dim`, then unit length where the caller asks for it. A folder's own Normalize comes before the cut, so a cut
vector is in general shorter than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from setpoint.errors import ModelError, UsageError
from setpoint.runners.encoder.sentence_folder import DenseSpec, NormalizeSpec, PoolingSpec, Step


class Pooling(nn.Module):
    """(hidden [B, L, H], mask [B, L]) to [B, H x number of modes], in float32. Padding is on the right.

    The first `prompt_length` tokens are left out of the pooling (not of the attention), as models trained without
    their prompt want it.
    """

    def __init__(self, modes: Sequence[str], *, prompt_length: int = 0) -> None:
        super().__init__()
        self.modes = tuple(modes)
        self.prompt_length = prompt_length

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool; a sequence of which nothing is left gives zeros (cls: its first token, max: minus infinity)."""
        hidden = hidden.float()
        positions = mask.cumsum(1) * mask  # 1, 2, ... for tokens, 0 for padding
        kept = (positions > self.prompt_length).float()  # [B, L]
        parts = [self._pool(mode, hidden, kept, positions) for mode in self.modes]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _pool(self, mode: str, hidden: Tensor, kept: Tensor, positions: Tensor) -> Tensor:
        weights = kept.unsqueeze(-1)  # [B, L, 1]
        if mode == "cls":
            return self._first(hidden, kept)
        if mode == "max":
            return hidden.masked_fill(weights == 0, float("-inf")).amax(dim=1)
        if mode == "lasttoken":
            last = positions.max(dim=1, keepdim=True).values
            return (hidden * ((positions == last) * kept).unsqueeze(-1)).sum(dim=1)
        if mode == "weightedmean":
            weights = weights * positions.unsqueeze(-1).float()
        total = (hidden * weights).sum(dim=1)
        count = weights.sum(dim=1).clamp(min=1e-9)
        return total / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)

    def _first(self, hidden: Tensor, kept: Tensor) -> Tensor:
        """The first token, or the first after the prompt where there is one."""
        if self.prompt_length == 0:
            return hidden[:, 0]
        first = kept.argmax(dim=1).view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
        return torch.gather(hidden, 1, first).squeeze(1)


class Dense(nn.Module):
    """A linear layer with its activation, optionally added to its input: [B, in] to [B, out]."""

    def __init__(self, spec: DenseSpec) -> None:
        super().__init__()
        self.linear = nn.Linear(spec.in_features, spec.out_features, bias=spec.bias)
        self.activation = _activation(spec)
        self.residual = spec.residual
        self.projection = (
            nn.Linear(spec.in_features, spec.out_features, bias=False)
            if spec.residual and spec.in_features != spec.out_features
            else None
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """Project, in the dtype of the weights; the result is float32."""
        vectors = vectors.to(self.linear.weight.dtype)
        out = self.activation(self.linear(vectors))
        if self.residual:
            out = out + (vectors if self.projection is None else self.projection(vectors))
        return cast(Tensor, out.float())


class Normalize(nn.Module):
    """[B, D] to unit length."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Scale; a zero vector stays zero."""
        return nn.functional.normalize(vectors, p=2.0, dim=-1)


class Cut(nn.Module):
    """[B, D] to its first `size` numbers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, vectors: Tensor) -> Tensor:
        """Cut."""
        return vectors[:, : self.size]


class EmbeddingHead(nn.Module):
    """Everything after the transformer: (hidden [B, L, H], mask [B, L]) to embeddings [B, D], float32."""

    def __init__(self, pooling: Pooling, steps: Sequence[nn.Module], *, size: int, include_prompt: bool = True) -> None:
        super().__init__()
        self.pooling = pooling
        self.steps = nn.ModuleList(steps)
        self.size = size
        self.include_prompt = include_prompt  # if not, the head is made for one prompt

    @property
    def gives_unit_length(self) -> bool:
        """Whether its vectors are normalised and not changed after that."""
        return len(self.steps) > 0 and isinstance(self.steps[-1], Normalize)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool and run the steps."""
        vectors: Tensor = self.pooling(hidden, mask)
        for step in self.steps:
            vectors = step(vectors)
        return vectors


def build_head(
    steps: Sequence[Step],
    *,
    hidden_size: int,
    pooling: str = "auto",
    normalize: bool | None = None,
    truncate_dim: int | None = None,
    prompt_length: int = 0,
) -> EmbeddingHead:
    """Build the head of an embedding model from its folder's steps and the user's wishes.

    Without steps: the mean, not normalised, as sentence-transformers does for a bare model. `pooling` other than
    "auto" replaces the folder's; `normalize=False` drops its Normalize, `True` normalises after everything else.
    `prompt_length` counts only where the folder says that prompts are not pooled.
    """
    spec = next((step for step in steps if isinstance(step, PoolingSpec)), PoolingSpec(modes=("mean",)))
    if sum(isinstance(step, PoolingSpec) for step in steps) > 1 or (steps and not isinstance(steps[0], PoolingSpec)):
        raise ModelError("modules.json must have exactly one Pooling, right after the Transformer")
    modes = spec.modes if pooling == "auto" else (pooling,)
    head = Pooling(modes, prompt_length=0 if spec.include_prompt else prompt_length)
    size = hidden_size * len(modes)
    built: list[nn.Module] = []
    for step in steps:
        if isinstance(step, DenseSpec):
            if step.in_features != size:
                raise ModelError(f"{step.folder} wants vectors of {step.in_features} numbers and gets {size}")
            built.append(_load_dense(step))
            size = step.out_features
        elif isinstance(step, NormalizeSpec) and normalize is not False:
            built.append(Normalize())
    if truncate_dim is not None:
        if truncate_dim > size:
            raise UsageError(f"truncate_dim {truncate_dim} is more than the model's {size} dimensions")
        size = truncate_dim
        built.append(Cut(size))
    if normalize and not (built and isinstance(built[-1], Normalize)):
        built.append(Normalize())
    return EmbeddingHead(head, built, size=size, include_prompt=spec.include_prompt).eval()


def _activation(spec: DenseSpec) -> nn.Module:
    """Only torch.nn's own classes: a dotted path in a config must not run anybody's code."""
    name = spec.activation.rpartition(".")[2]
    found = getattr(nn, name, None)
    if not spec.activation.startswith("torch.nn.") or not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ModelError(f"{spec.folder}: activation {spec.activation!r} is not supported, only those of torch.nn")
    try:
        return found()
    except TypeError as error:
        raise ModelError(f"{spec.folder}: {spec.activation!r} is not an activation: {error}") from error


def _load_dense(spec: DenseSpec) -> Dense:
    weights = _read_weights(spec.folder)
    renamed = {key.replace("residual.", "projection."): value.float() for key, value in weights.items()}
    dense = Dense(spec)
    try:
        dense.load_state_dict(renamed)
    except RuntimeError as error:
        raise ModelError(f"{spec.folder}: its weights do not fit its config: {error}") from error
    return dense


def _read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").exists():
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(folder / "model.safetensors")
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{folder / 'model.safetensors'} cannot be read: {error}") from error
    if (folder / "pytorch_model.bin").exists():
        return cast(dict[str, Tensor], torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True))
    raise ModelError(f"{folder} has no weights (model.safetensors)")
