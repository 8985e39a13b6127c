"""transformers' own pipeline, used as its documentation shows: what Setpoint is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import transformers

from setpoint.runners.encoder.model import EncoderModel


class PipelineWay:
    """A `feature-extraction` pipeline in float32 whose token states are averaged to one vector a text.

    Mean pooling and unit length, as the embedded model's folder says.
    """

    def __init__(self, model: EncoderModel) -> None:
        self._max_length = model.max_length
        self._tokenizer = model.tokenizer
        self._pipeline = transformers.pipeline(
            "feature-extraction", model=model.network.model, tokenizer=model.tokenizer, device="cpu"
        )

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors [n, d] of the texts, computed as one batch padded to the longest."""
        states = self._pipeline(
            list(texts),
            batch_size=len(texts),
            return_tensors=True,
            tokenize_kwargs={"truncation": True, "max_length": self._max_length, "padding": True},
        )
        encoded = self._tokenizer(list(texts), truncation=True, max_length=self._max_length)["input_ids"]
        lengths = [len(ids) for ids in encoded]
        means = torch.stack([state[0, :length].mean(0) for state, length in zip(states, lengths, strict=True)])
        vectors: npt.NDArray[np.float32] = torch.nn.functional.normalize(means, dim=1).numpy()
        return vectors
