"""What the tasks share: which values are texts, how over-long ones are fitted, how windows are put together again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from setpoint.domain.row import Reason, RowFailure, RowInput, RowResult
from setpoint.domain.task import Task
from setpoint.domain.truncation import Truncation
from setpoint.errors import UsageError
from setpoint.runners.base import EncodedRow, IntArray, ResultField, TokenSequence
from setpoint.runners.encoder.fit import FitPolicy, longest_first
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.prompts import choose_prompt
from setpoint.runners.encoder.tokens import Content, TextTokenizer

Array = npt.NDArray[Any]


class TaskCoder(Protocol):
    """Tokenizes a task's rows and reads its results; the model in between is an executor's business."""

    @property
    def fields(self) -> tuple[ResultField, ...]:
        """The result columns in order."""
        ...

    def encode(self, rows: Sequence[RowInput]) -> list[EncodedRow | RowFailure]:
        """Tokenize rows, one entry each, in order. Never raises for a bad row."""
        ...

    def decode(self, row: EncodedRow, outputs: Sequence[Array]) -> RowResult:
        """Turn the outputs of a row's sequences into its result."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text that goes before each text, and how many tokens it is."""

    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    """What every task's coder is made of."""

    model: EncoderModel
    options: EncoderOptions
    tokenizer: TextTokenizer
    policy: FitPolicy

    @property
    def multi_label(self) -> bool:
        """Whether labels are independent of each other: as the user says, else as the model does."""
        return self.model.multi_label if self.options.multi_label is None else self.options.multi_label

    @classmethod
    def of(cls, model: EncoderModel, options: EncoderOptions, tokenizer: TextTokenizer | None = None) -> Context:
        """Build; raises UsageError for an overlap that leaves a window nothing new."""
        tokenizer = tokenizer or TextTokenizer(model)
        overlap, room = options.window_overlap, model.max_length - tokenizer.single.num_special
        if overlap is not None and overlap >= room:
            raise UsageError(f"window_overlap {overlap} must be smaller than the {room} tokens of text in a window")
        policy = FitPolicy(truncation=options.truncation, window_overlap=overlap, keeps_end=tokenizer.keeps_end)
        return cls(model=model, options=options, tokenizer=tokenizer, policy=policy)

    def tokenize_texts(
        self, texts: Iterable[tuple[int, str, Any]], *, offsets: bool = False, prompt: Prompt | None = None
    ) -> tuple[list[Content | None], dict[int, RowFailure]]:
        """Validate and tokenize (row, name, value) triples, with a prompt before each text if there is one.

        Returns one Content each (None for a bad one), and each row's first failure by row.
        """
        before, num_before = ("", 0) if prompt is None else (prompt.text, prompt.num_tokens)
        items = list(texts)
        failures: dict[int, RowFailure] = {}
        good: list[int] = []
        for position, (row, name, value) in enumerate(items):
            failure = invalid_text(name, value)
            if failure is None:
                good.append(position)
            else:
                failures.setdefault(row, failure)
        contents: list[Content | None] = [None] * len(items)
        found = self.tokenizer.tokenize([before + items[position][2] for position in good], offsets=offsets)
        for position, content in zip(good, found, strict=True):
            row, name, _ = items[position]
            failure = self.unreadable(name, content.ids[num_before:])
            if failure is None:
                contents[position] = content
            else:
                failures.setdefault(row, failure)
        return contents, failures

    def prompt(self, *, name: str | None, text: str | None) -> Prompt:
        """The given prompt, the named one, or the folder's default; empty where there is none."""
        found = choose_prompt(self.model, name=name, text=text)
        num_tokens = len(self.tokenizer.tokenize([found])[0]) if found else 0
        return Prompt(text=found, num_tokens=num_tokens)

    def unreadable(self, name: str, ids: IntArray) -> RowFailure | None:
        """Why the model cannot read these tokens; None if it can."""
        if self.tokenizer.is_unknown(ids):
            return RowFailure(reason=Reason.UNKNOWN_TOKENS, detail=f"the tokenizer knows no part of {name}")
        return self.outside(name, ids)

    def outside(self, name: str, ids: IntArray) -> RowFailure | None:
        """The failure of a token that the model has no embedding for; on a GPU it would end the process."""
        found = self.tokenizer.outside(ids)
        if found is None:
            return None
        size = self.tokenizer.num_embeddings
        return RowFailure(reason=Reason.MODEL_FAILED, detail=f"{name} has token {found}, and the model knows {size}")

    def too_long(self, num_tokens: int) -> RowFailure:
        """The failure of a row that the policy does not cut."""
        return RowFailure(
            reason=Reason.TOO_LONG, detail=f"{num_tokens} tokens, and the limit is {self.tokenizer.max_length}"
        )


def invalid_text(name: str, value: Any) -> RowFailure | None:
    """Why a value cannot be read as a text; None if it can. Values come as users have them."""
    if isinstance(value, str):
        if not value or value.isspace():
            return RowFailure(reason=Reason.EMPTY_TEXT, detail=f"{name} is {'white space' if value else 'empty'}")
        return _invalid_unicode(name, value)
    if value is None or _is_nan(value):
        return RowFailure(reason=Reason.MISSING_TEXT, detail=f"{name} is missing")
    return RowFailure(reason=Reason.NOT_TEXT, detail=f"{name} is of type {type(value).__name__}")


def _invalid_unicode(name: str, value: str) -> RowFailure | None:
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return RowFailure(
            reason=Reason.INVALID_UNICODE, detail=f"{name} has a lone surrogate at character {error.start}"
        )
    return None


def _is_nan(value: Any) -> bool:
    """NaN of Python or numpy, and the missing values of pandas, which is not imported for the question."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFit:
    """Windows over one text of a pair, and the range of the other that goes into each of them."""

    spans: tuple[tuple[int, int], ...]
    other: tuple[int, int]
    truncated_tokens: int = 0


def fit_pair(context: Context, first: int, second: int, *, over_second: bool) -> PairFit | RowFailure:
    """Fit two texts of so many tokens into one sequence, or into windows over the first (or the second).

    Truncation cuts the longest first, as tokenizers do. Windows leave the other text at most half of the room.
    """
    tokenizer, policy = context.tokenizer, context.policy
    room = tokenizer.max_length - tokenizer.double.num_special
    length, other = (second, first) if over_second else (first, second)
    if first + second <= room:
        return PairFit(spans=((0, length),), other=(0, other))
    if policy.truncation in (Truncation.SKIP, Truncation.ERROR) or room < 2:
        return context.too_long(first + second + tokenizer.double.num_special)
    if policy.truncation is Truncation.TRUNCATE:
        kept = longest_first(first, second, room)
        kept_length, kept_other = kept[::-1] if over_second else kept
        fit, cut = policy.cut(length, kept_length), first + second - room
    else:
        kept_other = min(other, room // 2)
        windows = policy.fit(length, room - kept_other)
        assert windows is not None  # the policy is to make windows
        fit, cut = windows, other - kept_other
    return PairFit(spans=fit.spans, other=policy.cut(other, kept_other).spans[0], truncated_tokens=cut)


def encoded(sequences: Sequence[TokenSequence], *, truncated_tokens: int, extra: Any = None) -> EncodedRow:
    """An EncodedRow with its tokens counted."""
    return EncodedRow(
        sequences=tuple(sequences),
        num_tokens=sum(map(len, sequences)),
        truncated_tokens=truncated_tokens,
        extra=extra,
    )


def each_row(
    rows: Sequence[RowInput], failures: dict[int, RowFailure], encode: Callable[[int], EncodedRow | RowFailure]
) -> list[EncodedRow | RowFailure]:
    """A failure where there is one, else what `encode` makes of the row's number."""
    return [failures[number] if number in failures else encode(number) for number in range(len(rows))]


def weighted_mean(values: Sequence[Array], weights: Sequence[int]) -> Array:
    """The mean over windows, each counted by its tokens; float32, and of one window exactly that window."""
    if len(values) == 1:
        return values[0]
    mean: Array = np.average(np.stack(values), axis=0, weights=weights)
    return mean.astype(np.float32)


def stitch(windows: Sequence[Array], spans: Sequence[tuple[int, int]]) -> Array:
    """Join per-token arrays [length, ...] of overlapping windows: a shared token is read where it has more context.

    That is up to the middle of an overlap from the earlier window, and from there from the later one.
    """
    if len(windows) == 1:
        return windows[0]
    parts = []
    begin = spans[0][0]
    for number, (window, (start, stop)) in enumerate(zip(windows, spans, strict=True)):
        end = stop if number + 1 == len(spans) else (spans[number + 1][0] + stop + 1) // 2
        parts.append(window[begin - start : end - start])
        begin = end
    return np.concatenate(parts)


def refuse_extras(rows: Sequence[RowInput], task: Task, *, pair: bool, candidates: bool) -> dict[int, RowFailure]:
    """Rows that bring a second text or candidates to a task that would not read them."""
    failures: dict[int, RowFailure] = {}
    for number, row in enumerate(rows):
        if (row.has_pair and not pair) or (row.candidates is not None and not candidates):
            what = "a second text" if row.has_pair and not pair else "candidates"
            failures[number] = RowFailure(reason=Reason.INVALID_RECORD, detail=f"{task} does not take {what}")
    return failures
