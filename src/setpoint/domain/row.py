"""A row on its way through a job: what it asks, what went wrong with it, what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why a row has no result. The code stands first in the output's `error` column."""

    MISSING_TEXT = "missing_text"  # None, NaN, an empty cell of a nullable column
    EMPTY_TEXT = "empty_text"  # "" or nothing but whitespace
    NOT_TEXT = "not_text"  # a number, list or object where text was expected
    INVALID_UNICODE = "invalid_unicode"  # a lone surrogate, bytes that are not UTF-8
    UNKNOWN_TOKENS = "unknown_tokens"  # the tokenizer knows no part of it (an emoji for many models)
    TOO_LONG = "too_long"  # longer than the model's limit under --truncation skip
    INVALID_RECORD = "invalid_record"  # a ragged CSV row, a line that is not JSON
    MISSING_COLUMN = "missing_column"  # a JSON line without the field
    OUT_OF_MEMORY = "out_of_memory"  # does not fit even alone
    NOT_FINITE = "not_finite"  # the model answered NaN or infinity
    MODEL_FAILED = "model_failed"  # the model raised on this row alone


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    """A row that gets a null and a reason while the rest go on."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowInput:
    """What one row asks, before tokenizing.

    `text` alone for most tasks; `pair` for premise/hypothesis or query/passage pairs; `candidates` for many
    sequences a row: the labels of zero-shot classification, the documents of a ranking. Values come as users have
    them (possibly None, NaN, numbers), so the runner's `encode` is what validates them.
    """

    text: Any
    pair: Any = None
    has_pair: bool = False  # tells a missing second text from a row without one
    candidates: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """A row that came out: `values` has one entry for each of the runner's result fields.

    `num_tokens` counts what the model read for this row (special tokens included, padding excluded, all sequences of
    the row together); `truncated_tokens` counts what was cut away.
    """

    values: Mapping[str, Any]
    num_tokens: int
    truncated_tokens: int = 0
