from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.runners.base import FieldKind
from tests.runners.encoder.plain import plain_runner, score, texts, value
from tests.runners.encoder.tiny import WORDS, tiny_model_folder

TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 1 + seed * 7)) for seed in range(12)]
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))


def pipe(folder: Path):
    return pipeline("text-classification", model=str(folder), device="cpu")


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet", "deberta-v2", "qwen3"])
def test_labels_and_scores_of_the_pipeline(tmp_path: Path, family: str) -> None:
    folder = tiny_model_folder(tmp_path, family, "text-classification")
    results = score(plain_runner(folder, "text-classification"), texts(*TEXTS))
    wanted = pipe(folder)(TEXTS)
    assert [value(result, "label") for result in results] == [entry["label"] for entry in wanted]
    np.testing.assert_allclose(
        [value(result, "score") for result in results], [entry["score"] for entry in wanted], atol=1e-5
    )


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pairs_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    folder = tiny_model_folder(tmp_path, family, "text-classification")
    rows = [RowInput(text=first, pair=second, has_pair=True) for first, second in PAIRS]
    results = score(plain_runner(folder, "text-classification", max_length=40), rows)
    wanted = pipe(folder)(
        [{"text": first, "text_pair": second} for first, second in PAIRS], truncation=True, max_length=40
    )
    assert [value(result, "label") for result in results] == [entry["label"] for entry in wanted]
    np.testing.assert_allclose(
        [value(result, "score") for result in results], [entry["score"] for entry in wanted], atol=1e-5
    )
    for (first, second), result in zip(PAIRS, results, strict=True):
        whole = len(plain_ids(folder, first, second))
        assert result.num_tokens == min(whole, 40)
        assert result.truncated_tokens == max(whole - 40, 0)


def plain_ids(folder: Path, first: str, second: str) -> list[int]:
    from transformers import AutoTokenizer

    ids: list[int] = AutoTokenizer.from_pretrained(folder)(first, second)["input_ids"]
    return ids


@pytest.mark.parametrize(
    ("config", "options", "arguments"),
    [
        ({}, {"top_k": 2}, {"top_k": 2}),
        ({}, {"top_k": "all"}, {"top_k": None}),
        ({"problem_type": "multi_label_classification"}, {}, {"top_k": None}),
        ({}, {"multi_label": True}, {"top_k": None, "function_to_apply": "sigmoid"}),
        ({"problem_type": "regression"}, {"top_k": "all"}, {"top_k": None}),
        ({}, {"function_to_apply": "none", "top_k": "all"}, {"top_k": None, "function_to_apply": "none"}),
    ],
)
def test_several_labels_with_the_pipelines_functions(
    tmp_path: Path, config: dict, options: dict, arguments: dict
) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification", **config)
    runner = plain_runner(folder, "text-classification", **options)
    assert [(field.name, field.kind) for field in runner.fields] == [
        ("labels", FieldKind.STRINGS),
        ("scores", FieldKind.FLOATS),
    ]
    for result, wanted in zip(score(runner, texts(*TEXTS)), pipe(folder)(TEXTS, **arguments), strict=True):
        assert value(result, "labels") == [entry["label"] for entry in wanted]
        np.testing.assert_allclose(value(result, "scores"), [entry["score"] for entry in wanted], atol=1e-5)


def test_a_single_label_gets_a_sigmoid(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-ranking")
    results = score(plain_runner(folder, "text-classification"), texts(*TEXTS[:3]))
    wanted = pipe(folder)(TEXTS[:3])
    assert [value(result, "label") for result in results] == ["LABEL_0"] * 3
    np.testing.assert_allclose(
        [value(result, "score") for result in results], [entry["score"] for entry in wanted], atol=1e-5
    )


def test_windows_average_scores_by_tokens(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification")
    options = {"max_length": 12, "top_k": "all"}
    windowed = plain_runner(folder, "text-classification", truncation="window", window_overlap=2, **options)
    long = " ".join(TEXTS[4].split()[:25])
    (encoded,) = windowed.encode(texts(long))
    assert [len(sequence) for sequence in encoded.sequences] == [12, 12, 12]
    assert encoded.truncated_tokens == 0
    (result,) = score(windowed, texts(long))
    words = long.split()
    parts = [" ".join(words[start : start + 10]) for start in (0, 8, 15)]
    alone = score(plain_runner(folder, "text-classification", **options), texts(*parts))
    by_label = [dict(zip(value(part, "labels"), value(part, "scores"), strict=True)) for part in alone]
    for label, found in zip(value(result, "labels"), value(result, "scores"), strict=True):
        assert found == pytest.approx(np.mean([part[label] for part in by_label]), abs=1e-5)


def test_windows_over_pairs_keep_the_second_text(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification")
    runner = plain_runner(folder, "text-classification", truncation="window", max_length=20)
    (row,) = runner.encode([RowInput(text=TEXTS[5], pair="order refund", has_pair=True)])
    tokenizer = runner.model.tokenizer
    assert len(row.sequences) > 2
    assert all(tokenizer.decode(part.ids).endswith("[SEP] order refund [SEP]") for part in row.sequences)
    (result,) = score(runner, [RowInput(text=TEXTS[5], pair=TEXTS[5], has_pair=True)])
    assert result.truncated_tokens == len(TEXTS[5].split()) - 8


@pytest.mark.parametrize("truncation", ["skip", "error"])
def test_skipped_rows_say_how_long_they_are(tmp_path: Path, truncation: str) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification")
    runner = plain_runner(folder, "text-classification", truncation=truncation, max_length=10)
    short, long, pair = runner.encode(
        [*texts("order", " ".join(["order"] * 9)), RowInput(text="order " * 5, pair="refund " * 5, has_pair=True)]
    )
    assert not isinstance(short, RowFailure)
    assert long == RowFailure(reason=Reason.TOO_LONG, detail="11 tokens, and the limit is 10")
    assert pair == RowFailure(reason=Reason.TOO_LONG, detail="13 tokens, and the limit is 10")


def test_candidates_are_refused_row_by_row(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification")
    runner = plain_runner(folder, "text-classification")
    bad, good = runner.encode([RowInput(text="order", candidates=("a",)), RowInput(text="order")])
    assert isinstance(bad, RowFailure)
    assert bad.reason is Reason.INVALID_RECORD
    assert not isinstance(good, RowFailure)
