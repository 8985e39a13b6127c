"""Mixed-length texts: log-normal word counts over words that real English text uses as often as it does."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from setpoint.runners.texts import docstrings

MU, SIGMA = 4.0, 1.2
FEWEST_WORDS, MOST_WORDS = 3, 2000
_WORD = re.compile(r"[A-Za-z]{1,14}[.,;]?(?=\s|$)")
_SOURCES = 600  # docstrings that words are taken from


def vocabulary() -> list[str]:
    """Words of the standard library's docstrings, each as often as it occurs; the same for the same Python."""
    words = [word for text in docstrings(_SOURCES, seed=1) for word in _WORD.findall(text)]
    if len(words) < 1000:
        raise RuntimeError("this Python has no sources of its standard library, which the texts are made of")
    return words


def word_counts(count: int, *, seed: int) -> np.ndarray:
    """How many words each text has: log-normal, clipped."""
    drawn = np.random.default_rng(seed).lognormal(MU, SIGMA, count)
    return np.clip(np.rint(drawn), FEWEST_WORDS, MOST_WORDS).astype(int)


def make_texts(count: int, *, seed: int, words: Sequence[str]) -> list[str]:
    """`count` texts; lengths and words have their own streams of random numbers."""
    counts = word_counts(count, seed=seed)
    picks = np.random.default_rng([seed, 1]).integers(0, len(words), counts.sum())
    ends = np.cumsum(counts)
    return [" ".join(words[i] for i in picks[end - n : end]) for end, n in zip(ends, counts)]


def spread(texts: Sequence[str], count: int, *, run: int = 8) -> list[str]:
    """About `count` of the texts in runs of neighbours by length: sorted batches fill up as in the whole set."""
    ordered = sorted(texts, key=len, reverse=True)
    runs = [ordered[start : start + run] for start in range(0, len(ordered), run)]
    wanted = max(1, round(count / run))
    if wanted >= len(runs):
        return list(texts)
    picks = np.unique(np.linspace(0, len(runs) - 1, wanted).round().astype(int))
    return [text for pick in picks for text in runs[pick]]


def save_texts(texts: Sequence[str], folder: Path) -> Path:
    """Write them as JSON under a name that their content decides."""
    path = folder / f"texts-{digest(texts)}.json"
    path.write_text(json.dumps(list(texts)), encoding="utf-8")
    return path


def digest(texts: Sequence[str]) -> str:
    """A short name for these texts in this order."""
    return hashlib.blake2b(json.dumps(list(texts)).encode(), digest_size=8).hexdigest()
