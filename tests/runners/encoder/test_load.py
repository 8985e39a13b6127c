from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoTokenizer, BartConfig, BartForSequenceClassification, BartModel
from transformers import PreTrainedTokenizerFast as FastTokenizer

from setpoint.errors import ModelError, UsageError
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.model import OutputKind
from setpoint.runners.encoder.options import EncoderOptions
from tests.runners.encoder.plain import plain_runner, score, texts, value
from tests.runners.encoder.tiny import tiny_model, tiny_model_folder, tiny_tokenizer


def load(folder: Path, task: str = "feature-extraction", **options):
    return load_model(EncoderOptions(model=str(folder), task=task, **options))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_model_comes_in_float32_and_ready(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification")
    model = load(folder, "text-classification")
    assert model.output is OutputKind.SEQUENCE_LOGITS
    assert model.labels == ("negative", "neutral", "positive")
    assert not model.network.training
    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in model.network.parameters())
    assert model.config.use_cache is False
    assert (model.max_length, model.uses_type_ids, model.multi_label) == (512, True, False)
    assert len(model.digest) == 32
    assert model.origin == "folder"


def test_a_half_precision_checkpoint_is_loaded_in_float32(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("bert", "feature-extraction")
    model.to(torch.bfloat16).save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    assert {parameter.dtype for parameter in load(tmp_path / "half").network.parameters()} == {torch.float32}


def test_loading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(tiny_model_folder(tmp_path, "bert"))
    capfd.readouterr()
    load(tmp_path / "bert-feature-extraction-0")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("text-classification", "classifier"),
        ("token-classification", "classifier"),
        ("zero-shot-classification", "classifier"),
        ("text-ranking", "classifier"),
    ],
)
def test_a_head_that_is_not_in_the_checkpoint_is_never_random(tmp_path: Path, task: str, said: str) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    with pytest.raises(ModelError, match=rf"cannot do {task}: .*{said}.*saved as BertModel"):
        load(folder, task)


def test_layers_that_are_missing_are_never_random(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    edit(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(ModelError, match=r"encoder\.layer\.2"):
        load(folder)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "its config cannot be loaded"),
        (lambda folder: (folder / "config.json").write_text("{}"), "its config cannot be loaded"),
        (lambda folder: edit(folder / "config.json", model_type="unheard-of"), "its config cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").unlink(), "its weights cannot be loaded"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 64), "its weights cannot be loaded"),
        (lambda folder: edit(folder / "config.json", hidden_size=64), "its weights cannot be loaded"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "its tokenizer cannot be loaded"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter only"),
    ],
)
def test_broken_folders_are_explained(tmp_path: Path, break_it, said: str) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    break_it(folder)
    with pytest.raises(ModelError, match=said):
        load(folder)


def test_foreign_code_is_not_run_unless_trusted(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    edit(folder / "config.json", model_type="mine", auto_map={"AutoConfig": "mine.Config", "AutoModel": "mine.Model"})
    (folder / "mine.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelError, match="--trust-remote-code"):
        load(folder)


def test_models_that_generate_are_refused(tmp_path: Path) -> None:
    folder = bart(tmp_path, BartModel)
    with pytest.raises(ModelError, match="encoder-decoder, made to generate text"):
        load(folder)


def bart(tmp_path: Path, kind) -> Path:
    tokenizer = tiny_tokenizer("roberta")
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        id2label={0: "contradiction", 1: "neutral", 2: "entailment"},
        label2id={"contradiction": 0, "neutral": 1, "entailment": 2},
    )
    torch.manual_seed(0)
    kind(config).save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    return tmp_path / "bart"


def test_classifiers_over_an_encoder_decoder_work(tmp_path: Path) -> None:
    from transformers import pipeline

    folder = bart(tmp_path, BartForSequenceClassification)
    sentences = ["order late", "printer crash again and again " * 6]
    runner = plain_runner(folder, "zero-shot-classification", labels=("refund", "good movie"))
    wanted = pipeline("zero-shot-classification", model=str(folder), device="cpu")(sentences, ["refund", "good movie"])
    for result, entry in zip(score(runner, texts(*sentences)), wanted, strict=True):
        assert value(result, "labels") == entry["labels"]
        assert value(result, "scores") == pytest.approx(entry["scores"], abs=1e-5)


def test_the_encoder_of_t5_gives_embeddings(tmp_path: Path) -> None:
    from transformers import T5Config, T5EncoderModel

    tokenizer = tiny_tokenizer("qwen3")
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
    )
    T5EncoderModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    edit(tmp_path / "config.json", is_encoder_decoder=True)
    (result,) = score(plain_runner(tmp_path, "feature-extraction"), texts("order late"))
    assert value(result, "embedding").shape == (32,)


@pytest.mark.parametrize(
    ("family", "task", "said"),
    [
        ("bert", "zero-shot-classification", "needs a model trained on natural language inference.*negative, neutral"),
        ("bert", "text-ranking", "needs a cross-encoder with one score; this model has 3 labels"),
    ],
)
def test_labels_that_do_not_fit_the_task(tmp_path: Path, family: str, task: str, said: str) -> None:
    folder = tiny_model_folder(tmp_path, family, "text-classification")
    with pytest.raises(ModelError, match=said):
        load(folder, task)


# Limits


@pytest.mark.parametrize(("family", "limit"), [("bert", 512), ("roberta", 512), ("mpnet", 512), ("modernbert", 512)])
def test_the_models_own_limit_holds(tmp_path: Path, family: str, limit: int) -> None:
    folder = tiny_model_folder(tmp_path, family)
    edit(folder / "tokenizer_config.json", model_max_length=10**30)
    assert load(folder).max_length == limit
    (result,) = score(plain_runner(folder, "feature-extraction"), texts("order " * 600))
    assert result.num_tokens == limit
    with pytest.raises(UsageError, match=f"max_length {limit + 1} is more than the model's {limit} positions"):
        load(folder, max_length=limit + 1)
    assert load(folder, max_length=7).max_length == 7


def test_the_tokenizers_limit_is_the_default_and_may_be_exceeded(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    edit(folder / "tokenizer_config.json", model_max_length=64)
    assert load(folder).max_length == 64
    assert load(folder, max_length=300).max_length == 300
    with pytest.raises(UsageError, match="at least 3"):
        load(folder, max_length=2)


def test_a_length_that_nobody_names_must_be_given(tmp_path: Path) -> None:
    from transformers import T5Config, T5EncoderModel

    tokenizer = tiny_tokenizer("qwen3")
    tokenizer.model_max_length = 10**30
    T5EncoderModel(
        T5Config(vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    ).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="give max_length"):
        load(tmp_path)
    assert load(tmp_path, max_length=100).max_length == 100


def test_an_overlap_must_leave_room(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    with pytest.raises(UsageError, match="window_overlap 10 must be smaller than the 10 tokens"):
        plain_runner(folder, "feature-extraction", max_length=12, truncation="window", window_overlap=10)


# Padding


def without_pad_token(folder: Path) -> None:
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    shutil.rmtree(folder / "tokenizer.json", ignore_errors=True)
    FastTokenizer(tokenizer_object=backend, eos_token="<eos>", unk_token="<unk>", model_max_length=512).save_pretrained(
        folder
    )


def test_a_classifier_over_a_decoder_without_a_pad_token(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "qwen3", "text-classification", pad_token_id=None)
    without_pad_token(folder)
    assert AutoTokenizer.from_pretrained(folder).pad_token is None
    model = load(folder, "text-classification")
    # Texts end with <eos>, so that can't be what marks padding: the last token would be taken for padding.
    assert model.tokenizer.pad_token == "<unk>"
    assert model.config.pad_token_id == model.network.model.config.pad_token_id == model.tokenizer.pad_token_id
    sentences = ["order late", "printer crash again", "good"]
    results = score(plain_runner(folder, "text-classification", top_k="all"), texts(*sentences))
    from transformers import pipeline

    pipe = pipeline("text-classification", model=str(folder), device="cpu", top_k=None)
    for result, entries in zip(results, [pipe(sentence) for sentence in sentences], strict=True):
        entries = entries[0] if isinstance(entries[0], list) else entries
        assert value(result, "labels") == [entry["label"] for entry in entries]
        assert value(result, "scores") == pytest.approx([entry["score"] for entry in entries], abs=1e-5)


def test_a_model_with_other_inputs_is_refused_by_name(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    ViTModel(
        ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    ).save_pretrained(tmp_path)
    tiny_tokenizer("bert").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="ViTModel"):
        load(tmp_path, max_length=64)


def test_tiny_models_are_what_transformers_loads(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    ours = load(folder).network.model
    theirs = AutoModel.from_pretrained(folder, config=AutoConfig.from_pretrained(folder))
    for (name, left), (other, right) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(left, right)
