"""What to do with a row that is longer than the model's limit."""

from __future__ import annotations

from enum import StrEnum


class Truncation(StrEnum):
    """Policies for over-long rows; each is counted in the ledger."""

    TRUNCATE = "truncate"  # cut at the limit, count what was cut
    WINDOW = "window"  # score overlapping windows that cover everything, combine them
    SKIP = "skip"  # the row gets a null and the reason too_long; the rest go on
    ERROR = "error"  # the job stops at the first such row
