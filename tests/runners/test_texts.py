"""Text that every Python carries."""

from __future__ import annotations

from setpoint.runners.texts import docstrings, mixed_texts


def test_the_same_texts_every_time() -> None:
    assert docstrings(20) == docstrings(20)
    assert docstrings(20, seed=1) != docstrings(20, seed=2)


def test_all_are_different_texts_with_words() -> None:
    texts = docstrings(200)
    assert len(texts) == len(set(texts)) == 200
    assert all(text.strip() == text and text for text in texts)


def test_none_asked_none_given() -> None:
    assert docstrings(0) == []


def test_mixed_texts_run_from_a_few_words_to_thousands() -> None:
    lengths = sorted(len(text.split()) for text in mixed_texts(300))
    assert len(lengths) == 300
    assert lengths[30] < 10
    assert lengths[-1] > 1000
    assert sum(length > 150 for length in lengths) == 50
