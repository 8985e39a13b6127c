"""The OpenVINO executor against the padded float32 model, for every family that there is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

pytest.importorskip("openvino", reason="needs the extra openvino")

from setpoint.errors import UsageError
from setpoint.runners.base import TokenSequence
from setpoint.runners.cache import cache_folder
from setpoint.runners.encoder import graph as graphs
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.openvino import OpenVINOExecutor, make_executor, supported_dtypes
from setpoint.runners.encoder.options import EncoderOptions
from tests.runners.encoder.tiny import FAMILIES, tiny_model_folder

LENGTHS = (3, 17, 5, 40, 5, 9)


def load(folder: Path, task: str, **options: Any) -> EncoderModel:
    return load_model(EncoderOptions(model=str(folder), task=task, **options))


def sequences(model: EncoderModel, lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[TokenSequence]:
    rng = np.random.default_rng(seed)
    made = []
    for length in lengths:
        ids = rng.integers(10, len(model.tokenizer), length).astype(np.int32)
        types = (np.arange(length) > length // 2).astype(np.int32) if model.uses_type_ids else None
        if types is not None and model.config.type_vocab_size < 2:
            types = np.zeros_like(types)
        made.append(TokenSequence(ids, types))
    return made


def reference(model: EncoderModel, items: list[TokenSequence]) -> list[npt.NDArray[Any]]:
    """One at a time through the float32 module: no padding, no executor."""
    found = []
    for item in items:
        ids = torch.tensor(item.ids[None].astype(np.int64))
        types = None if item.type_ids is None else torch.tensor(item.type_ids[None].astype(np.int64))
        with torch.inference_mode():
            found.append(model.network(ids, torch.ones_like(ids), types)[0].numpy())
    return found


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_embeddings_of_every_family_match(tmp_path: Path, family: str) -> None:
    model = load(tiny_model_folder(tmp_path, family, "feature-extraction"), "feature-extraction")
    executor = make_executor(model, dtype="float32", num_threads=1, num_streams=1)
    items = sequences(model)
    for ours, theirs in zip(executor.forward(items), reference(model, items), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert"])
def test_heads_match(tmp_path: Path, family: str, task: str) -> None:
    model = load(tiny_model_folder(tmp_path, family, task), task)
    executor = make_executor(model, dtype="float32", num_threads=1, num_streams=1)
    items = sequences(model)
    for ours, theirs in zip(executor.forward(items), reference(model, items), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> EncoderModel:
    folder = tiny_model_folder(tmp_path_factory.mktemp("bert"), "bert", "feature-extraction")
    return load(folder, "feature-extraction")


def test_token_states_are_cut_to_each_length(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "feature-extraction")
    model = load(folder, "feature-extraction", pooling="none")
    items = sequences(model)
    found = make_executor(model, dtype="float32", num_threads=1, num_streams=1).forward(items)
    assert [len(states) for states in found] == list(LENGTHS)


def test_streams_compute_side_by_side_and_agree(bert: EncoderModel) -> None:
    executor = make_executor(bert, dtype="float32", num_threads=2, num_streams=2)
    items = sequences(bert)
    expected = executor.forward(items)
    wrong: list[str] = []

    def work() -> None:
        for _ in range(20):
            for ours, theirs in zip(executor.forward(items), expected, strict=True):
                if not np.allclose(ours, theirs, atol=1e-6):
                    wrong.append("differs")

    threads = [threading.Thread(target=work) for _ in range(4)]  # more callers than streams: they take turns
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_results_are_the_callers_own(bert: EncoderModel) -> None:
    executor = make_executor(bert, dtype="float32", num_threads=1, num_streams=1)
    first = executor.forward(sequences(bert, seed=1))
    kept = [array.copy() for array in first]
    executor.forward(sequences(bert, seed=2))
    for now, before in zip(first, kept, strict=True):
        np.testing.assert_array_equal(now, before)


def test_bfloat16_is_close_or_refused(bert: EncoderModel) -> None:
    if "bfloat16" not in supported_dtypes():
        with pytest.raises(UsageError, match="bfloat16"):
            make_executor(bert, dtype="bfloat16", num_threads=1, num_streams=1)
        return
    items = sequences(bert)
    executor = make_executor(bert, dtype="bfloat16", num_threads=1, num_streams=1)
    for ours, theirs in zip(executor.forward(items), reference(bert, items), strict=True):
        cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert cosine > 0.999


def test_an_unknown_dtype_is_refused(bert: EncoderModel) -> None:
    with pytest.raises(UsageError, match="float32"):
        OpenVINOExecutor(bert, graphs.load_graph(bert), dtype="float8", num_threads=1, num_streams=1)


def test_a_graph_is_converted_once_and_a_damaged_one_again(bert: EncoderModel, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs.load_graph(bert)
    calls: list[str] = []
    convert = graphs.convert
    monkeypatch.setattr(graphs, "convert", lambda model: calls.append("converted") or convert(model))
    graphs.load_graph(bert)
    assert calls == []
    place = cache_folder("graphs") / graphs.graph_key(bert, kind="float32")
    (place / "graph.xml").write_text("not a graph")
    items = sequences(bert)
    executor = make_executor(bert, dtype="float32", num_threads=1, num_streams=1)
    assert calls == ["converted"]
    np.testing.assert_allclose(executor.forward(items)[0], reference(bert, items)[0], atol=2e-5)


def test_other_heads_are_other_graphs(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "feature-extraction")
    keys = {
        graphs.graph_key(load(folder, "feature-extraction", **options), kind="float32")
        for options in ({}, {"pooling": "cls"}, {"normalize": True}, {"truncate_dim": 8}, {"pooling": "none"})
    }
    assert len(keys) == 5
