from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

from tests.runners.encoder.plain import plain_runner, score, texts, value
from tests.runners.encoder.test_tokens import byte_level_tokenizer
from tests.runners.encoder.tiny import WORDS, tiny_model_folder

TASK = "token-classification"
TEXTS = [
    "Alice works at ACME in London.",
    "bob's printer-crash: 42 invoices were   late (again)!",
    "Zebra 🙂 movie in Paris",
    "the order",
    " ".join(np.random.default_rng(0).choice([*WORDS, "Zebras", "x-ray", "🙂", "unhelpful"], 60)),
]


def wanted_of(folder: Path, sentences: list[str], aggregation: str, **arguments) -> list[list[dict]]:
    pipe = pipeline(TASK, model=str(folder), device="cpu", aggregation_strategy=aggregation)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Tokenizer does not support real words")
        return [pipe(sentence, **arguments) for sentence in sentences]


def compare(found: list[dict], wanted: list[dict]) -> None:
    renamed = [{**entry, "entity_group": entry.get("entity_group", entry.get("entity"))} for entry in wanted]
    for key in ("entity_group", "word", "start", "end", "index"):
        assert [entry.get(key) for entry in found] == [entry.get(key) for entry in renamed]
    np.testing.assert_allclose([entry["score"] for entry in found], [entry["score"] for entry in wanted], atol=1e-5)


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_entities_of_the_pipeline(tmp_path: Path, family: str, aggregation: str) -> None:
    folder = tiny_model_folder(tmp_path, family, TASK)
    results = score(plain_runner(folder, TASK, aggregation=aggregation), texts(*TEXTS))
    for result, wanted in zip(results, wanted_of(folder, TEXTS, aggregation), strict=True):
        compare(value(result, "entities"), wanted)
    assert sum(len(value(result, "entities")) for result in results) > 10


@pytest.mark.parametrize("aggregation", ["simple", "first"])
def test_tokenizers_without_marks_for_pieces(tmp_path: Path, aggregation: str) -> None:
    folder = tiny_model_folder(tmp_path, "roberta", TASK, vocab_size=300, pad_token_id=2)
    byte_level_tokenizer().save_pretrained(folder)
    sentences = [sentence[:40] for sentence in TEXTS]
    results = score(plain_runner(folder, TASK, aggregation=aggregation), texts(*sentences))
    for result, wanted in zip(results, wanted_of(folder, sentences, aggregation), strict=True):
        compare(value(result, "entities"), wanted)


def test_other_labels_may_be_left_out(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    runner = plain_runner(folder, TASK, aggregation="simple", ignore_labels=("PER", "LOC"))
    results = score(runner, texts(*TEXTS))
    pipe = pipeline(TASK, model=str(folder), device="cpu", aggregation_strategy="simple", ignore_labels=["PER", "LOC"])
    for result, sentence in zip(results, TEXTS, strict=True):
        compare(value(result, "entities"), pipe(sentence))


def test_offsets_point_into_the_text_as_it_came(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    text = "  🙂 Äpfel,   Alice in LONDON 🙂 order"
    (result,) = score(plain_runner(folder, TASK, aggregation="none", ignore_labels=()), texts(text))
    for entity in value(result, "entities"):
        part = text[entity["start"] : entity["end"]]
        assert part == part.strip() != ""
        if entity["word"].isascii():
            assert part.lower().replace("ä", "a") == entity["word"].removeprefix("##")


def test_windows_are_stitched_with_the_offsets_of_the_whole_text(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    windowed = plain_runner(
        folder, TASK, aggregation="none", ignore_labels=(), max_length=22, truncation="window", window_overlap=8
    )
    (row,) = windowed.encode(texts(TEXTS[4]))
    assert len(row.sequences) > 3
    (result,) = score(windowed, texts(TEXTS[4]))
    (whole,) = score(plain_runner(folder, TASK, aggregation="none", ignore_labels=()), texts(TEXTS[4]))
    found, wanted = value(result, "entities"), value(whole, "entities")
    for key in ("word", "start", "end", "index"):
        assert [entity[key] for entity in found] == [entity[key] for entity in wanted]
    assert all(0.0 < entity["score"] <= 1.0 for entity in found)


def test_truncated_text_has_entities_only_where_it_was_read(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    runner = plain_runner(folder, TASK, aggregation="none", ignore_labels=(), max_length=6)
    (result,) = score(runner, texts("alice works in london again and again"))
    assert [entity["word"] for entity in value(result, "entities")] == ["alice", "works", "in", "london"]
    assert result.truncated_tokens == 3
