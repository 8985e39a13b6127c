"""From a model and a file of rows to something that a sweep can measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from setpoint.domain.curve import Value
from setpoint.domain.row import RowInput
from setpoint.domain.task import Task
from setpoint.errors import InputError
from setpoint.runners.base import EncodedRow, TokenSequence
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.runner import EncoderRunner, load_encoder
from setpoint.score.inputs import InputPlan, resolve_inputs
from setpoint.score.sources import open_source

_LOADED_WITH_TOKENS = 512  # the sweep finds the budget: loading need not
_READ_ROWS = 8_192  # of which the sample is spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of the user's, and what they are called."""

    name: str
    rows: Sequence[RowInput]


def read_rows(data: str, columns: Mapping[str, str | None], options: EncoderOptions, *, num_rows: int) -> Rows:
    """Take `num_rows` rows, spread over the first 8,192 that can be asked of the model.

    Raises UsageError and InputError as a job over the same rows would, and InputError where no row is left.
    """
    source = open_source(data)
    inputs = resolve_inputs(
        InputPlan(**columns),
        options.task,
        source.columns(),
        source_name=source.name,
        has_labels=options.labels is not None,
    )
    found: list[RowInput] = []
    for chunk in source.chunks(max_rows=_READ_ROWS, columns=list(inputs.columns)):
        asked = inputs.rows(chunk, is_ranking=options.task is Task.TEXT_RANKING)
        found.extend(row for row in asked if isinstance(row, RowInput))
        if len(found) >= max(num_rows, _READ_ROWS):
            break
    if not found:
        raise InputError(f"{source.name} has no row that could be measured with; every one is blank or broken")
    picked = np.unique(np.linspace(0, len(found) - 1, min(num_rows, len(found))).astype(int))
    return Rows(name=source.name, rows=[found[position] for position in picked.tolist()])


class Models:
    """Loads the model once for each variant that a sweep asks for; what was `auto` is decided by the first load."""

    def __init__(self, options: EncoderOptions, rows: Sequence[RowInput]) -> None:
        self._rows = rows
        self._loaded: dict[tuple[tuple[str, Value], ...], EncoderRunner] = {}
        self.base = load_encoder(replace(options, max_batch_tokens=_LOADED_WITH_TOKENS), sample=rows)
        facts = self.base.facts
        self.options = replace(
            options,
            dtype=facts["dtype"],
            backend=str(facts["backend"]).split("-")[0],
            threads=facts["threads"],
            streams=facts["streams"],
        )

    def sequences(self) -> list[TokenSequence]:
        """The rows as the model reads them. Raises InputError where none of them can be read."""
        encoded = self.base.encode(list(self._rows))
        found = [sequence for row in encoded if isinstance(row, EncodedRow) for sequence in row.sequences]
        if not found:
            raise InputError("none of the rows can be tokenized for this model; score a few of them to see why")
        return found

    def runner(self, variant: Mapping[str, Value]) -> EncoderRunner:
        """The runner of a variant: dtype, backend, threads, streams; those not named are as the base has them."""
        changed = {name: value for name, value in variant.items() if getattr(self.options, name) != value}
        if not changed:
            return self.base
        key = tuple(sorted(changed.items()))
        if key not in self._loaded:
            changes: dict[str, Any] = dict(changed)
            options = replace(self.options, max_batch_tokens=_LOADED_WITH_TOKENS, **changes)
            self._loaded[key] = load_encoder(options, sample=self._rows)
        return self._loaded[key]

    def close(self) -> None:
        """Release all of them."""
        for runner in (self.base, *self._loaded.values()):
            runner.close()
