"""What a sentence-transformers folder says: modules, pooling, prompts, lengths. Reads JSON only, no torch.

Formats as written by sentence-transformers 2 to 6. What is not understood is refused, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from setpoint.errors import ModelError

POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# Before version 6 each mode had a flag of its own; several may be set, and are then joined in this order.
_MODE_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingSpec:
    """How token states become one vector; several modes are joined end to end."""

    modes: tuple[str, ...]
    include_prompt: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSpec:
    """A linear layer after pooling: its folder, sizes and activation (dotted path of a torch.nn class)."""

    folder: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str
    residual: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizeSpec:
    """Scaling to unit length."""


Step = PoolingSpec | DenseSpec | NormalizeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceFolder:
    """A parsed folder; for a folder without modules.json everything is at its default and `steps` is empty."""

    transformer: Path  # where the transformers model and its tokenizer are
    steps: tuple[Step, ...] = ()
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"
    truncate_dim: int | None = None
    activation: str | None = None  # of a cross-encoder's score
    tokenizer_options: Mapping[str, Any] = field(default_factory=dict)
    config_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)


def read_sentence_folder(folder: Path) -> SentenceFolder:
    """Parse a model's folder. Raises ModelError for a module or a setting that is not supported."""
    top = _read(folder / "config_sentence_transformers.json")
    prompts = {name: text for name, text in (top.get("prompts") or {}).items() if text is not None}
    default = top.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ModelError(f"{folder}: default_prompt_name {default!r} is not among its prompts {sorted(prompts)}")
    modules = _modules(folder)
    transformer = folder / modules[0][1] if modules else folder
    settings = _transformer_settings(transformer)
    return SentenceFolder(
        transformer=transformer,
        steps=tuple(_step(folder, kind, path) for kind, path in modules[1:]),
        max_length=settings.get("max_seq_length"),
        lower_case=bool(settings.get("do_lower_case", False)),
        prompts=prompts,
        default_prompt=default,
        similarity=top.get("similarity_fn_name") or "cosine",
        truncate_dim=top.get("truncate_dim"),
        activation=top.get("activation_fn"),
        tokenizer_options=_options(settings, "processor_kwargs", "tokenizer_args"),
        config_options=_options(settings, "config_kwargs", "config_args"),
        model_options=_options(settings, "model_kwargs", "model_args"),
    )


def _modules(folder: Path) -> list[tuple[str, str]]:
    """(class name, relative path) of each module in order; the first is the transformer. Empty without modules.json."""
    path = folder / "modules.json"
    if not path.exists():
        return []
    found = [(str(entry.get("type", "")), str(entry.get("path", ""))) for entry in _read_list(path)]
    known = ("Transformer", "Pooling", "Dense", "Normalize")
    for number, (kind, where) in enumerate(found):
        name = kind.rpartition(".")[2]
        if (
            not kind.startswith("sentence_transformers.")
            or name not in known
            or (name == "Transformer") != (number == 0)
        ):
            raise ModelError(
                f"{path}: module {number} of type {kind!r} is not supported; Setpoint runs a Transformer followed by "
                f"{', '.join(known[1:])} of sentence-transformers"
            )
        if Path(where).is_absolute() or ".." in Path(where).parts:
            raise ModelError(f"{path}: module {number} points outside of the folder: {where!r}")
    return [(kind.rpartition(".")[2], where) for kind, where in found]


def _transformer_settings(folder: Path) -> dict[str, Any]:
    for name in _TRANSFORMER_CONFIGS:
        settings = _read(folder / name)
        if settings:
            break
    else:
        return {}
    modalities = settings.get("modality_config") or {"text": None}
    if "text" not in modalities or "message" in modalities:
        raise ModelError(f"{folder}: inputs of kind {', '.join(modalities)} are not supported, only plain text")
    for key in ("processing_kwargs", "query_expansion", "query_length", "document_length"):
        if settings.get(key):
            raise ModelError(f"{folder / name}: the setting {key} = {settings[key]!r} is not supported")
    return settings


def _options(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Keywords that the folder asks to pass on, except trust in remote code and where or how to run."""
    merged: dict[str, Any] = {}
    for name in names:
        merged.update(settings.get(name) or {})
    placed = ("trust_remote_code", "torch_dtype", "dtype", "attn_implementation", "device_map", "cache_dir", "token")
    return {key: value for key, value in merged.items() if key not in placed}


def _step(folder: Path, kind: str, where: str) -> Step:
    place = folder / where
    config = _read(place / "config.json")
    on = {config.get("module_input_name"), config.get("module_output_name")} - {None, "sentence_embedding"}
    if on:
        raise ModelError(f"{place}: a {kind} module over {', '.join(map(str, on))} is not supported")
    if kind == "Normalize":
        return NormalizeSpec()
    if kind == "Pooling":
        return _pooling(place, config)
    try:
        return DenseSpec(
            folder=place,
            in_features=int(config["in_features"]),
            out_features=int(config["out_features"]),
            bias=bool(config.get("bias", True)),
            activation=str(config.get("activation_function", "torch.nn.modules.activation.Tanh")),
            residual=bool(config.get("use_residual", False)),
        )
    except KeyError as error:
        raise ModelError(f"{place / 'config.json'} lacks {error}, which a Dense module needs") from error


def _pooling(place: Path, config: Mapping[str, Any]) -> PoolingSpec:
    named = config.get("pooling_mode")
    if named is None:
        modes = tuple(mode for flag, mode in _MODE_FLAGS.items() if config.get(flag)) or ("mean",)
    else:
        modes = (named,) if isinstance(named, str) else tuple(named)
    unknown = [mode for mode in modes if mode not in POOLING_MODES]
    unknown += [
        key for key, value in config.items() if key.startswith("pooling_mode_") and value and key not in _MODE_FLAGS
    ]
    if unknown:
        raise ModelError(f"{place}: pooling {', '.join(map(str, unknown))} is not supported")
    return PoolingSpec(modes=modes, include_prompt=bool(config.get("include_prompt", True)))


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    found = _parse(path)
    if not isinstance(found, dict):
        raise ModelError(f"{path} should hold a JSON object")
    return found


def _read_list(path: Path) -> list[dict[str, Any]]:
    found = _parse(path)
    if not isinstance(found, list) or not found or not all(isinstance(entry, dict) for entry in found):
        raise ModelError(f"{path} should hold a list of modules")
    return found


def _parse(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
