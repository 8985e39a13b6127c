"""CTranslate2's encoder by hand, in the compute types that it has on this CPU; mean pooling in numpy."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contenders.base import (
    FastTokenizer,
    Outcome,
    PlainScorer,
    PrepareOptions,
    Setting,
    cache_name,
    cut,
    mean_pooled,
    pad,
    padded_tokens,
    run_batches,
    stream_settings,
)

WANTED = ("float32", "bfloat16", "int8")


class CTranslate2Loop:
    """Encoders by setting."""

    calls: Mapping[str, Any] = {}

    def __init__(self) -> None:
        import ctranslate2

        self._ct2 = ctranslate2

    def versions(self) -> Mapping[str, str]:
        """Of CTranslate2."""
        return {"ctranslate2": importlib.metadata.version("ctranslate2")}

    def dtypes(self) -> Sequence[str]:
        """What it says that it computes in here."""
        supported = self._ct2.get_supported_compute_types("cpu")
        return [dtype for dtype in WANTED if dtype in supported]

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """One worker over all cores, or one-thread workers."""
        return stream_settings(cores, (4, 8))

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> PlainScorer:
        """An encoder with the setting's workers and threads."""
        folder = options.cache / f"{cache_name(model, 'ctranslate2', self._ct2.__version__)}-ct2"
        if not folder.exists():
            from ctranslate2.converters import TransformersConverter

            TransformersConverter(str(model)).convert(str(folder))
        encoder = self._ct2.Encoder(
            str(folder),
            device="cpu",
            compute_type=dtype,
            inter_threads=setting["streams"],
            intra_threads=setting["threads"],
        )
        tokenizer = FastTokenizer(model, max_length=options.max_length)

        def score(texts: Sequence[str]) -> Outcome:
            ids = tokenizer.encode(texts)
            lengths = [len(item) for item in ids]
            batches = cut(lengths, order=setting["order"], batch=setting["batch"])
            out: list[Any] = [None] * len(texts)

            def compute(batch: np.ndarray) -> None:
                chosen = [ids[i] for i in batch]
                states = np.array(encoder.forward_batch(chosen).last_hidden_state)
                for position, vector in zip(batch, mean_pooled(states, pad(chosen)[1])):
                    out[position] = vector

            run_batches(compute, batches, streams=setting["streams"])
            return Outcome(vectors=np.stack(out), processed_tokens=padded_tokens(lengths, batches))

        return PlainScorer(score)

    def release(self) -> None:
        """Encoders go with their scorers."""


def make(name: str) -> CTranslate2Loop:
    """The contender."""
    return CTranslate2Loop()
