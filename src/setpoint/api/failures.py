"""What becomes of rows that got no answer: None in place and one warning, or an error at the first."""

from __future__ import annotations

import sys
import warnings

from setpoint.domain.row import Reason, RowFailure
from setpoint.errors import InputError, ModelError, SetpointError, UsageError, unknown

POLICIES = ("null", "raise")
_MODELS_FAULT = (Reason.MODEL_FAILED, Reason.NOT_FINITE, Reason.OUT_OF_MEMORY)
_MAX_ROWS_NAMED = 5


class RowsFailedWarning(UserWarning):
    """Some rows have no answer; the message counts them by reason and names the first."""


class Failures:
    """Collects the failed rows of one call."""

    def __init__(self, policy: str) -> None:
        if policy not in POLICIES:
            raise UsageError(unknown("errors", policy, POLICIES))
        self._policy = policy
        self._rows: dict[Reason, list[int]] = {}
        self._details: dict[Reason, str] = {}
        self._counts: dict[Reason, int] = {}

    def add(self, row: int, failure: RowFailure) -> None:
        """Note a row (from 0), or raise if that is the policy."""
        if self._policy == "raise":
            raise error_of(row, failure)
        self._counts[failure.reason] = self._counts.get(failure.reason, 0) + 1
        named = self._rows.setdefault(failure.reason, [])
        if len(named) < _MAX_ROWS_NAMED:
            named.append(row)
        self._details.setdefault(failure.reason, failure.detail)

    def warn(self, num_rows: int) -> None:
        """Warn once if any row failed, at the line of the user's code that asked."""
        if not self._counts:
            return
        told = "; ".join(self._describe(reason) for reason in self._counts)
        message = f"{sum(self._counts.values())} of {num_rows} rows have no answer (positions from 0): {told}"
        warnings.warn(message, RowsFailedWarning, stacklevel=_levels_of_ours())

    def _describe(self, reason: Reason) -> str:
        rows = self._rows[reason]
        more = ", ..." if self._counts[reason] > len(rows) else ""
        detail = self._details[reason]
        return f"{self._counts[reason]} {reason} ({', '.join(map(str, rows))}{more}{': ' if detail else ''}{detail})"


def error_of(row: int, failure: RowFailure) -> SetpointError:
    """The error that a failed row is raised as."""
    kind = ModelError if failure.reason in _MODELS_FAULT else InputError
    return kind(f"row {row} (from 0) has no answer: {failure}")


def _levels_of_ours() -> int:
    """How far up the stack the user's code is, counted from the caller."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("setpoint."):
        frame, levels = frame.f_back, levels + 1
    return levels
