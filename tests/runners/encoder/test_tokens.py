from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from setpoint.runners.encoder import tokens
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.tokens import TextTokenizer
from tests.runners.encoder.plain import plain_runner, texts
from tests.runners.encoder.tiny import WORDS, tiny_model_folder

FAMILIES = ["bert", "roberta", "distilbert", "mpnet", "qwen3"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory):
    def load(family: str, **options):
        folder = tiny_model_folder(tmp_path_factory.mktemp(family), family)
        return load_model(EncoderOptions(model=str(folder), task="feature-extraction", **options))

    return {family: load(family) for family in FAMILIES}


sentences = st.lists(st.sampled_from([*WORDS, "zebra!", "🙂", "x-ray", "[SEP]", "Äß"]), min_size=1, max_size=30).map(
    " ".join
)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(first=sentences, second=st.none() | sentences)
def test_sequences_are_those_of_the_tokenizer_itself(loaded, family: str, first: str, second: str | None) -> None:
    model = loaded[family]
    ours = TextTokenizer(model)
    given_texts = [first] if second is None else [first, second]
    sequence = ours.join(*(content.ids for content in ours.tokenize(given_texts)))
    theirs = model.tokenizer(first, second)
    assert sequence.ids.tolist() == theirs["input_ids"]
    assert sequence.ids.dtype == np.int32
    if model.uses_type_ids:
        assert sequence.type_ids is not None
        assert sequence.type_ids.tolist() == theirs["token_type_ids"]
    else:
        assert sequence.type_ids is None


@settings(max_examples=60, deadline=None)
@given(first=sentences, second=sentences, max_length=st.integers(5, 40))
def test_truncated_pairs_are_those_of_the_tokenizer(loaded, first: str, second: str, max_length: int) -> None:
    from setpoint.runners.encoder.fit import longest_first

    model = loaded["bert"]
    ours = TextTokenizer(model)
    a, b = ours.tokenize([first, second])
    kept_a, kept_b = longest_first(len(a), len(b), max_length - 3)
    theirs = model.tokenizer(first, second, truncation="longest_first", max_length=max_length)["input_ids"]
    assert ours.join(a.ids[:kept_a], b.ids[:kept_b]).ids.tolist() == theirs


def test_saved_truncation_and_padding_are_ignored(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    backend.save(str(folder / "tokenizer.json"))
    runner = plain_runner(folder, "feature-extraction")
    long, short = runner.encode(texts(" ".join(["order"] * 50), "order"))
    assert [row.num_tokens for row in (long, short)] == [52, 3]


def test_the_users_tokenizer_is_left_alone(loaded) -> None:
    model = loaded["bert"]
    model.tokenizer(["order"] * 2, truncation=True, max_length=4, padding="max_length")
    ours = TextTokenizer(model)
    model.tokenizer(["order"] * 2, truncation=True, max_length=4, padding="max_length")
    assert len(ours.tokenize(["order refund login crash printer"])[0]) == 5


def test_long_texts_in_pieces_give_the_same_tokens_and_offsets(loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = TextTokenizer(loaded["bert"])
    rng = np.random.default_rng(0)
    long = " ".join(rng.choice([*WORDS, "zebra!", "\n\n", "x-ray"], 3_000))
    whole = ours.tokenize([long, "order"], offsets=True)
    monkeypatch.setattr(tokens, "_PIECE_CHARACTERS", 2_000)
    monkeypatch.setattr(tokens, "_SLAB_CHARACTERS", 5_000)
    pieces = ours.tokenize([long, "order", long], offsets=True)
    for found, wanted in zip(pieces, [*whole, whole[0]], strict=True):
        assert found.ids.tolist() == wanted.ids.tolist()
        assert found.offsets is not None
        assert wanted.offsets is not None
        assert found.offsets.tolist() == wanted.offsets.tolist()


def test_a_cell_of_two_million_characters_takes_seconds_and_is_counted(loaded) -> None:
    ours = TextTokenizer(loaded["bert"])
    (content,) = ours.tokenize(["order " * 333_333 + "ab"])
    assert len(content) == 333_335
    (word,) = ours.tokenize(["a" * 2_000_000])
    assert ours.is_unknown(word.ids)


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary = {"<s>": 0, "</s>": 1, "<pad>": 2}
    vocabulary |= {character: index + 3 for character, index in alphabet.items()}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=64,
    )


def test_byte_level_tokenizers_know_every_text(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "roberta", vocab_size=300, pad_token_id=2)
    byte_level_tokenizer().save_pretrained(folder)
    runner = plain_runner(folder, "feature-extraction")
    emoji, spaced = runner.encode(texts("🙂", " a b"))
    assert emoji.num_tokens == 4 + 2
    assert spaced.sequences[0].ids.tolist() == runner.model.tokenizer(" a b")["input_ids"]


def test_truncation_side_left_keeps_the_end(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "truncation_side": "left"}))
    runner = plain_runner(folder, "feature-extraction", max_length=5)
    wanted = runner.model.tokenizer("order refund login crash", truncation=True, max_length=5)["input_ids"]
    (row,) = runner.encode(texts("order refund login crash"))
    assert row.sequences[0].ids.tolist() == wanted
    assert runner.model.tokenizer.decode(wanted) == "[CLS] refund login crash [SEP]"
    assert row.truncated_tokens == 1
