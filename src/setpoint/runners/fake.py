"""A runner whose results, cost and failures are known beforehand: the ruler that jobs and measurements are held to.

Tokenizing is by whitespace, one token a word plus special tokens. A sequence's output depends on its own tokens and
on `model_seed` alone, never on who shares the batch. `forward` spends `a + b*tokens + c*sum len^2` seconds through
the function it was given: a fake clock's `advance`, `time.sleep`, or nothing at all.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.domain.task import Task
from setpoint.domain.truncation import Truncation
from setpoint.errors import OutOfMemory, UsageError
from setpoint.runners.base import EncodedRow, FieldKind, IntArray, ResultField, TokenSequence

CLS_ID, SEP_ID, UNK_ID = 1, 2, 3
FIRST_WORD_ID = 1_000
LABELS = ("negative", "neutral", "positive")
_WORD_IDS = 2**30  # as good as no collisions, and an int32 still holds it
_DEFAULT_SHAPE = BatchShape(max_batch_tokens=1_024)

_FIELDS: Mapping[Task, tuple[ResultField, ...]] = {
    Task.TEXT_CLASSIFICATION: (
        ResultField(name="label", kind=FieldKind.STRING),
        ResultField(name="score", kind=FieldKind.FLOAT),
    ),
    Task.ZERO_SHOT_CLASSIFICATION: (
        ResultField(name="labels", kind=FieldKind.STRINGS),
        ResultField(name="scores", kind=FieldKind.FLOATS),
    ),
    Task.TOKEN_CLASSIFICATION: (ResultField(name="entities", kind=FieldKind.ENTITIES),),
    Task.TEXT_RANKING: (ResultField(name="scores", kind=FieldKind.FLOATS),),
}


def token_id(word: str) -> int:
    """The id that the fake tokenizer gives a word; the same in every process. UNK_ID for a word it does not know."""
    if not any(character.isascii() or character.isalnum() for character in word):
        return UNK_ID
    return FIRST_WORD_ID + zlib.crc32(word.encode()) % _WORD_IDS


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCost:
    """What a batch costs: `a_s + b_s_per_token*tokens + c_s_per_token2*sum len^2`, counted as the runner's shape says.

    `noise` is the standard deviation of a relative error, drawn from `seed`. `first_call_s` is added to the first
    call only, `stalls_s` to the calls whose number (from 0) it names.
    """

    a_s: float = 0.0
    b_s_per_token: float = 0.0
    c_s_per_token2: float = 0.0
    noise: float = 0.0
    seed: int = 0
    first_call_s: float = 0.0
    stalls_s: Mapping[int, float] = field(default_factory=dict)

    def seconds(self, lengths: Sequence[int], cost: BatchCost) -> float:
        """The exact cost of a batch in seconds, without noise, first call and stalls."""
        if cost == BatchCost.PADDED:
            lengths = [max(lengths, default=0)] * len(lengths)
        squares = sum(length * length for length in lengths)
        return self.a_s + self.b_s_per_token * sum(lengths) + self.c_s_per_token2 * squares


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeFaults:
    """What goes wrong, by token id (see `token_id`) or by the size of a batch."""

    raises_on: Collection[int] = ()  # forward raises RuntimeError if any sequence of the batch holds one of these
    nan_on: Collection[int] = ()  # the sequences that hold one of these come out as NaN
    memory_tokens: int | None = None  # forward raises OutOfMemory for a batch of more tokens, counted by its cost


class FakeRunner:
    """Implements `setpoint.runners.base.Runner` without a model.

    `spend` is called with the seconds of each batch (`FakeClock().advance`, `time.sleep`; nothing by default).
    `on_forward` is called with each batch before anything else: to count, to block, or to raise on purpose.
    `max_length` is the longest sequence, special tokens included; None knows no limit. Rows that are too long under
    `Truncation.SKIP` and `Truncation.ERROR` come back as TOO_LONG: stopping is the job's decision.

    For checks afterwards: `batches` lists the lengths of every batch computed to its end (empty without
    `record_batches`, for measurements of memory), `spent_s` is their cost together, `num_calls` counts the calls that
    failed, too, and `max_concurrency` is the most callers seen at once.
    """

    def __init__(
        self,
        *,
        task: Task = Task.FEATURE_EXTRACTION,
        shape: BatchShape = _DEFAULT_SHAPE,
        cost: FakeCost | None = None,
        faults: FakeFaults | None = None,
        spend: Callable[[float], None] | None = None,
        on_forward: Callable[[Sequence[TokenSequence]], None] | None = None,
        max_length: int | None = None,
        truncation: Truncation = Truncation.TRUNCATE,
        embedding_size: int = 8,
        model_seed: int = 0,
        record_batches: bool = True,
    ) -> None:
        if max_length is not None and max_length < 4:
            raise UsageError(f"max_length must be at least 4 (special tokens and one word), not {max_length}")
        self._task = task
        self._shape = shape
        self._cost = cost or FakeCost()
        self._faults = faults or FakeFaults()
        self._spend = spend
        self._on_forward = on_forward
        self._max_length = max_length
        self._truncation = truncation
        self._embedding_size = embedding_size
        self._model_seed = model_seed
        self._record_batches = record_batches
        num_outputs = embedding_size if task is Task.FEATURE_EXTRACTION else len(LABELS)
        self._frequencies = np.random.default_rng(model_seed).uniform(0.1, 3.0, num_outputs)
        self._noise = np.random.default_rng(self._cost.seed)
        self._lock = threading.Lock()
        self._num_inside = 0
        self.batches: list[tuple[int, ...]] = []
        self.spent_s = 0.0
        self.num_calls = 0
        self.max_concurrency = 0

    @property
    def task(self) -> Task:
        """What it does."""
        return self._task

    @property
    def fields(self) -> Sequence[ResultField]:
        """The result columns that the task conventionally has."""
        if self._task is Task.FEATURE_EXTRACTION:
            return (ResultField(name="embedding", kind=FieldKind.VECTOR, size=self._embedding_size),)
        return _FIELDS[self._task]

    @property
    def shape(self) -> BatchShape:
        """The shape it was given."""
        return self._shape

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its numbers depend on."""
        return {
            "model": f"fake-{self._model_seed}",
            "task": str(self._task),
            "dtype": "float32",
            "backend": "fake",
            "max_length": self._max_length,
            "truncation": str(self._truncation),
            "embedding_size": self._embedding_size,
        }

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize rows, one entry each, in order. Never raises for a bad row."""
        return [self._encode_row(row) for row in rows]

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute one array a sequence, in order, after spending the batch's cost.

        Shapes: [embedding_size] for embeddings, [tokens, labels] for token classification, else [labels]. Raises
        OutOfMemory above `memory_tokens`, and RuntimeError on a token that `raises_on` names.
        """
        with self._lock:
            number = self.num_calls
            self.num_calls += 1
            self._num_inside += 1
            self.max_concurrency = max(self.max_concurrency, self._num_inside)
            relative_error = self._noise.normal() * self._cost.noise
        try:
            if self._on_forward is not None:
                self._on_forward(batch)
            return self._compute(batch, number, relative_error)
        finally:
            with self._lock:
                self._num_inside -= 1

    def decode(self, row: EncodedRow, outputs: Sequence[npt.NDArray[Any]]) -> RowResult:
        """Turn the outputs of a row's sequences into its result."""
        values = self._values(row, outputs)
        return RowResult(values=values, num_tokens=row.num_tokens, truncated_tokens=row.truncated_tokens)

    def _compute(self, batch: Sequence[TokenSequence], number: int, relative_error: float) -> list[npt.NDArray[Any]]:
        lengths = tuple(len(sequence) for sequence in batch)
        num_tokens = _batch_tokens(lengths, self._shape.cost)
        limit = self._faults.memory_tokens
        if limit is not None and num_tokens > limit:
            raise OutOfMemory(f"a batch of {len(batch)} sequences and {num_tokens} tokens exceeds {limit} tokens")
        duration_s = self._cost.seconds(lengths, self._shape.cost) * max(0.0, 1.0 + relative_error)
        duration_s += self._cost.stalls_s.get(number, 0.0) + (self._cost.first_call_s if number == 0 else 0.0)
        if self._spend is not None:
            self._spend(duration_s)
        for sequence in batch:
            for poison in self._faults.raises_on:
                if np.any(sequence.ids == poison):
                    raise RuntimeError(f"the fake model cannot compute token {poison}")
        outputs = [self._output(sequence) for sequence in batch]
        with self._lock:
            if self._record_batches:
                self.batches.append(lengths)
            self.spent_s += duration_s
        return outputs

    def _output(self, sequence: TokenSequence) -> npt.NDArray[np.float32]:
        if any(np.any(sequence.ids == poison) for poison in self._faults.nan_on):
            waves = np.full((len(sequence), len(self._frequencies)), np.nan)
        else:
            waves = np.sin(sequence.ids[:, None] * self._frequencies)
        return (waves if self._task is Task.TOKEN_CLASSIFICATION else waves.mean(axis=0)).astype(np.float32)

    def _encode_row(self, row: RowInput) -> EncodedRow | RowFailure:
        seconds = row.candidates if row.candidates is not None else (row.pair,) if row.has_pair else ()
        for name, value in [("text", row.text), *((f"second text {i}", value) for i, value in enumerate(seconds))]:
            failure = _invalid(name, value)
            if failure is not None:
                return failure
        words = [token_id(word) for word in row.text.split()]
        if all(word == UNK_ID for word in words):
            return RowFailure(reason=Reason.UNKNOWN_TOKENS, detail="no word of the text is in the vocabulary")
        sequences: list[TokenSequence] = []
        windows: list[int] = []  # how many sequences each second text (or the lone text) became
        truncated_tokens = 0
        for second in seconds if seconds or row.candidates is not None else (None,):
            second_words = None if second is None else [token_id(word) for word in second.split()]
            parts = self._fit(words, second_words)
            if isinstance(parts, RowFailure):
                return parts
            sequences.extend(_sequence(part, second_words) for part in parts)
            windows.append(len(parts))
            if self._truncation is Truncation.TRUNCATE:
                truncated_tokens += len(words) - len(parts[0])
        return EncodedRow(
            sequences=tuple(sequences),
            num_tokens=sum(map(len, sequences)),
            truncated_tokens=truncated_tokens,
            extra=(tuple(windows), row.candidates, row.text),
        )

    def _fit(self, words: list[int], second_words: list[int] | None) -> list[list[int]] | RowFailure:
        """Cut the first text, never the second, until the sequence fits: one part, or several windows."""
        if self._max_length is None:
            return [words]
        room = self._max_length - (2 if second_words is None else 3 + len(second_words))
        if len(words) <= room:
            return [words]
        if room < 1 or self._truncation in (Truncation.SKIP, Truncation.ERROR):
            length = self._max_length - room + len(words)
            return RowFailure(reason=Reason.TOO_LONG, detail=f"{length} tokens, the limit is {self._max_length}")
        if self._truncation is Truncation.TRUNCATE:
            return [words[:room]]
        stride = _stride(room)
        return [words[start : start + room] for start in range(0, len(words) - room + stride, stride)]

    def _values(self, row: EncodedRow, outputs: Sequence[npt.NDArray[Any]]) -> dict[str, Any]:
        windows, candidates, text = row.extra
        if self._task is Task.TOKEN_CLASSIFICATION:
            return {"entities": _entities(text, _word_outputs(outputs))}
        scores: list[npt.NDArray[Any]] = []
        start = 0
        for num_windows in windows:
            weights = [len(sequence) for sequence in row.sequences[start : start + num_windows]]
            combined = np.average(np.stack(outputs[start : start + num_windows]), axis=0, weights=weights)
            scores.append(combined.astype(np.float32))
            start += num_windows
        if self._task is Task.FEATURE_EXTRACTION:
            return {"embedding": scores[0]}
        if self._task is Task.TEXT_CLASSIFICATION:
            probabilities = np.exp(scores[0]) / np.exp(scores[0]).sum()
            best = int(probabilities.argmax())
            return {"label": LABELS[best], "score": float(probabilities[best])}
        entailment = [float(score[-1]) for score in scores]
        if self._task is Task.TEXT_RANKING:
            return {"scores": entailment}
        ranking = sorted(range(len(entailment)), key=lambda i: -entailment[i])
        return {"labels": [candidates[i] for i in ranking], "scores": [entailment[i] for i in ranking]}


def _batch_tokens(lengths: Sequence[int], cost: BatchCost) -> int:
    return len(lengths) * max(lengths, default=0) if cost == BatchCost.PADDED else sum(lengths)


def _sequence(words: list[int], second_words: list[int] | None) -> TokenSequence:
    ids = [CLS_ID, *words, SEP_ID]
    num_first = len(ids)
    if second_words is not None:
        ids += [*second_words, SEP_ID]
    type_ids: IntArray = (np.arange(len(ids)) >= num_first).astype(np.int32)
    return TokenSequence(np.array(ids, dtype=np.int32), type_ids)


def _invalid(name: str, value: Any) -> RowFailure | None:
    """Why a value cannot be read as a text; None if it can."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return RowFailure(reason=Reason.MISSING_TEXT, detail=f"{name} is missing")
    if not isinstance(value, str):
        return RowFailure(reason=Reason.NOT_TEXT, detail=f"{name} is {type(value).__name__}")
    if not value.strip():
        return RowFailure(reason=Reason.EMPTY_TEXT, detail=f"{name} is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return RowFailure(
            reason=Reason.INVALID_UNICODE, detail=f"{name} holds a lone surrogate at character {error.start}"
        )
    return None


def _word_outputs(windows: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The outputs of the words alone, [words, labels]: overlapping windows joined, the earlier one counts."""
    words = windows[0][1:-1]
    stride = _stride(len(words))
    for number, window in enumerate(windows[1:], start=1):
        words = np.concatenate([words, window[1:-1][len(words) - number * stride :]])
    return words


def _stride(room: int) -> int:
    """How many words after the start of a window the next one starts."""
    return max(1, room // 2)


def _entities(text: str, outputs: npt.NDArray[Any]) -> list[dict[str, Any]]:
    """One entity for every word of the (possibly cut) text whose best label is not neutral."""
    entities: list[dict[str, Any]] = []
    position = 0
    for word, logits in zip(text.split(), outputs):
        start = text.index(word, position)
        position = start + len(word)
        best = int(logits.argmax())
        if LABELS[best] != "neutral":
            score = float(np.exp(logits[best]) / np.exp(logits).sum())
            entities.append(
                {"entity_group": LABELS[best], "score": score, "word": word, "start": start, "end": position}
            )
    return entities
