"""The runner of transformers encoders: a task's coder on both sides of an executor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy.typing as npt

from setpoint.domain.batch import BatchShape
from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.domain.task import Task
from setpoint.errors import UsageError
from setpoint.runners.base import EncodedRow, ResultField, TokenSequence
from setpoint.runners.encoder.executor import Executor
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.pooling import EmbeddingHead
from setpoint.runners.encoder.resolve import digests
from setpoint.runners.encoder.tasks.base import Context
from setpoint.runners.encoder.tasks.coders import make_coder
from setpoint.runners.encoder.tokens import TextTokenizer

# Options that say where and how fast, not what: the rest goes into the fingerprint.
_PLACEMENT = ("model", "revision", "trust_remote_code", "device", "dtype", "backend", "threads", "streams")
_BATCHING = ("batch_size", "max_batch_tokens")
_VERSIONS = ("torch", "transformers", "tokenizers", "openvino")


class EncoderRunner:
    """A model ready to score rows. `encode` and `decode` may be called from any thread."""

    def __init__(
        self,
        model: EncoderModel,
        options: EncoderOptions,
        *,
        executor: Executor,
        shape: BatchShape,
        tokenizer: TextTokenizer | None = None,
        notes: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.options = options
        self.executor = executor
        self.notes = tuple(notes)  # sentences for the user: why this executor, what did not match
        self.facts: Mapping[str, Any] = facts or {}  # JSON: what was measured and chosen, the audit of int8
        self._shape = shape
        self._context = Context.of(model, options, tokenizer)
        self._coder = make_coder(self._context)

    @property
    def task(self) -> Task:
        """What it does."""
        return self.options.task

    @property
    def fields(self) -> Sequence[ResultField]:
        """The task's result columns."""
        return self._coder.fields

    @property
    def shape(self) -> BatchShape:
        """The batches that the executor wants."""
        return self._shape

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its numbers depend on, in JSON's types."""
        found = digests(self.model.folder)
        options = dataclasses.asdict(self.options)
        told = {name: _as_json(value) for name, value in options.items() if name not in (*_PLACEMENT, *_BATCHING)}
        # In fewer bits a result may depend on who shares the batch, so there the batches are part of the description.
        batches = {} if self.executor.dtype == "float32" else {name: options[name] for name in _BATCHING}
        return {
            "model": found.model,
            "tokenizer": found.tokenizer,
            "dtype": self.executor.dtype,
            "backend": self.executor.name,
            **told,
            **batches,
            "max_length": self.model.max_length,
            "versions": {name: _version(name) for name in _VERSIONS},
        }

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize rows, one entry each, in order. Never raises for a bad row."""
        return self._coder.encode(rows)

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute one array a sequence, in order. Raises OutOfMemory when the batch does not fit."""
        return self.executor.forward(batch)

    def decode(self, row: EncodedRow, outputs: Sequence[npt.NDArray[Any]]) -> RowResult:
        """Turn the outputs of a row's sequences into its result."""
        return self._coder.decode(row, outputs)

    def with_options(self, **changes: Any) -> EncoderRunner:
        """The same model and executor under other options of the task: labels, prompt, aggregation and the like."""
        options = dataclasses.replace(self.options, **changes)
        head = self.model.network.pool
        is_other_prompt = (options.prompt, options.prompt_name) != (self.options.prompt, self.options.prompt_name)
        if is_other_prompt and isinstance(head, EmbeddingHead) and not head.include_prompt:
            raise UsageError("this model leaves its prompt out of the pooling: give the prompt when loading it")
        return EncoderRunner(
            self.model,
            options,
            executor=self.executor,
            shape=self._shape,
            tokenizer=self._context.tokenizer,
            notes=self.notes,
            facts=self.facts,
        )

    def close(self) -> None:
        """Release what the executor holds."""
        self.executor.close()


def load_encoder(options: EncoderOptions, *, sample: Iterable[RowInput] = ()) -> EncoderRunner:
    """Load a model, choose what runs it, and give both as a runner.

    `sample` is some of the user's own rows: the choice is measured on them, and int8 is calibrated on them. Raises
    ModelError, UsageError or MissingDependency, each saying what to do.
    """
    from setpoint.runners.encoder.load import load_model
    from setpoint.runners.encoder.select import select_executor

    model = load_model(options)
    tokenizer = TextTokenizer(model)
    encoded = make_coder(Context.of(model, options, tokenizer)).encode(list(sample))
    sequences = [sequence for row in encoded if isinstance(row, EncodedRow) for sequence in row.sequences]
    selection = select_executor(model, options, sample=sequences)
    return EncoderRunner(
        model,
        options,
        executor=selection.executor,
        shape=selection.shape,
        tokenizer=tokenizer,
        notes=(*_origin_note(model), *selection.notes),
        facts=selection.facts,
    )


def _origin_note(model: EncoderModel) -> tuple[str, ...]:
    """A name is served by whatever has it first, so it is said which that was."""
    if model.origin == "folder":
        return ()
    return (f"{model.source} comes from the {model.origin}: {model.folder}",)


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
