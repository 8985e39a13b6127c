"""Tiny models with random weights, one of every family, saved as folders that `from_pretrained` loads. No network.

    folder = tiny_model_folder(tmp_path, "bert", "text-classification")

The tokenizer is real (WordPiece over words and single letters, so every ASCII text has tokens and rare words split into
several), with the special tokens, the pair template and the segment ids of the family.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers import PreTrainedTokenizerFast as FastTokenizer

_WORDS = """
the a of to and in is it for not with on was order refund login crash printer invoice late paris london alice bob acme
berlin works good bad great awful movie price support ticket server down again please help
"""
WORDS = tuple(_WORDS.split())
LETTERS = [chr(code) for code in range(33, 127) if not chr(code).isupper()]

HIDDEN = 32
_SIZES: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_DECODER: dict[str, Any] = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512}

# Settings of each family's config beyond the vocabulary and the special tokens. Two layers of each kind suffice.
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {**_SIZES, "max_position_embeddings": 512},
    "roberta": {**_SIZES, "max_position_embeddings": 514, "type_vocab_size": 1},
    "xlm-roberta": {**_SIZES, "max_position_embeddings": 514, "type_vocab_size": 1},
    "camembert": {**_SIZES, "max_position_embeddings": 514, "type_vocab_size": 1},
    "distilbert": {"dim": HIDDEN, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 512},
    "electra": {**_SIZES, "embedding_size": 16, "max_position_embeddings": 512},
    "albert": {**_SIZES, "embedding_size": 16, "max_position_embeddings": 512},
    "modernbert": {
        **_SIZES,
        "num_hidden_layers": 4,
        "global_attn_every_n_layers": 3,
        "local_attention": 8,
        "max_position_embeddings": 512,
    },
    "gte": {**_SIZES, "max_position_embeddings": 512},
    "nomic_bert": {**_SIZES, "max_position_embeddings": 512},
    "jina_embeddings_v3": {**_SIZES, "max_position_embeddings": 514},
    "eurobert": {**_DECODER},
    "mpnet": {**_SIZES, "max_position_embeddings": 514},
    "deberta-v2": {
        **_SIZES,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "qwen3": {**_DECODER},
    "llama": {**_DECODER},
    "mistral": {**_DECODER, "sliding_window": 8},
    "gemma3_text": {
        **_DECODER,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "sliding_window": 8,
        "query_pre_attn_scalar": 8,
        "use_bidirectional_attention": True,  # as EmbeddingGemma has it
    },
}

_ROBERTA_LIKE = {"roberta", "xlm-roberta", "camembert", "mpnet", "gte", "jina_embeddings_v3"}
DECODERS = {"qwen3", "llama", "mistral", "gemma3_text"}
NO_TYPE_IDS = _ROBERTA_LIKE | DECODERS | {"distilbert", "modernbert", "eurobert", "deberta-v2"}

_HEADS: dict[str, Callable[[Any], Any]] = {
    "feature-extraction": AutoModel.from_config,
    "text-classification": AutoModelForSequenceClassification.from_config,
    "zero-shot-classification": AutoModelForSequenceClassification.from_config,
    "text-ranking": AutoModelForSequenceClassification.from_config,
    "token-classification": AutoModelForTokenClassification.from_config,
}
_LABELS: dict[str, list[str]] = {
    "feature-extraction": [],
    "text-classification": ["negative", "neutral", "positive"],
    "zero-shot-classification": ["contradiction", "neutral", "entailment"],
    "text-ranking": ["LABEL_0"],
    "token-classification": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
}


def tiny_tokenizer(family: str, *, max_length: int = 512) -> FastTokenizer:
    """A WordPiece tokenizer with the family's special tokens: [CLS]/[SEP], <s>/</s>, or only an end mark."""
    if family in DECODERS:
        specials = ["<pad>", "<eos>", "<unk>", "<mask>"]
        names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>", "mask_token": "<mask>"}
        single, pair = "$A <eos>", "$A $B <eos>"
    elif family in _ROBERTA_LIKE:
        specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        names = {
            "bos_token": "<s>",
            "cls_token": "<s>",
            "eos_token": "</s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "mask_token": "<mask>",
        }
        single, pair = "<s> $A </s>", "<s> $A </s> </s> $B </s>"
    else:
        specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        names = {
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "mask_token": "[MASK]",
        }
        segment = "" if family in NO_TYPE_IDS else ":1"
        single, pair = "[CLS] $A [SEP]", f"[CLS] $A [SEP] $B{segment} [SEP]{segment}"
    vocabulary = {token: index for index, token in enumerate([*specials, *_pieces()])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, vocabulary[token]) for token in specials]
    )
    inputs = ["input_ids", "attention_mask"]
    if family not in NO_TYPE_IDS:
        inputs.insert(1, "token_type_ids")
    return FastTokenizer(tokenizer_object=tokenizer, model_max_length=max_length, model_input_names=inputs, **names)


@functools.cache
def _pieces() -> tuple[str, ...]:
    """Words whole, letters alone and as continuations."""
    words = dict.fromkeys([*LETTERS, *WORDS, *(f"##{letter}" for letter in LETTERS), "##s", "##ing", "##ed"])
    return tuple(words)


def tiny_config(family: str, task: str, tokenizer: FastTokenizer, **overrides: Any) -> Any:
    """The family's config at toy size, with the task's labels."""
    settings: dict[str, Any] = {
        **FAMILIES[family],
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if family in ("modernbert", "eurobert"):  # their defaults lie beyond a tiny vocabulary
        settings |= {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
        settings |= {"mask_token_id": tokenizer.mask_token_id}
    labels = _LABELS[task]
    if labels:
        settings["id2label"] = dict(enumerate(labels))
        settings["label2id"] = {label: index for index, label in enumerate(labels)}
    settings.update(overrides)
    return AutoConfig.for_model(family, **settings)


def tiny_model(family: str, task: str, *, seed: int = 0, **overrides: Any) -> tuple[Any, FastTokenizer]:
    """A float32 model in eval mode and its tokenizer. `overrides` are config settings."""
    tokenizer = tiny_tokenizer(family)
    config = tiny_config(family, task, tokenizer, **overrides)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _HEADS[task](config)
        # The usual 0.02 leaves attention almost uniform and tokens almost equal: a mistake in a mask would not show.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 1.0 if "embed" in name else 0.25)
                elif name.endswith("bias"):
                    parameter.normal_(0.0, 0.05)
    return model.eval(), tokenizer


def tiny_model_folder(
    tmp_path: Path, family: str, task: str = "feature-extraction", *, seed: int = 0, **overrides: Any
) -> Path:
    """Save a tiny model and its tokenizer under `tmp_path`; returns the folder."""
    model, tokenizer = tiny_model(family, task, seed=seed, **overrides)
    folder = tmp_path / f"{family}-{task}-{seed}"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
