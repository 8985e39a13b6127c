"""What a contender is, and what the hand-written loops share: tokenizing, order, padding."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

LONGEST_FIRST = "longest first"
AS_GIVEN = "as given"

Setting = Mapping[str, Any]  # JSON: order, batch, streams, threads, ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One pass over the texts: vectors [texts, size] in input order, and the tokens that were computed with padding."""

    vectors: np.ndarray
    processed_tokens: int | None = None


class Scorer(Protocol):
    """A loaded model at one setting. `stage` and `collect` are not timed, `score` is."""

    def stage(self, texts: Sequence[str]) -> None:
        """Get ready for these texts (write the job's input file); most contenders take the list as it is."""
        ...

    def score(self, texts: Sequence[str]) -> Any:
        """The timed part: from texts to vectors in input order."""
        ...

    def collect(self, result: Any) -> Outcome:
        """Turn what `score` returned into vectors."""
        ...


class Contender(Protocol):
    """One library: the dtypes and settings that it has here, and a scorer for each."""

    def versions(self) -> Mapping[str, str]:
        """Of what decides its speed."""
        ...

    def dtypes(self) -> Sequence[str]:
        """What it computes in on this machine."""
        ...

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """The settings worth trying; the tuning pass picks the fastest."""
        ...

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> Scorer:
        """Load, convert, compile. Not timed."""
        ...

    def release(self) -> None:
        """Drop every loaded model."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """What every contender is told: limits, a folder for converted models, texts to calibrate on."""

    max_length: int
    cores: int
    cache: Path
    calibration: Sequence[str]


class PlainScorer:
    """A scorer around one function from texts to an Outcome."""

    def __init__(self, function: Callable[[Sequence[str]], Outcome]) -> None:
        self._function = function

    def stage(self, texts: Sequence[str]) -> None:
        """Nothing to do."""

    def score(self, texts: Sequence[str]) -> Outcome:
        """Run the function."""
        return self._function(texts)

    def collect(self, result: Outcome) -> Outcome:
        """Already what is wanted."""
        return result


class FastTokenizer:
    """The model's own tokenizer through the tokenizers library alone: the least that a hand-written loop can pay."""

    def __init__(self, model: Path, *, max_length: int) -> None:
        from tokenizers import Tokenizer

        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.enable_truncation(max_length)
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids, special tokens included, cut at the limit."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def token(self, token_id: int) -> str:
        """The token of an id."""
        return str(self._tokenizer.id_to_token(token_id))


def cut(lengths: Sequence[int], *, order: str, batch: int) -> list[np.ndarray]:
    """Indices of each batch: `batch` texts each, in the given order or longest first."""
    if order == LONGEST_FIRST:
        indices = np.argsort(-np.asarray(lengths), kind="stable")
    elif order == AS_GIVEN:
        indices = np.arange(len(lengths))
    else:
        raise ValueError(f"unknown order {order!r}")
    return [indices[start : start + batch] for start in range(0, len(indices), batch)]


def padded_tokens(lengths: Sequence[int], batches: Sequence[np.ndarray]) -> int:
    """What is computed when each batch is padded to its longest."""
    return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)


def pad(ids: Sequence[Sequence[int]], dtype: Any = np.int64) -> tuple[np.ndarray, np.ndarray]:
    """Ids [n, longest], zero where padded (both models' pad id), and their mask."""
    longest = max(map(len, ids))
    out = np.zeros((len(ids), longest), dtype)
    mask = np.zeros((len(ids), longest), dtype)
    for row, sequence in enumerate(ids):
        out[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return out, mask


def run_batches(function: Callable[[np.ndarray], None], batches: Sequence[np.ndarray], *, streams: int) -> None:
    """Call the function for every batch, in `streams` threads at once."""
    if streams == 1:
        for batch in batches:
            function(batch)
        return
    with ThreadPoolExecutor(streams) as pool:
        for _ in pool.map(function, batches):
            pass


def stream_settings(cores: int, batches: Sequence[int]) -> list[dict[str, Any]]:
    """Sorted batches on one stream over all cores, on one-thread streams, and in between on larger machines."""
    counts = sorted({1, cores, *(cores // 4 * k for k in (1, 2) if cores > 4)})
    return [
        {"order": LONGEST_FIRST, "batch": batch, "streams": streams, "threads": cores // streams}
        for streams in counts
        for batch in batches
    ]


def read_texts(path: str) -> list[str]:
    """Texts from a JSON list."""
    texts = json.loads(Path(path).read_text(encoding="utf-8"))
    return [str(text) for text in texts]


def mean_pooled(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean of the real tokens' states, normalised: [n, length, size] -> [n, size], float32."""
    weights = mask[:, :, None].astype(np.float32)
    summed = (states.astype(np.float32) * weights).sum(1) / weights.sum(1)
    return summed / np.linalg.norm(summed, axis=1, keepdims=True)


def network(model: Path, *, dtype: Any = None) -> Any:
    """The transformers model with mean pooling and normalising inside, for whoever converts it. Loads torch."""
    import torch
    from transformers import AutoModel

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(model, dtype=dtype or torch.float32).eval()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            weights = attention_mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(pooled, dim=1)

    return Embedder().eval()


def cache_name(model: Path, *parts: object) -> str:
    """A file name for something made from a model; the model folder's name and the size of its weights stand for it."""
    import hashlib

    weights = model / "model.safetensors"
    text = json.dumps([model.name, weights.stat().st_size, str(weights.resolve()), *map(str, parts)])
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
