"""A loaded model as a callable, with the methods that sentence-transformers' users know."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from setpoint.api.arguments import call_changes, load_options
from setpoint.api.failures import Failures
from setpoint.api.inputs import Inputs, read_inputs, to_row
from setpoint.api.progress import progress
from setpoint.api.shapes import to_answer
from setpoint.api.stream import RowStream
from setpoint.domain.row import RowFailure, RowInput, RowResult
from setpoint.domain.task import Task
from setpoint.errors import UsageError
from setpoint.runners.encoder.runner import EncoderRunner, load_encoder

_log = logging.getLogger("setpoint")


def load(task: str, model: Any, *, errors: str = "null", sample: Iterable[Any] = (), **options: Any) -> Scorer:
    """Load `model` (a folder or a hub id) for `task`, on the fastest backend that gives its numbers.

    `options` are those of the command line with underscores (`dtype`, `device`, `max_length`, `truncation`, `labels`,
    `aggregation`, `pooling`, ...); names that transformers or sentence-transformers use for them are understood.
    `errors` says what becomes of a row without an answer: "null" gives None and one warning, "raise" raises. `sample`
    is some of your rows: speed is measured on them and int8 calibrated on them.

    Raises UsageError for a wrong option, ModelError for a model that cannot be loaded or cannot do the task.
    """
    chosen = load_options(task, model, options)
    Failures(errors)
    rows = (to_row(value, chosen.task) for value in sample)
    runner = load_encoder(chosen, sample=[row for row in rows if isinstance(row, RowInput)])
    for note in runner.notes:
        _log.info(note)
    return Scorer(runner, errors=errors)


class Scorer:
    """A loaded model. Call it with a text, a list, or any iterable; safe to call from several threads."""

    def __init__(self, runner: EncoderRunner, *, errors: str = "null") -> None:
        self.runner = runner
        self._errors = errors
        self._stream = RowStream(runner)

    @property
    def task(self) -> Task:
        """What it does."""
        return self.runner.task

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how the model is run."""
        return self.runner.notes

    def __call__(
        self,
        inputs: Any,
        candidate_labels: Any = None,
        *,
        batch_size: int | None = None,
        errors: str | None = None,
        **changes: Any,
    ) -> Any:
        """Answer rows in the shapes of transformers' pipeline for the task.

        A text gives its answer; a list (array, series, dataset column) a list; a dataset, generator or other iterable
        an iterator that reads ahead a bounded number of rows. Pairs are tuples or {"text", "text_pair"}. `changes` are
        options of the task for this call (`candidate_labels`, `top_k`, `aggregation_strategy`, ...). Raises UsageError
        for an option that there is not.
        """
        if candidate_labels is not None:
            changes["candidate_labels"] = candidate_labels
        given = call_changes(self.task, changes)
        runner = self.runner.with_options(**given) if given else self.runner
        read = read_inputs(inputs, self.task)
        failures = Failures(self._errors if errors is None else errors)
        answers = self._answers(runner, read, failures, batch_size)
        if read.is_single:
            (answer,) = answers  # to its end, where it warns
            return self._single(answer, is_text=read.is_text)
        return list(answers) if read.is_list else answers

    def encode(
        self,
        sentences: Any,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Embeddings as sentence-transformers gives them: float32 [rows, size], or [size] for one text.

        A tensor with `convert_to_tensor`, a list of tensors with neither. `prompt` stands before each text, or the
        folder's prompt of that name. A row without an answer is NaN, and a RowsFailedWarning says why.
        """
        from setpoint.runners.encoder.vectors import as_tensor, reshape

        self._need(Task.FEATURE_EXTRACTION, "encode")
        size = self.runner.fields[0].size
        if self.runner.fields[0].name != "embedding" or size is None:
            raise UsageError("encode gives one vector a text; load the model without pooling='none'")
        read = read_inputs(sentences, self.task)
        changes = {"prompt": prompt, "prompt_name": None if prompt is not None else prompt_name}
        runner = self.runner if prompt is None and prompt_name is None else self.runner.with_options(**changes)
        failures = Failures(self._errors)
        results = self._results(runner, read, failures, batch_size, show_progress_bar=bool(show_progress_bar))
        missing = np.full(size, np.nan, dtype=np.float32)
        rows = [missing if result is None else result.values["embedding"] for _, result in results]
        if not rows:
            return (
                as_tensor(np.empty(0, dtype=np.float32))
                if convert_to_tensor
                else np.array([])
                if convert_to_numpy
                else []
            )
        vectors = reshape(np.stack(rows), truncate_dim=truncate_dim, normalize=normalize_embeddings)
        if convert_to_tensor:
            return as_tensor(vectors)[0] if read.is_single else as_tensor(vectors)
        if convert_to_numpy:
            return vectors[0] if read.is_single else vectors
        return as_tensor(vectors)[0] if read.is_single else list(as_tensor(vectors))

    def encode_query(self, sentences: Any, **arguments: Any) -> Any:
        """`encode` with the folder's prompt for queries, if it has one."""
        return self.encode(sentences, **{"prompt_name": self._prompt_of("query"), **arguments})

    def encode_document(self, sentences: Any, **arguments: Any) -> Any:
        """`encode` with the folder's prompt for documents, if it has one."""
        return self.encode(sentences, **{"prompt_name": self._prompt_of("document", "passage", "corpus"), **arguments})

    def similarity(self, first: Any, second: Any) -> Any:
        """Scores of all pairs of embeddings, a tensor [rows of first, rows of second], by the folder's measure."""
        from setpoint.runners.encoder.sentence_folder import read_sentence_folder
        from setpoint.runners.encoder.vectors import similarity

        self._need(Task.FEATURE_EXTRACTION, "similarity")
        return similarity(first, second, read_sentence_folder(self.runner.model.folder).similarity)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Documents by how well they answer, best first: {corpus_id, score} and, if asked, text.

        A document without a score is an error, as a ranking without it would be wrong: raises InputError or ModelError.
        """
        self._need(Task.TEXT_RANKING, "rank")
        if top_k is not None and top_k < 1:
            raise UsageError(f"top_k must be at least 1, not {top_k}")
        rows = iter([RowInput(text=query, pair=document, has_pair=True) for document in documents])
        read = Inputs(rows=rows, is_list=True)
        failures = Failures("raise")
        results = self._results(self.runner, read, failures, batch_size, show_progress_bar=bool(show_progress_bar))
        found = [
            {"corpus_id": position, "score": result.values["score"]}
            | ({"text": documents[position]} if return_documents else {})
            for position, (_, result) in enumerate(results)
            if result is not None
        ]
        return sorted(found, key=lambda entry: -entry["score"])[:top_k]

    def close(self) -> None:
        """Release threads and what the executor holds."""
        self._stream.close()
        self.runner.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answers(
        self, runner: EncoderRunner, read: Inputs, failures: Failures, batch_size: int | None
    ) -> Iterator[Any]:
        results = self._results(runner, read, failures, batch_size)
        return (None if result is None else to_answer(runner.options, row, result) for row, result in results)

    def _results(
        self,
        runner: EncoderRunner,
        read: Inputs,
        failures: Failures,
        batch_size: int | None,
        *,
        show_progress_bar: bool = False,
    ) -> Iterator[tuple[RowInput | RowFailure, RowResult | None]]:
        """Each row with its result, None for a failed one; one warning at the end."""
        waiting: deque[RowInput | RowFailure] = deque()

        def kept() -> Iterator[RowInput | RowFailure]:
            for row in read.rows:
                waiting.append(row)
                yield row

        stream = self._stream.run(runner, kept(), batch_size=batch_size, whole_list=read.is_list)
        return _paired(progress(stream, shown=show_progress_bar), waiting, failures)

    def _single(self, answer: Any, *, is_text: bool) -> Any:
        """The pipeline gives a list for one text where it gives a dictionary for each of a list."""
        in_list = self.task is Task.TEXT_CLASSIFICATION and is_text and isinstance(answer, dict)
        return [answer] if in_list else answer

    def _need(self, task: Task, method: str) -> None:
        if self.task is not task:
            raise UsageError(f"{method} is for {task}; this model was loaded for {self.task}")

    def _prompt_of(self, *names: str) -> str | None:
        return next((name for name in names if name in self.runner.model.prompts), None)


def _paired(
    results: Iterator[RowResult | RowFailure], waiting: deque[RowInput | RowFailure], failures: Failures
) -> Iterator[tuple[RowInput | RowFailure, RowResult | None]]:
    number = -1
    for number, result in enumerate(results):
        row = waiting.popleft()
        if isinstance(result, RowFailure):
            failures.add(number, result)
            yield row, None
        else:
            yield row, result
    failures.warn(number + 1)
