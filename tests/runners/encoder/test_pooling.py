"""Embeddings are those of sentence-transformers for every kind of folder it writes, or the folder is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense as TheirDense
from sentence_transformers.base.modules import Normalize as TheirNormalize
from sentence_transformers.base.modules import Transformer as TheirTransformer
from sentence_transformers.sentence_transformer.modules import Dropout
from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling

from setpoint.errors import ModelError, UsageError
from setpoint.runners.encoder.pooling import Pooling, build_head
from setpoint.runners.encoder.sentence_folder import POOLING_MODES
from tests.runners.encoder.plain import plain_runner, score, texts, value
from tests.runners.encoder.tiny import HIDDEN, WORDS, tiny_model_folder

TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 1 + seed * 5)) for seed in range(14)]
TASK = "feature-extraction"


def sentence_folder(
    tmp_path: Path,
    *,
    family: str = "bert",
    modes: Any = "mean",
    extra: tuple = (),
    include_prompt: bool = True,
    **options,
) -> Path:
    """A folder as sentence-transformers saves it."""
    transformer = TheirTransformer(str(tiny_model_folder(tmp_path, family)))
    pooling = TheirPooling(HIDDEN, pooling_mode=modes, include_prompt=include_prompt)
    model = SentenceTransformer(modules=[transformer, pooling, *extra], device="cpu", **options)
    folder = tmp_path / "sentence"
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def theirs(folder: Path, **arguments: Any) -> np.ndarray:
    vectors: np.ndarray = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, **arguments)
    return vectors


def ours(folder: Path, **options: Any) -> np.ndarray:
    return np.stack(
        [value(result, "embedding") for result in score(plain_runner(folder, TASK, **options), texts(*TEXTS))]
    )


def dense(out: int, *, activation: Any = None, seed: int = 0, into: int = HIDDEN, **options: Any) -> TheirDense:
    torch.manual_seed(seed)
    return TheirDense(into, out, activation_function=activation or torch.nn.Tanh(), **options)


@pytest.mark.parametrize("modes", [*POOLING_MODES, ("cls", "mean"), ("max", "weightedmean", "lasttoken")])
def test_pooling_modes(tmp_path: Path, modes: Any) -> None:
    folder = sentence_folder(tmp_path, modes=modes)
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-5)


@pytest.mark.parametrize("family", ["roberta", "mpnet", "qwen3", "modernbert"])
def test_other_families(tmp_path: Path, family: str) -> None:
    folder = sentence_folder(tmp_path, family=family, modes="lasttoken" if family == "qwen3" else "mean")
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-5)


@pytest.mark.parametrize(
    "extra",
    [
        lambda: (TheirNormalize(),),
        lambda: (dense(16),),
        lambda: (dense(16, activation=torch.nn.Identity(), bias=False), TheirNormalize()),
        lambda: (dense(48, activation=torch.nn.GELU()), dense(8, into=48, seed=1), TheirNormalize()),
        lambda: (dense(HIDDEN, use_residual=True),),
        lambda: (dense(16, use_residual=True),),
    ],
)
def test_modules_after_pooling(tmp_path: Path, extra) -> None:
    folder = sentence_folder(tmp_path, extra=extra())
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-5)


def test_a_bare_folder_gives_the_mean_not_normalised(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = theirs(folder)
    found = ours(folder)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert not np.allclose(np.linalg.norm(found, axis=1), 1.0)


@pytest.mark.parametrize("has_normalize", [False, True])
@pytest.mark.parametrize("normalize", [None, True])
@pytest.mark.parametrize("truncate_dim", [None, 12])
def test_normalising_and_cutting(
    tmp_path: Path, has_normalize: bool, normalize: bool | None, truncate_dim: int | None
) -> None:
    folder = sentence_folder(tmp_path, extra=(TheirNormalize(),) if has_normalize else ())
    wanted = theirs(folder, normalize_embeddings=bool(normalize), truncate_dim=truncate_dim)
    found = ours(folder, normalize=normalize, truncate_dim=truncate_dim)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert found.shape == (len(TEXTS), truncate_dim or HIDDEN)
    runner = plain_runner(folder, TASK, normalize=normalize, truncate_dim=truncate_dim)
    assert runner.fields[0].size == found.shape[1]


def test_a_folders_normalize_can_be_left_out(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, extra=(TheirNormalize(),))
    raw = ours(folder, normalize=False)
    np.testing.assert_allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), ours(folder), atol=1e-5)
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1.0)


def test_another_pooling_than_the_folders(tmp_path: Path) -> None:
    mean = sentence_folder(tmp_path / "mean")
    cls = sentence_folder(tmp_path / "cls", modes="cls")
    np.testing.assert_allclose(ours(mean, pooling="cls"), theirs(cls), atol=1e-5)


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("modes", ["mean", ("cls", "weightedmean", "max", "lasttoken")])
def test_prompts(tmp_path: Path, include_prompt: bool, modes: Any) -> None:
    prompts = {"query": "help with order: ", "document": "printer "}
    folder = sentence_folder(
        tmp_path, modes=modes, include_prompt=include_prompt, prompts=prompts, default_prompt_name="query"
    )
    by_default = ours(folder)
    np.testing.assert_allclose(by_default, theirs(folder), atol=1e-5)
    np.testing.assert_allclose(ours(folder, prompt_name="document"), theirs(folder, prompt_name="document"), atol=1e-5)
    np.testing.assert_allclose(ours(folder, prompt="a b c "), theirs(folder, prompt="a b c "), atol=1e-5)
    np.testing.assert_allclose(ours(folder, prompt=""), theirs(folder, prompt=""), atol=1e-5)
    assert not np.allclose(by_default, ours(folder, prompt_name="document"), atol=1e-3)


def test_unknown_prompts_name_the_nearest(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, prompts={"query": "q: ", "passage": "p: "})
    with pytest.raises(UsageError, match="did you mean 'query'"):
        plain_runner(folder, TASK, prompt_name="querry")
    with pytest.raises(UsageError, match="has no prompts"):
        plain_runner(tiny_model_folder(tmp_path / "bare", "bert"), TASK, prompt_name="query")


def test_lengths_and_lower_case_of_the_folder(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path)
    backend = json.loads((folder / "tokenizer.json").read_text())
    backend["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(backend))
    settings_file = folder / "sentence_bert_config.json"
    saved = json.loads(settings_file.read_text())
    settings_file.write_text(json.dumps({**saved, "max_seq_length": 20, "do_lower_case": True}))
    model = SentenceTransformer(str(folder), device="cpu")
    upper = [text.upper() for text in TEXTS]
    runner = plain_runner(folder, TASK)
    found = np.stack([value(result, "embedding") for result in score(runner, texts(*upper))])
    np.testing.assert_allclose(found, model.encode(upper), atol=1e-5)
    assert runner.model.max_length == 20
    longer = plain_runner(folder, TASK, max_length=300)
    model.max_seq_length = 300
    found = np.stack([value(result, "embedding") for result in score(longer, texts(*upper))])
    np.testing.assert_allclose(found, model.encode(upper), atol=1e-5)


def test_flags_of_older_folders(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, modes=("cls", "mean"))
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps(
            {
                "word_embedding_dimension": HIDDEN,
                "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
            }
        )
    )
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-5)


def test_a_transformer_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path)
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in folder.iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(inner / path.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    np.testing.assert_allclose(ours(folder), theirs(folder), atol=1e-5)


# Refused


def test_unknown_modules_are_refused(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, extra=(Dropout(0.1),))
    with pytest.raises(ModelError, match=r"module 2 of type '.*Dropout' is not supported"):
        plain_runner(folder, TASK)


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "attention"}, "pooling attention is not supported"),
        ("1_Pooling/config.json", {"pooling_mode_pmeans_tokens": True}, "pooling_mode_pmeans_tokens"),
        ("2_Dense/config.json", {"activation_function": "mine.Special"}, r"activation 'mine\.Special'"),
        ("2_Dense/config.json", {"activation_function": "torch.hub.load"}, "is not supported"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.Linear"}, "not an activation"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "over token_embeddings"),
        ("2_Dense/config.json", {"in_features": 7}, "wants vectors of 7 numbers and gets 32"),
        ("2_Dense/config.json", {"out_features": 7}, "do not fit its config"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"padding": False}}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"modality_config": {"message": {}}}, "only plain text"),
        ("config_sentence_transformers.json", {"default_prompt_name": "nosuch"}, "default_prompt_name 'nosuch'"),
    ],
)
def test_settings_that_are_not_understood_are_refused(tmp_path: Path, file: str, changes: dict, said: str) -> None:
    folder = sentence_folder(tmp_path, extra=(dense(16),))
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelError, match=said):
        plain_runner(folder, TASK)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        ("{", "cannot be read as JSON"),
        ("{}", "should hold a list"),
        ("[]", "should hold a list"),
        ('[{"type": "custom_st.Transformer", "path": ""}]', "custom_st.Transformer"),
        (
            '[{"type": "sentence_transformers.models.Transformer", "path": ""},'
            ' {"type": "sentence_transformers.models.Pooling", "path": "../elsewhere"}]',
            "points outside",
        ),
        (
            '[{"type": "sentence_transformers.models.Transformer", "path": ""},'
            ' {"type": "sentence_transformers.models.Normalize", "path": ""}]',
            "exactly one Pooling",
        ),
    ],
)
def test_broken_lists_of_modules_are_refused(tmp_path: Path, modules: str, said: str) -> None:
    folder = sentence_folder(tmp_path)
    (folder / "modules.json").write_text(modules)
    with pytest.raises(ModelError, match=said):
        plain_runner(folder, TASK)


def test_missing_dense_weights_are_named(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, extra=(dense(16),))
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"2_Dense has no weights"):
        plain_runner(folder, TASK)


def test_options_that_do_not_fit_the_model(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path)
    with pytest.raises(UsageError, match="truncate_dim 33 is more than the model's 32 dimensions"):
        plain_runner(folder, TASK, truncate_dim=33)
    with pytest.raises(UsageError, match="do not go with pooling='none'"):
        plain_runner(folder, TASK, pooling="none", truncate_dim=3)
    for task in ("text-classification", "text-ranking"):
        with pytest.raises(ModelError, match="use --task feature-extraction"):
            plain_runner(folder, task)


# Windows and token states


def test_windows_are_averaged_by_tokens_and_normalised(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, extra=(TheirNormalize(),), prompts={"query": "help with "})
    words = TEXTS[8].split()[:26]
    runner = plain_runner(folder, TASK, max_length=12, truncation="window", window_overlap=0, prompt_name="query")
    (row,) = runner.encode(texts(" ".join(words)))
    decoded = [runner.model.tokenizer.decode(part.ids) for part in row.sequences]
    assert all(part.startswith("[CLS] help with ") for part in decoded)
    (result,) = score(runner, texts(" ".join(words)))
    parts = [" ".join(words[start : start + 8]) for start in (0, 8, 16, 18)]
    alone = np.stack(
        [value(part, "embedding") for part in score(plain_runner(folder, TASK, prompt_name="query"), texts(*parts))]
    )
    mean = alone.mean(axis=0)
    np.testing.assert_allclose(value(result, "embedding"), mean / np.linalg.norm(mean), atol=1e-5)


def test_token_states_are_the_pipelines(tmp_path: Path) -> None:
    from transformers import pipeline

    folder = tiny_model_folder(tmp_path, "bert")
    results = score(plain_runner(folder, TASK, pooling="none"), texts(*TEXTS[:4]))
    wanted = pipeline(TASK, model=str(folder), device="cpu")(TEXTS[:4])
    for result, states in zip(results, wanted, strict=True):
        np.testing.assert_allclose(value(result, "token_embeddings"), np.array(states[0]), atol=1e-5)


def test_token_states_of_windows_cover_the_text_once(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    runner = plain_runner(folder, TASK, pooling="none", max_length=10, truncation="window", window_overlap=3)
    (row,) = runner.encode(texts(TEXTS[6]))
    assert len(row.sequences) > 3
    (result,) = score(runner, texts(TEXTS[6]))
    assert value(result, "token_embeddings").shape == (len(TEXTS[6].split()) + 2, HIDDEN)


# The head by itself


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from(POOLING_MODES),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_padding_never_changes_a_vector(lengths: list[int], mode: str, prompt_length: int, more: int) -> None:
    generator = torch.Generator().manual_seed(sum(lengths))
    longest = max(lengths) + more
    hidden = torch.randn(len(lengths), longest, 3, generator=generator)
    mask = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).long()
    pooling = Pooling([mode], prompt_length=prompt_length)
    together = pooling(hidden, mask)
    for row, length in enumerate(lengths):
        alone = pooling(hidden[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-6)


def test_a_head_in_half_precision_takes_and_gives_float32(tmp_path: Path) -> None:
    from setpoint.runners.encoder.sentence_folder import read_sentence_folder

    folder = sentence_folder(tmp_path, extra=(dense(16), TheirNormalize()))
    steps = read_sentence_folder(folder).steps
    whole = build_head(steps, hidden_size=HIDDEN)
    half = build_head(steps, hidden_size=HIDDEN).to(torch.bfloat16)
    hidden, mask = torch.randn(2, 5, HIDDEN), torch.ones(2, 5, dtype=torch.long)
    found = half(hidden.bfloat16(), mask)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, whole(hidden, mask), atol=2e-2, rtol=0)


def test_heads_can_be_traced_for_any_shape() -> None:
    head = build_head((), hidden_size=4, normalize=True)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(head, (torch.randn(2, 3, 4), mask))
    hidden = torch.randn(3, 7, 4)
    mask = (torch.arange(7) < torch.tensor([[7], [2], [5]])).long()
    torch.testing.assert_close(traced(hidden, mask), head(hidden, mask))
