from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.errors import ModelError
from setpoint.runners.base import FieldKind
from tests.runners.encoder.plain import plain_runner, score, texts, value
from tests.runners.encoder.tiny import WORDS, tiny_model_folder

TASK = "text-ranking"
TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 2 + seed * 9)) for seed in range(8)]


def cross_encoder(folder: Path, **options):
    from sentence_transformers import CrossEncoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CrossEncoder(str(folder), device="cpu", **options)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pairs_score_as_with_cross_encoder(tmp_path: Path, family: str) -> None:
    folder = tiny_model_folder(tmp_path, family, TASK)
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    runner = plain_runner(folder, TASK, max_length=30)
    results = score(runner, [RowInput(text=query, pair=text, has_pair=True) for query, text in pairs])
    wanted = cross_encoder(folder, max_length=30).predict(pairs)
    np.testing.assert_allclose([value(result, "score") for result in results], wanted, atol=1e-5)
    assert [(field.name, field.kind) for field in runner.fields] == [("score", FieldKind.FLOAT)]


def test_documents_score_in_their_own_order(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    runner = plain_runner(folder, TASK, documents=True)
    rows = [RowInput(text="order late", candidates=tuple(TEXTS)), RowInput(text="good", candidates=("movie", "price"))]
    model = cross_encoder(folder)
    for result, row in zip(score(runner, rows), rows, strict=True):
        wanted = model.predict([(row.text, document) for document in row.candidates or ()])
        np.testing.assert_allclose(value(result, "scores"), wanted, atol=1e-5)
    assert [(field.name, field.kind) for field in runner.fields] == [("scores", FieldKind.FLOATS)]


@pytest.mark.parametrize(
    "place", ["config.json:sentence_transformers", "config.json:sbert_ce_default_activation_function", "own file"]
)
def test_the_folders_activation_is_applied(tmp_path: Path, place: str) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    identity = "torch.nn.modules.linear.Identity"
    if place == "own file":
        cross_encoder(folder, activation_fn=__import__("torch").nn.Identity()).save_pretrained(str(folder))
    else:
        key = place.split(":")[1]
        config = json.loads((folder / "config.json").read_text())
        config[key] = {"activation_fn": identity} if key == "sentence_transformers" else identity
        (folder / "config.json").write_text(json.dumps(config))
    rows = [RowInput(text="order", pair=text, has_pair=True) for text in TEXTS]
    found = [value(result, "score") for result in score(plain_runner(folder, TASK), rows)]
    wanted = cross_encoder(folder).predict([("order", text) for text in TEXTS])
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert min(found) < 0.0 or max(found) > 1.0
    chosen = plain_runner(folder, TASK, function_to_apply="sigmoid")
    np.testing.assert_allclose(
        [value(result, "score") for result in score(chosen, rows)], 1 / (1 + np.exp(-np.array(found))), atol=1e-5
    )


def test_an_activation_of_somebodys_own_is_refused(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK, sbert_ce_default_activation_function="mine.Special")
    with pytest.raises(ModelError, match=r"mine\.Special"):
        plain_runner(folder, TASK)


def test_the_best_window_of_a_document_counts(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    words = TEXTS[7].split()[:30]
    runner = plain_runner(folder, TASK, max_length=15, truncation="window", window_overlap=0)
    (result,) = score(runner, [RowInput(text="order late", pair=" ".join(words), has_pair=True)])
    parts = [" ".join(words[start : start + 10]) for start in (0, 10, 20)]
    alone = score(plain_runner(folder, TASK), [RowInput(text="order late", pair=part, has_pair=True) for part in parts])
    assert value(result, "score") == pytest.approx(max(value(part, "score") for part in alone), abs=1e-5)
    assert result.truncated_tokens == 0


def test_a_query_without_documents_says_so(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    runner = plain_runner(folder, TASK)
    alone, empty = runner.encode([*texts("order"), RowInput(text="order", candidates=())])
    assert isinstance(alone, RowFailure)
    assert alone.reason is Reason.INVALID_RECORD
    assert isinstance(empty, RowFailure)
    assert empty.reason is Reason.MISSING_TEXT


def test_prompts_of_the_folder_stand_before_the_query(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", TASK)
    model = cross_encoder(folder, prompts={"web": "help with "}, default_prompt_name="web")
    model.save_pretrained(str(folder))
    rows = [RowInput(text="order", pair=text, has_pair=True) for text in TEXTS]
    found = [value(result, "score") for result in score(plain_runner(folder, TASK), rows)]
    np.testing.assert_allclose(found, cross_encoder(folder).predict([("order", text) for text in TEXTS]), atol=1e-5)
    np.testing.assert_allclose(
        [value(result, "score") for result in score(plain_runner(folder, TASK, prompt=""), rows)],
        model.predict([("order", text) for text in TEXTS], prompt=""),
        atol=1e-5,
    )
