"""The texts of the benchmarks: lengths as asked for, and the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from harness.texts import FEWEST_WORDS, MOST_WORDS, digest, make_texts, save_texts, spread, vocabulary, word_counts


@pytest.fixture(scope="module")
def words() -> list[str]:
    return vocabulary()


def test_word_counts_are_log_normal_and_clipped() -> None:
    counts = word_counts(20_000, seed=0)
    assert counts.min() >= FEWEST_WORDS
    assert counts.max() <= MOST_WORDS
    low, middle, high = np.log(np.quantile(counts, [0.1587, 0.5, 0.8413]))  # a standard deviation on both sides
    assert middle == pytest.approx(4.0, abs=0.05)
    assert (high - low) / 2 == pytest.approx(1.2, abs=0.05)


def test_texts_have_those_counts_and_repeat_for_a_seed(words: list[str]) -> None:
    texts = make_texts(50, seed=3, words=words)
    assert [len(text.split()) for text in texts] == word_counts(50, seed=3).tolist()
    assert texts == make_texts(50, seed=3, words=words)
    assert texts != make_texts(50, seed=4, words=words)


def test_words_are_real_and_repeat_as_often_as_in_text(words: list[str]) -> None:
    assert len(set(words)) > 500
    assert words.count("the") > 100


def test_a_spread_keeps_neighbours_by_length_together(words: list[str]) -> None:
    texts = make_texts(200, seed=0, words=words)
    chosen = spread(texts, 40)
    assert len(chosen) == 40
    assert set(chosen) <= set(texts)
    ordered = sorted(texts, key=len, reverse=True)
    for start in range(0, 40, 8):
        run = chosen[start : start + 8]
        position = ordered.index(run[0])
        assert ordered[position : position + 8] == run
    assert spread(texts, 1000) == texts


def test_saved_texts_are_named_by_their_content(tmp_path: Path) -> None:
    path = save_texts(["a", "ü"], tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == ["a", "ü"]
    assert digest(["a", "ü"]) in path.name
    assert save_texts(["ü", "a"], tmp_path) != path
