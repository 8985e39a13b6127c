"""What became of every row: how many came out, how many did not and why, what was cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.domain.row import Reason, RowFailure, RowResult

MAX_EXAMPLES = 5  # of each reason: enough to find the cause, few enough to read


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureExample:
    """One row without a result: its number in the input from 1, where it stands, and what was said of it."""

    row: int
    where: str
    detail: str


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Counts over a run of rows. Ledgers of consecutive runs add up with `add`."""

    num_rows: int = 0
    num_tokens: int = 0
    truncated_rows: int = 0
    truncated_tokens: int = 0
    windowed_rows: int = 0
    failures: dict[Reason, int] = field(default_factory=dict)
    examples: dict[Reason, list[FailureExample]] = field(default_factory=dict)

    @property
    def num_failed(self) -> int:
        """Rows that came out as nulls with a reason."""
        return sum(self.failures.values())

    def count_result(self, result: RowResult, *, is_windowed: bool) -> None:
        """Count a row that came out."""
        self.num_rows += 1
        self.num_tokens += result.num_tokens
        self.windowed_rows += is_windowed
        if result.truncated_tokens:
            self.truncated_rows += 1
            self.truncated_tokens += result.truncated_tokens

    def count_failure(self, failure: RowFailure, *, row: int, where: str) -> None:
        """Count a row that did not; `row` from 0."""
        self.num_rows += 1
        self.failures[failure.reason] = self.failures.get(failure.reason, 0) + 1
        examples = self.examples.setdefault(failure.reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(FailureExample(row=row + 1, where=where, detail=failure.detail))

    def add(self, other: Ledger) -> None:
        """Add the counts of the rows that follow."""
        self.num_rows += other.num_rows
        self.num_tokens += other.num_tokens
        self.truncated_rows += other.truncated_rows
        self.truncated_tokens += other.truncated_tokens
        self.windowed_rows += other.windowed_rows
        for reason, count in other.failures.items():
            self.failures[reason] = self.failures.get(reason, 0) + count
            examples = self.examples.setdefault(reason, [])
            examples.extend(other.examples.get(reason, ())[: MAX_EXAMPLES - len(examples)])

    def to_json(self) -> dict[str, Any]:
        """As it is saved."""
        return {
            "rows": self.num_rows,
            "rows_failed": self.num_failed,
            "tokens": self.num_tokens,
            "truncated_rows": self.truncated_rows,
            "truncated_tokens": self.truncated_tokens,
            "windowed_rows": self.windowed_rows,
            "failures": {
                str(reason): {
                    "rows": count,
                    "examples": [
                        {"row": example.row, "where": example.where, "detail": example.detail}
                        for example in self.examples.get(reason, ())
                    ],
                }
                for reason, count in sorted(self.failures.items())
            },
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Ledger:
        """As it was saved. Raises ValueError for something else."""
        try:
            failures = {Reason(name): entry for name, entry in saved["failures"].items()}
            return cls(
                num_rows=int(saved["rows"]),
                num_tokens=int(saved["tokens"]),
                truncated_rows=int(saved["truncated_rows"]),
                truncated_tokens=int(saved["truncated_tokens"]),
                windowed_rows=int(saved["windowed_rows"]),
                failures={reason: int(entry["rows"]) for reason, entry in failures.items()},
                examples={
                    reason: [FailureExample(**example) for example in entry["examples"]]
                    for reason, entry in failures.items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a ledger: {error!r}") from error


def total(ledgers: Iterable[Ledger]) -> Ledger:
    """The ledger of consecutive runs of rows together."""
    whole = Ledger()
    for ledger in ledgers:
        whole.add(ledger)
    return whole
