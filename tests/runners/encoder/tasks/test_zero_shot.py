from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

from setpoint.domain.row import Reason, RowFailure, RowInput
from tests.runners.encoder.plain import plain_runner, score, texts, value
from tests.runners.encoder.tiny import WORDS, tiny_model_folder

TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 2 + seed * 6)) for seed in range(8)]
LABELS = ["late order", "refund", "printer crash", "good movie"]
TASK = "zero-shot-classification"


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("multi_label", [None, True])
@pytest.mark.parametrize("max_length", [512, 20])
def test_labels_and_scores_of_the_pipeline(
    tmp_path: Path, family: str, multi_label: bool | None, max_length: int
) -> None:
    folder = tiny_model_folder(tmp_path, family, TASK)
    runner = plain_runner(folder, TASK, labels=LABELS, multi_label=multi_label, max_length=max_length)
    pipe = pipeline(TASK, model=str(folder), device="cpu")
    pipe.tokenizer.model_max_length = max_length
    wanted = pipe(TEXTS, candidate_labels=LABELS, multi_label=bool(multi_label))
    for result, entry in zip(score(runner, texts(*TEXTS)), wanted, strict=True):
        assert value(result, "labels") == entry["labels"]
        np.testing.assert_allclose(value(result, "scores"), entry["scores"], atol=1e-5)


@pytest.mark.parametrize("names", [["entailment", "neutral", "contradiction"], ["not_entailment", "ENTAILED"]])
def test_the_entailment_label_is_found_by_name(tmp_path: Path, names: list[str]) -> None:
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}
    folder = tiny_model_folder(tmp_path, "bert", TASK, **labels)
    pipe = pipeline(TASK, model=str(folder), device="cpu")
    for multi_label in (False, True):
        runner = plain_runner(folder, TASK, labels=LABELS, multi_label=multi_label)
        wanted = pipe(TEXTS[:3], candidate_labels=LABELS, multi_label=multi_label)
        for result, entry in zip(score(runner, texts(*TEXTS[:3])), wanted, strict=True):
            assert value(result, "labels") == entry["labels"]
            np.testing.assert_allclose(value(result, "scores"), entry["scores"], atol=1e-5)


def test_labels_may_differ_by_row_and_a_template_is_filled(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    template = "the ticket is for {}"
    runner = plain_runner(folder, TASK, labels=LABELS, hypothesis_template=template)
    pipe = pipeline(TASK, model=str(folder), device="cpu")
    rows = [RowInput(text=TEXTS[2], candidates=("paris", "london", "berlin")), RowInput(text=TEXTS[3])]
    wanted = [
        pipe(TEXTS[2], candidate_labels=["paris", "london", "berlin"], hypothesis_template=template),
        pipe(TEXTS[3], candidate_labels=LABELS, hypothesis_template=template),
    ]
    for result, entry in zip(score(runner, rows), wanted, strict=True):
        assert value(result, "labels") == entry["labels"]
        np.testing.assert_allclose(value(result, "scores"), entry["scores"], atol=1e-5)


def test_one_label_is_scored_against_contradiction(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    (result,) = score(plain_runner(folder, TASK, labels="refund"), texts(TEXTS[1]))
    wanted = pipeline(TASK, model=str(folder), device="cpu")(TEXTS[1], candidate_labels="refund")
    np.testing.assert_allclose(value(result, "scores"), wanted["scores"], atol=1e-5)


def test_windows_are_the_same_for_all_labels(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    runner = plain_runner(folder, TASK, labels=LABELS, max_length=24, truncation="window", window_overlap=0)
    (row,) = runner.encode(texts(TEXTS[7]))
    decoded = [runner.model.tokenizer.decode(part.ids).split(" [SEP] ")[0] for part in row.sequences]
    by_window = [decoded[i : i + len(LABELS)] for i in range(0, len(decoded), len(LABELS))]
    assert len(by_window) >= 3
    assert all(len(set(window)) == 1 for window in by_window)
    (result,) = score(runner, texts(TEXTS[7]))
    assert sum(value(result, "scores")) == pytest.approx(1.0, abs=1e-5)
    assert result.truncated_tokens == 0


@pytest.mark.parametrize(
    ("candidates", "reason"),
    [
        ((), Reason.MISSING_TEXT),
        (("refund", None), Reason.NOT_TEXT),
        (("refund", " "), Reason.NOT_TEXT),
        (("refund", "\ud800"), Reason.INVALID_UNICODE),
        (("order " * 60,), Reason.TOO_LONG),
    ],
)
def test_bad_labels_fail_their_row(tmp_path: Path, candidates: tuple, reason: Reason) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    runner = plain_runner(folder, TASK, labels=LABELS, max_length=40)
    bad, good = runner.encode([RowInput(text="order", candidates=candidates), RowInput(text="order")])
    assert isinstance(bad, RowFailure)
    assert bad.reason is reason
    assert not isinstance(good, RowFailure)


def test_without_any_labels_each_row_says_so(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    (row,) = plain_runner(folder, TASK).encode(texts("order"))
    assert row == RowFailure(reason=Reason.MISSING_TEXT, detail="no candidate labels")
