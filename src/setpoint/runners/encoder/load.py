"""From options to a model that an executor can run: transformers model, tokenizer, head, limits.

Whatever would give made-up numbers is refused here: a head that the checkpoint does not hold, a tokenizer without a
vocabulary, a module that is not understood.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from setpoint.domain.task import Task
from setpoint.errors import ModelError, UsageError
from setpoint.runners.encoder.limits import find_max_length, give_pad_token, uses_type_ids
from setpoint.runners.encoder.model import EncoderModel, EncoderNetwork, OutputKind
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.pooling import EmbeddingHead, build_head
from setpoint.runners.encoder.prompts import choose_prompt
from setpoint.runners.encoder.resolve import digests, resolve_model
from setpoint.runners.encoder.sentence_folder import SentenceFolder, read_sentence_folder

# What transformers raises for folders it cannot load, and models for inputs they cannot take.
_ERRORS = (OSError, ValueError, RuntimeError, LookupError, ImportError, AttributeError, TypeError, SafetensorError)
_VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_SEQUENCE_TASKS = (Task.TEXT_CLASSIFICATION, Task.ZERO_SHOT_CLASSIFICATION, Task.TEXT_RANKING)


def load_model(options: EncoderOptions) -> EncoderModel:
    """Load a model for a task, in float32 on the CPU, in eval mode.

    Raises ModelError where the folder is incomplete or the model cannot do the task, UsageError where an option does
    not fit the model.
    """
    found = resolve_model(options.model, revision=options.revision)
    folder = read_sentence_folder(found.folder)
    with _quiet_transformers():
        config = _load_config(folder, options)
        tokenizer = _load_tokenizer(folder, options)
        transformer = _load_transformer(folder, config, options)
    config = transformer.config  # loading copies it
    labels = _labels(config, options.task)
    give_pad_token(tokenizer, config)
    head = _build_head(folder, tokenizer, config, options)
    output = _output_kind(options)
    model = EncoderModel(
        source=options.model,
        folder=found.folder,
        task=options.task,
        output=output,
        network=EncoderNetwork(transformer, output=output, pool=head).eval(),
        tokenizer=tokenizer,
        config=config,
        max_length=find_max_length(transformer, tokenizer, config, folder.max_length, options),
        uses_type_ids=uses_type_ids(transformer, tokenizer, config),
        labels=labels,
        multi_label=_is_multi_label(options, config),
        prompts=folder.prompts,
        default_prompt=folder.default_prompt,
        embedding_size=_embedding_size(head, output, config),
        origin=found.origin,
        digest=digests(found.folder).together,
    )
    _probe(model)
    return model


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keep load reports and progress bars off the terminal; what matters in them is checked and raised here."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _load_config(folder: SentenceFolder, options: EncoderOptions) -> Any:
    place = folder.transformer
    if (place / "adapter_config.json").exists():
        raise ModelError(
            f"{place} holds an adapter only; merge it into its base model (merge_and_unload) and save that"
        )
    if not (place / "config.json").exists():
        raise ModelError(f"{place} has no config.json, so it is not the folder of a transformers model")
    try:
        config = transformers.AutoConfig.from_pretrained(
            place, trust_remote_code=options.trust_remote_code, **folder.config_options
        )
    except _ERRORS as error:
        raise ModelError(_explain(folder, options, "its config", error)) from error
    if hasattr(config, "use_cache"):
        config.use_cache = False  # an encoder has no use for key-value caches
    return config


def _load_tokenizer(folder: SentenceFolder, options: EncoderOptions) -> Any:
    place = folder.transformer
    # Without these transformers builds a tokenizer that knows nothing but its special tokens, and does not say so.
    if not any((place / name).exists() for name in _VOCABULARIES):
        raise ModelError(
            f"{place} has no tokenizer (none of {', '.join(_VOCABULARIES)}); save it beside the model with "
            "tokenizer.save_pretrained(folder)"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            place, trust_remote_code=options.trust_remote_code, **folder.tokenizer_options
        )
    except _ERRORS as error:
        raise ModelError(_explain(folder, options, "its tokenizer", error)) from error
    if not tokenizer.is_fast:
        raise ModelError(f"{place}: only fast tokenizers are supported, and {type(tokenizer).__name__} is not one")
    if folder.lower_case:
        _lower_case(tokenizer)
    return tokenizer


def _lower_case(tokenizer: Any) -> None:
    """Lowercase before anything else, unless the tokenizer does so already."""
    from tokenizers import normalizers

    backend = tokenizer.backend_tokenizer
    present = backend.normalizer
    if present is None:
        backend.normalizer = normalizers.Lowercase()
    elif "Lowercase" not in repr(present) and "lowercase=True" not in repr(present):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), present])


def _load_transformer(folder: SentenceFolder, config: Any, options: EncoderOptions) -> Any:
    auto = _auto_class(folder, config, options)
    try:
        model, report = auto.from_pretrained(
            folder.transformer,
            config=config,
            dtype=torch.float32,
            trust_remote_code=options.trust_remote_code,
            output_loading_info=True,
            **folder.model_options,
        )
    except _ERRORS as error:
        raise ModelError(_explain(folder, options, "its weights", error)) from error
    missing = sorted(report["missing_keys"])
    if options.task is Task.FEATURE_EXTRACTION:  # a bare model's own pooler is not used
        missing = [key for key in missing if "pooler" not in key.split(".")]
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        trained_as = ", ".join(config.architectures or ["nothing in particular"])
        raise ModelError(
            f"model {options.model!r} cannot do {options.task}: the checkpoint holds no weights for {shown}, which "
            f"would be random numbers. It was saved as {trained_as}; choose a model trained for {options.task}."
        )
    return model.eval().requires_grad_(False)


def _auto_class(folder: SentenceFolder, config: Any, options: EncoderOptions) -> Any:
    """The transformers class for the task. Refuses models that generate."""
    if options.task in _SEQUENCE_TASKS:
        if any(folder.steps):
            raise ModelError(f"model {options.model!r} is an embedding model; use --task {Task.FEATURE_EXTRACTION}")
        return transformers.AutoModelForSequenceClassification
    if options.task is Task.TOKEN_CLASSIFICATION:
        return transformers.AutoModelForTokenClassification
    if MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(config.model_type, "").endswith("EncoderModel"):
        return transformers.AutoModelForTextEncoding  # T5 and its kin: the encoder alone
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"model {options.model!r} ({config.model_type}) is an encoder-decoder, made to generate text; "
            f"{options.task} needs an encoder or a decoder alone"
        )
    return transformers.AutoModel


def _explain(folder: SentenceFolder, options: EncoderOptions, what: str, error: BaseException) -> str:
    """One message for the many ways in which transformers says that it cannot load a folder."""
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:
        return (
            f"model {options.model!r} brings its own Python code, which is not run unless you trust it: read it in "
            f"{folder.transformer} and then give trust_remote_code (--trust-remote-code)"
        )
    if "Unrecognized configuration class" in text:
        return f"model {options.model!r} cannot do {options.task}: transformers has no such head for its architecture"
    return f"model {options.model!r}: {what} cannot be loaded from {folder.transformer}: {text[:600]}"


def _labels(config: Any, task: Task) -> tuple[str, ...]:
    if task is Task.FEATURE_EXTRACTION:
        return ()
    labels = tuple(str(config.id2label[index]) for index in sorted(config.id2label))
    if task is Task.ZERO_SHOT_CLASSIFICATION and not any(label.lower().startswith("entail") for label in labels):
        raise ModelError(
            f"zero-shot classification needs a model trained on natural language inference, with a label "
            f"'entailment' in its config; this one has {', '.join(labels)}"
        )
    if task is Task.TEXT_RANKING and len(labels) != 1:
        raise ModelError(
            f"{task} needs a cross-encoder with one score; this model has {len(labels)} labels "
            f"({', '.join(labels)}), so use --task {Task.TEXT_CLASSIFICATION} with pairs"
        )
    return labels


def _is_multi_label(options: EncoderOptions, config: Any) -> bool:
    if options.multi_label is not None:
        return options.multi_label
    return (
        options.task is Task.TEXT_CLASSIFICATION
        and getattr(config, "problem_type", None) == "multi_label_classification"
    )


def _output_kind(options: EncoderOptions) -> OutputKind:
    if options.task in _SEQUENCE_TASKS:
        return OutputKind.SEQUENCE_LOGITS
    if options.task is Task.TOKEN_CLASSIFICATION:
        return OutputKind.TOKEN_LOGITS
    return OutputKind.TOKEN_STATES if options.pooling == "none" else OutputKind.EMBEDDING


def _build_head(folder: SentenceFolder, tokenizer: Any, config: Any, options: EncoderOptions) -> EmbeddingHead | None:
    if _output_kind(options) is not OutputKind.EMBEDDING:
        if options.truncate_dim is not None or options.normalize:
            raise UsageError("truncate_dim and normalize need one vector a text; they do not go with pooling='none'")
        return None
    prompt = choose_prompt(folder, name=options.prompt_name, text=options.prompt)
    return build_head(
        folder.steps,
        hidden_size=config.hidden_size,
        pooling=options.pooling,
        normalize=options.normalize,
        truncate_dim=options.truncate_dim if options.truncate_dim is not None else folder.truncate_dim,
        prompt_length=_prompt_length(tokenizer, prompt) if prompt else 0,
    )


def _prompt_length(tokenizer: Any, prompt: str) -> int:
    """How many leading tokens belong to the prompt: all that it gives alone but for a closing special token."""
    ids = tokenizer(prompt)["input_ids"]
    return len(ids) - (1 if ids and ids[-1] in tokenizer.all_special_ids else 0)


def _embedding_size(head: EmbeddingHead | None, output: OutputKind, config: Any) -> int | None:
    if head is not None:
        return head.size
    return int(config.hidden_size) if output is OutputKind.TOKEN_STATES else None


def _probe(model: EncoderModel) -> None:
    """Run one short sequence, so that a model with other inputs or outputs fails here and says so."""
    ids = torch.tensor([model.tokenizer("a")["input_ids"] or [0]])
    type_ids = torch.zeros_like(ids) if model.uses_type_ids else None
    try:
        with torch.inference_mode():
            out = model.network(ids, torch.ones_like(ids), type_ids)
    except _ERRORS as error:
        raise ModelError(
            f"model {model.source!r} ({type(model.network.model).__name__}) does not work as an encoder of text for "
            f"{model.task}: {error}"
        ) from error
    width = model.embedding_size if model.embedding_size is not None else len(model.labels)
    if out.shape[-1] != width:
        raise ModelError(f"model {model.source!r} gives {out.shape[-1]} numbers where its config says {width}")
