"""What a user may say about an encoder, validated once. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.domain.task import Task, parse_task
from setpoint.domain.truncation import Truncation
from setpoint.errors import UsageError, nearest, unknown

DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")
DTYPE_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "float": "float32", "half": "float16"}
BACKENDS = ("auto", "torch", "openvino")
POOLINGS = ("auto", "mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", "none")
FUNCTIONS = ("softmax", "sigmoid", "none")
AGGREGATIONS = ("none", "simple", "first", "average", "max")
DEFAULT_TEMPLATE = "This example is {}."
ALL_LABELS = "all"

_POSITIVE = ("max_length", "truncate_dim", "batch_size", "max_batch_tokens", "threads", "streams")
_BOOLEANS = ("trust_remote_code", "multi_label", "normalize", "documents", "batch_invariant")

# Options that only some tasks read: giving one to another task is a mistake worth saying.
_TASKS_OF = {
    "top_k": (Task.TEXT_CLASSIFICATION,),
    "function_to_apply": (Task.TEXT_CLASSIFICATION, Task.TEXT_RANKING),
    "multi_label": (Task.TEXT_CLASSIFICATION, Task.ZERO_SHOT_CLASSIFICATION),
    "labels": (Task.ZERO_SHOT_CLASSIFICATION,),
    "hypothesis_template": (Task.ZERO_SHOT_CLASSIFICATION,),
    "aggregation": (Task.TOKEN_CLASSIFICATION,),
    "ignore_labels": (Task.TOKEN_CLASSIFICATION,),
    "pooling": (Task.FEATURE_EXTRACTION,),
    "normalize": (Task.FEATURE_EXTRACTION,),
    "prompt_name": (Task.FEATURE_EXTRACTION, Task.TEXT_RANKING),
    "prompt": (Task.FEATURE_EXTRACTION, Task.TEXT_RANKING),
    "documents": (Task.TEXT_RANKING,),
    "truncate_dim": (Task.FEATURE_EXTRACTION,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions:
    """A model, a task, and how to run both. Raises UsageError that names the option and the value.

    Lengths are in tokens, special tokens included. None means: as the model's folder or the task says.
    """

    model: str
    task: Task
    revision: str | None = None
    trust_remote_code: bool = False
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    dtype: str = "auto"  # one of DTYPES, or an alias
    backend: str = "auto"  # one of BACKENDS
    max_length: int | None = None
    truncation: Truncation = Truncation.TRUNCATE
    window_overlap: int | None = None  # tokens that neighbouring windows share; None: an eighth of the window
    top_k: int | str | None = None  # that many labels a row, "all", or None: the best one alone
    function_to_apply: str | None = None  # one of FUNCTIONS
    multi_label: bool | None = None
    labels: tuple[str, ...] | None = None  # candidate labels of zero-shot classification
    hypothesis_template: str = DEFAULT_TEMPLATE
    aggregation: str = "none"  # one of AGGREGATIONS
    ignore_labels: tuple[str, ...] = ("O",)
    pooling: str = "auto"  # one of POOLINGS; "none" gives token states
    normalize: bool | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    truncate_dim: int | None = None
    documents: bool = False  # text-ranking: a row is a query with a list of documents, not a pair
    batch_size: int | None = None
    max_batch_tokens: int | None = None
    threads: int | None = None
    streams: int | None = None
    batch_invariant: bool = False

    @classmethod
    def from_keywords(cls, values: Mapping[str, Any]) -> EncoderOptions:
        """Build from a user's keywords; an unknown key is a UsageError that names the nearest."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise UsageError(unknown("option", key, known))
        for key in ("model", "task"):
            if key not in values:
                raise UsageError(f"the option {key!r} is required")
        return cls(**values)

    def __post_init__(self) -> None:
        self._set("model", _model_name(self.model))
        self._set("task", self.task if isinstance(self.task, Task) else parse_task(_text("task", self.task)))
        self._set("dtype", _choice("dtype", self.dtype, DTYPES, DTYPE_ALIASES))
        self._set("backend", _choice("backend", self.backend, BACKENDS))
        self._set("truncation", Truncation(_choice("truncation", self.truncation, tuple(Truncation))))
        self._set("pooling", _choice("pooling", self.pooling, POOLINGS))
        self._set("aggregation", _choice("aggregation", self.aggregation, AGGREGATIONS))
        if self.function_to_apply is not None:
            self._set("function_to_apply", _choice("function_to_apply", self.function_to_apply, FUNCTIONS))
        for name in _POSITIVE:
            _check_count(name, getattr(self, name), minimum=1)
        for name in _BOOLEANS:
            if not isinstance(getattr(self, name), bool | None):
                raise UsageError(f"{name} must be true or false, not {getattr(self, name)!r}")
        _check_count("window_overlap", self.window_overlap, minimum=0)
        self._check_device()
        self._check_labels()
        self._check_prompts()
        self._check_relevance()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_device(self) -> None:
        kind, _, index = _text("device", self.device).lower().partition(":")
        kinds = ("auto", "cpu", "cuda", "mps", "xpu")
        if kind not in kinds:
            raise UsageError(unknown("device", self.device, kinds))
        if index and not (index.isdecimal() and kind in ("cuda", "xpu")):
            raise UsageError(f"device {self.device!r} has no index {index!r}; write for example cuda:1")
        self._set("device", self.device.lower())

    def _check_labels(self) -> None:
        if self.top_k != ALL_LABELS:
            if isinstance(self.top_k, str):
                raise UsageError(f"top_k must be a positive number or {ALL_LABELS!r}, not {self.top_k!r}")
            _check_count("top_k", self.top_k, minimum=1)
        if self.labels is not None:
            self._set("labels", parse_labels(self.labels))
        self._set("ignore_labels", _strings("ignore_labels", self.ignore_labels))
        check_template(self.hypothesis_template)

    def _check_prompts(self) -> None:
        for name in ("prompt_name", "prompt", "revision"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise UsageError(f"{name} must be text, not {value!r}")
        if self.prompt_name is not None and self.prompt is not None:
            raise UsageError("give prompt_name (a prompt of the model's folder) or prompt (its text), not both")

    def _check_relevance(self) -> None:
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name, tasks in _TASKS_OF.items():
            value = getattr(self, name)
            if value != defaults[name] and self.task not in tasks:
                raise UsageError(f"{name}={value!r} means nothing to {self.task}; it is for {' and '.join(tasks)}")


def parse_labels(labels: Any) -> tuple[str, ...]:
    """Candidate labels from a list, or from a text with commas. Raises UsageError for none, blanks or repeats."""
    if isinstance(labels, str):
        labels = [label.strip() for label in labels.split(",") if label.strip()]
    found = _strings("labels", labels)
    if not found:
        raise UsageError("labels is empty; zero-shot classification needs at least one candidate label")
    for label in found:
        if not label.strip():
            raise UsageError(f"labels has a blank entry: {list(found)!r}")
    repeated = sorted({label for label in found if found.count(label) > 1})
    if repeated:
        raise UsageError(f"labels repeats {', '.join(map(repr, repeated))}")
    return found


def check_template(template: Any) -> None:
    """Raise UsageError unless the template is text with a place for the label."""
    advice = "write {} where the label goes, as in 'This example is {}.'"
    if not isinstance(template, str):
        raise UsageError(f"hypothesis_template must be text, not {template!r}; {advice}")
    try:
        differs = template.format("a") != template.format("b")
    except (IndexError, KeyError, ValueError) as error:
        raise UsageError(f"hypothesis_template {template!r} cannot be filled in ({error!r}); {advice}") from error
    if not differs:
        raise UsageError(f"hypothesis_template {template!r} has no place for the label; {advice}")


def _model_name(model: Any) -> str:
    name = str(model) if hasattr(model, "__fspath__") else model
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"model must be a folder or a hub id such as 'org/name', not {model!r}")
    return name


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {value!r}")
    return value


def _strings(name: str, values: Any) -> tuple[str, ...]:
    try:
        found = (values,) if isinstance(values, str) else tuple(values)
    except TypeError:
        raise UsageError(f"{name} must be a list of texts, not {values!r}") from None
    for value in found:
        if not isinstance(value, str):
            raise UsageError(f"{name} must be a list of texts; {value!r} is not one")
    return found


def _choice(name: str, value: Any, known: tuple[str, ...], aliases: Mapping[str, str] | None = None) -> str:
    word = _text(name, value).strip().lower()
    word = (aliases or {}).get(word, word)
    if word not in known:
        found = nearest(word, [*known, *(aliases or {})])
        raise UsageError(f"unknown {name} {str(value)!r}{found}; known: {', '.join(known)}")
    return word


def _check_count(name: str, value: Any, *, minimum: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number, not {value!r}")
    if value < minimum:
        raise UsageError(f"{name} must be at least {minimum}, not {value}")
