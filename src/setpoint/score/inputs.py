"""From the columns of a chunk to what each row asks of the model."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.domain.task import Task
from setpoint.errors import UsageError
from setpoint.score.sources.base import Chunk, choose_text_column, require_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlan:
    """Which columns hold what; None where the user did not say."""

    column: str | None = None
    template: str | None = None  # `{title}\n{body}`: instead of a column
    pair_column: str | None = None
    labels_column: str | None = None  # candidate labels of each row, instead of the same ones for all
    query_column: str | None = None  # ranking: with documents_column, instead of column and pair_column
    documents_column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedInputs:
    """An input plan that fits a task and a source: exactly one of `column` and `template` is given."""

    column: str | None
    template: Template | None
    pair_column: str | None
    candidates_column: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        first = self.template.columns if self.template is not None else (self.column,)
        found = (*first, self.pair_column, self.candidates_column)
        return tuple(dict.fromkeys(column for column in found if column is not None))

    def describe(self) -> dict[str, Any]:
        """For a fingerprint."""
        return {
            "column": self.column,
            "template": self.template.text if self.template is not None else None,
            "pair_column": self.pair_column,
            "candidates_column": self.candidates_column,
        }

    def rows(self, chunk: Chunk, *, is_ranking: bool) -> list[RowInput | RowFailure]:
        """What each row of the chunk asks, or why it cannot ask."""
        texts = self._texts(chunk)
        pairs = self._cells(chunk, self.pair_column)
        parse = _parse_documents if is_ranking else _parse_labels
        candidates = self._candidates(chunk, parse)
        if pairs is None and candidates is None and self._is_plain(chunk):
            return [RowInput(text=text) for text in texts]
        rows: list[RowInput | RowFailure] = []
        for offset, text in enumerate(texts):
            failure = _first_failure(
                chunk.failures.get(offset),
                text,
                pairs[offset] if pairs is not None else None,
                candidates[offset] if candidates is not None else None,
            )
            if failure is not None:
                rows.append(failure)
                continue
            rows.append(
                RowInput(
                    text=text,
                    pair=pairs[offset] if pairs is not None else None,
                    has_pair=pairs is not None,
                    candidates=candidates[offset] if candidates is not None else None,
                )
            )
        return rows

    def _is_plain(self, chunk: Chunk) -> bool:
        """Whether no row needs a second look: the common case."""
        is_there = self.template is not None or self.column in chunk.table.column_names
        return is_there and not chunk.failures and not chunk.absent

    def _texts(self, chunk: Chunk) -> list[Any]:
        if self.template is not None:
            return self.template.fill(chunk)
        return self._cells(chunk, self.column) or []

    def _cells(self, chunk: Chunk, column: str | None) -> list[Any] | None:
        """The values of a column, a RowFailure for each record that lacks it; None for no column."""
        if column is None:
            return None
        values = chunk.values(column)
        if column in chunk.absent or column not in chunk.table.column_names:
            detail = f"the record has no field {column!r}"
            failure = RowFailure(reason=Reason.MISSING_COLUMN, detail=detail)
            values = [failure if chunk.is_absent(column, offset) else value for offset, value in enumerate(values)]
        return values

    def _candidates(self, chunk: Chunk, parse: Callable[[str, Any], Any]) -> list[Any] | None:
        column = self.candidates_column
        cells = self._cells(chunk, column)
        if cells is None or column is None:
            return None
        return [cell if isinstance(cell, RowFailure) else parse(column, cell) for cell in cells]


class Template:
    """A text with columns in it. `{{` and `}}` are braces; `\\n` and `\\t` typed as two characters are what they mean.

    A cell that is null fills in nothing; a row whose cells are all null has no text. Numbers, booleans and dates are
    written as Python writes them.
    """

    def __init__(self, text: str) -> None:
        """Raises UsageError for a template that cannot be read or has no column in it."""
        self.text = text
        self._parts = _parse_template(text.replace("\\n", "\n").replace("\\t", "\t"))
        self.columns = tuple(dict.fromkeys(column for _, column in self._parts if column is not None))
        if not self.columns:
            raise UsageError(f"--template {text!r} has no column in it; write for example: {{title}}\\n{{body}}")

    def fill(self, chunk: Chunk) -> list[Any]:
        """The text of each row; None where there is none, and a value that is no text as it is."""
        cells = {column: chunk.values(column) for column in self.columns}
        return [
            self._fill_row({column: values[offset] for column, values in cells.items()})
            for offset in range(chunk.num_rows)
        ]

    def _fill_row(self, cells: dict[str, Any]) -> Any:
        for value in cells.values():
            if isinstance(value, list | dict | bytes):
                return value  # not text: the runner says so
        present = {column: "" if _is_null(value) else str(value) for column, value in cells.items()}
        if all(_is_null(value) for value in cells.values()):
            return None
        return "".join(literal + ("" if column is None else present[column]) for literal, column in self._parts)


def resolve_inputs(
    plan: InputPlan, task: Task, columns: Sequence[str], *, source_name: str, has_labels: bool = False
) -> ResolvedInputs:
    """Check a plan against the task and the source's columns, and choose the text column where none is named.

    `has_labels` says whether the same candidate labels were given for all rows. Raises UsageError for options that do
    not go together, InputError for a column that the source does not have.
    """
    _check_combination(plan, task, has_labels=has_labels)
    template = Template(plan.template) if plan.template is not None else None
    column = plan.query_column or plan.column
    candidates_column = plan.documents_column or plan.labels_column
    others = [name for name in (plan.pair_column, candidates_column) if name is not None]
    named = [*(template.columns if template else ()), *([column] if column else ()), *others]
    require_columns(columns, named, source_name=source_name)
    if template is None and column is None:
        column = choose_text_column([name for name in columns if name not in others], task)
    return ResolvedInputs(
        column=column if template is None else None,
        template=template,
        pair_column=plan.pair_column,
        candidates_column=candidates_column,
    )


def _check_combination(plan: InputPlan, task: Task, *, has_labels: bool) -> None:
    if plan.template is not None and (plan.column or plan.query_column):
        raise UsageError("give the text as --column or as --template, not both")
    if plan.query_column and plan.column:
        raise UsageError("--query-column is the text of a ranking: leave out --column")
    if (plan.query_column or plan.documents_column) and task is not Task.TEXT_RANKING:
        raise UsageError(f"--query-column and --documents-column are for {Task.TEXT_RANKING}, the task is {task}")
    if plan.labels_column and task is not Task.ZERO_SHOT_CLASSIFICATION:
        raise UsageError(f"--labels-column is for {Task.ZERO_SHOT_CLASSIFICATION}, the task is {task}")
    if plan.labels_column and has_labels:
        raise UsageError("give the candidate labels as --labels or as --labels-column, not both")
    if task is Task.ZERO_SHOT_CLASSIFICATION and not (plan.labels_column or has_labels):
        raise UsageError(f"{task} needs candidate labels: --labels sport,politics or --labels-column NAME")
    if task is Task.TEXT_RANKING:
        if plan.documents_column and plan.pair_column:
            raise UsageError("give the passages as --documents-column or as --pair-column, not both")
        if not (plan.documents_column or plan.pair_column):
            raise UsageError(
                f"{task} needs passages: --query-column Q --documents-column D (a list in each row), "
                "or --column Q --pair-column P (one in each row)"
            )
    if plan.pair_column and task in (Task.TOKEN_CLASSIFICATION, Task.FEATURE_EXTRACTION, Task.ZERO_SHOT_CLASSIFICATION):
        raise UsageError(f"--pair-column is for {Task.TEXT_CLASSIFICATION} and {Task.TEXT_RANKING}, the task is {task}")


def _parse_template(text: str) -> list[tuple[str, str | None]]:
    parts: list[tuple[str, str | None]] = []
    try:
        for literal, column, spec, conversion in string.Formatter().parse(text):
            if spec or conversion:
                raise UsageError(f"--template takes plain column names in braces, not {{{column}!{conversion}:{spec}}}")
            if column is not None and not column.strip():
                raise UsageError(f"--template {text!r} has empty braces; write the column's name in them")
            parts.append((literal, column))
    except ValueError as error:
        raise UsageError(f"--template {text!r} cannot be read ({error}); double a brace to mean itself") from error
    return parts


def _first_failure(*values: Any) -> RowFailure | None:
    return next((value for value in values if isinstance(value, RowFailure)), None)


def _parse_labels(column: str, cell: Any) -> tuple[Any, ...] | RowFailure:
    """Candidate labels: a list, a JSON list, or a text with commas."""
    if isinstance(cell, str) and not cell.lstrip().startswith("["):
        labels = [label.strip() for label in cell.split(",") if label.strip()]
        if not labels:
            return RowFailure(reason=Reason.EMPTY_TEXT, detail=f"{column} has no labels")
        return tuple(labels)
    return _parse_list(column, cell)


def _parse_documents(column: str, cell: Any) -> tuple[Any, ...] | RowFailure:
    """Documents: a list, or a JSON list; a comma in a document means nothing."""
    return _parse_list(column, cell)


def _parse_list(column: str, cell: Any) -> tuple[Any, ...] | RowFailure:
    if _is_null(cell):
        return RowFailure(reason=Reason.MISSING_TEXT, detail=f"{column} is missing")
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError:
            return RowFailure(reason=Reason.NOT_TEXT, detail=f"{column} is no list, and no list in JSON")
    if not isinstance(cell, list | tuple):
        return RowFailure(reason=Reason.NOT_TEXT, detail=f"{column} is {type(cell).__name__}, expected a list")
    return tuple(cell)


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)
