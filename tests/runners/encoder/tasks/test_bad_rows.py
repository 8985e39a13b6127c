"""Whatever stands in a cell, its row gets a reason and the others a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.runners.base import EncodedRow
from tests.runners.encoder.plain import plain_runner, score, texts
from tests.runners.encoder.tiny import tiny_model_folder


class NAType:
    """Stands for pandas.NA, which is known by its name."""


BAD: list[tuple[Any, Reason]] = [
    (None, Reason.MISSING_TEXT),
    (float("nan"), Reason.MISSING_TEXT),
    (np.float32("nan"), Reason.MISSING_TEXT),
    (NAType(), Reason.MISSING_TEXT),
    ("", Reason.EMPTY_TEXT),
    (" ", Reason.EMPTY_TEXT),
    ("\t\n\u00a0\u2003", Reason.EMPTY_TEXT),
    (3.5, Reason.NOT_TEXT),
    (7, Reason.NOT_TEXT),
    (True, Reason.NOT_TEXT),
    (b"order", Reason.NOT_TEXT),
    (["order"], Reason.NOT_TEXT),
    ({"text": "order"}, Reason.NOT_TEXT),
    (np.array(["order"]), Reason.NOT_TEXT),
    ("order \ud83d", Reason.INVALID_UNICODE),
    ("🙂🙃", Reason.UNKNOWN_TOKENS),
    ("\u200b\u0001", Reason.UNKNOWN_TOKENS),
]
TASKS = ["text-classification", "zero-shot-classification", "token-classification", "feature-extraction"]


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory):
    def make(task: str):
        folder = tiny_model_folder(tmp_path_factory.mktemp("models"), "bert", task)
        return plain_runner(folder, task, **({"labels": ("late", "good")} if task.startswith("zero") else {}))

    return {task: make(task) for task in [*TASKS, "text-ranking"]}


@pytest.mark.parametrize("task", TASKS)
def test_every_kind_of_bad_cell_gets_its_reason(runners, task: str) -> None:
    rows = []
    for cell, _ in BAD:
        rows += texts(cell, "order late")
    results = score(runners[task], rows)
    assert [result.reason for result in results[::2]] == [reason for _, reason in BAD]
    assert all(not isinstance(result, RowFailure) for result in results[1::2])


@pytest.mark.parametrize(("cell", "reason"), BAD)
def test_a_bad_second_text_is_named(runners, cell: Any, reason: Reason) -> None:
    rows = [RowInput(text="order", pair=cell, has_pair=True)]
    (pair,) = runners["text-classification"].encode(rows)
    (ranked,) = runners["text-ranking"].encode(rows)
    (among,) = runners["text-ranking"].encode([RowInput(text="order", candidates=("late", cell))])
    assert (pair.reason, ranked.reason, among.reason) == (reason, reason, reason)
    assert "text_pair" in pair.detail
    assert "document" in ranked.detail
    assert "document 2" in among.detail


def test_a_text_with_one_known_token_is_computed(runners) -> None:
    (row,) = runners["feature-extraction"].encode(texts("🙂 order"))
    assert isinstance(row, EncodedRow)


def test_a_token_without_an_embedding_fails_its_row_alone(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", vocab_size=60)
    known, unknown = plain_runner(folder, "feature-extraction").encode(texts("a b c", "order refund"))
    assert isinstance(known, EncodedRow)
    assert isinstance(unknown, RowFailure)
    assert unknown.reason is Reason.MODEL_FAILED
    assert "the model knows 60" in unknown.detail


cells = st.one_of(
    st.none(), st.floats(), st.integers(), st.binary(max_size=4), st.text(max_size=30), st.lists(st.text(max_size=2))
)


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=40, deadline=None)
@given(st.lists(cells, max_size=8))
def test_encoding_never_raises_and_keeps_order(runners, task: str, values: list[Any]) -> None:
    runner = runners[task]
    together = runner.encode(texts(*values))
    assert len(together) == len(values)
    for found, cell in zip(together, values, strict=True):
        (alone,) = runner.encode(texts(cell))
        if isinstance(alone, RowFailure):
            assert found == alone
        else:
            assert [part.ids.tolist() for part in found.sequences] == [part.ids.tolist() for part in alone.sequences]


@settings(max_examples=60, deadline=None)
@given(
    st.text(
        alphabet=st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010, categories=("Cs", "Lo", "Co")), min_size=1
    )
)
def test_lone_surrogates_never_reach_the_tokenizer(runners, text: str) -> None:
    (row,) = runners["feature-extraction"].encode(texts(text))
    if any("\ud800" <= character <= "\udfff" for character in text):
        assert isinstance(row, RowFailure)
        assert row.reason is Reason.INVALID_UNICODE
