"""What users hand over, and the rows in it: one text or many, pairs, dictionaries, datasets, any iterable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.domain.task import Task
from setpoint.errors import UsageError, nearest

_PAIR_TASKS = (Task.TEXT_CLASSIFICATION, Task.TEXT_RANKING)
_TEXT_KEYS = {
    Task.ZERO_SHOT_CLASSIFICATION: ("text", "sequence"),
    Task.TEXT_RANKING: ("query", "text"),
}
_PAIR_KEYS = {Task.TEXT_CLASSIFICATION: ("text_pair",), Task.TEXT_RANKING: ("document", "text_pair")}
_MANY_KEYS = {Task.ZERO_SHOT_CLASSIFICATION: ("candidate_labels", "labels"), Task.TEXT_RANKING: ("documents",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The rows of one call, and in which form its answer goes back."""

    rows: Iterator[RowInput | RowFailure]
    is_single: bool = False
    is_list: bool = False
    is_text: bool = False  # a single row that was a bare text


def read_inputs(data: Any, task: Task) -> Inputs:
    """Tell a single row from a list and from an iterable. Raises UsageError for what is none of them."""
    if isinstance(data, str | bytes) or data is None or isinstance(data, Mapping) or _is_pair(data, task):
        return Inputs(rows=iter([to_row(data, task)]), is_single=True, is_text=isinstance(data, str))
    if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
        raise UsageError(f"give a text, a list of texts or an iterable, not {type(data).__name__}")
    is_table = hasattr(data, "column_names")  # a datasets.Dataset: its rows have columns that are none of ours
    rows = (to_row(value, task, ignore_others=is_table) for value in iter(data))
    return Inputs(rows=rows, is_list=not is_table and (isinstance(data, Sequence) or hasattr(data, "tolist")))


def to_row(value: Any, task: Task, *, ignore_others: bool = False) -> RowInput | RowFailure:
    """One row: a text, a pair of texts, or a dictionary with the task's keys. Bad texts are left for the tokenizer."""
    if isinstance(value, RowInput):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value, task, ignore_others=ignore_others)
    if task in _PAIR_TASKS and isinstance(value, tuple | list) and len(value) == 2:
        return RowInput(text=value[0], pair=value[1], has_pair=True)
    return RowInput(text=value)


def _is_pair(data: Any, task: Task) -> bool:
    """A tuple of two texts is one pair; a list of two texts is two rows."""
    return task in _PAIR_TASKS and isinstance(data, tuple) and len(data) == 2 and all(isinstance(x, str) for x in data)


def _from_mapping(value: Mapping[Any, Any], task: Task, *, ignore_others: bool) -> RowInput | RowFailure:
    text_keys, pair_keys = _TEXT_KEYS.get(task, ("text",)), _PAIR_KEYS.get(task, ())
    many_keys = _MANY_KEYS.get(task, ())
    known = (*text_keys, *pair_keys, *many_keys)
    if not ignore_others:
        for key in value:
            if key not in known:
                detail = f"unknown key {key!r}{nearest(str(key), known)}; {task} takes {', '.join(known)}"
                return RowFailure(reason=Reason.INVALID_RECORD, detail=detail)
    text = next((key for key in text_keys if key in value), None)
    if text is None:
        return RowFailure(
            reason=Reason.MISSING_COLUMN, detail=f"no {text_keys[0]!r} among {', '.join(map(str, value))}"
        )
    pair = next((key for key in pair_keys if key in value), None)
    many = next((key for key in many_keys if key in value), None)
    return RowInput(
        text=value[text],
        pair=None if pair is None else value[pair],
        has_pair=pair is not None,
        candidates=None if many is None else _several(value[many]),
    )


def _several(values: Any) -> tuple[Any, ...]:
    """Candidates of a row; a text is read as labels with commas between them, None as no candidates."""
    if isinstance(values, str):
        return tuple(part.strip() for part in values.split(",") if part.strip())
    return () if values is None else tuple(values)
