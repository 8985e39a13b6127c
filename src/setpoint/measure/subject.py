"""What a sweep measures: the seam to encoders today, to generation engines and HTTP endpoints next.

Subject ──open(setting)──▶ Trial ──visit()──▶ Visit(samples)      closed when another setting is measured
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from setpoint.domain.curve import Value, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One batch or request, on the monotonic clock. `latency_ns` has a duration for each metric of the subject.

    Encoders have `batch`. `num_tokens` are useful, `processed_tokens` and `sum_len2` what the model worked on.
    """

    start_ns: int
    end_ns: int
    latency_ns: Mapping[str, int]
    num_items: int
    num_tokens: int
    processed_tokens: int
    sum_len2: int
    longest: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One uninterrupted stay at a setting: a whole pass over the workload, so that its rate has no bias by length.

    `client_ns` is the time of the window in which the measuring side, not the subject, was at work.
    """

    samples: Sequence[Sample]
    start_ns: int
    end_ns: int
    client_ns: int

    @property
    def duration_s(self) -> float:
        """The window's length."""
        return (self.end_ns - self.start_ns) / 1e9


class Trial(Protocol):
    """A subject at one setting."""

    def visit(self) -> Visit:
        """Measure one pass. Raises OutOfMemory or RunnerError-like errors, which make the point FAILED."""
        ...

    def close(self) -> None:
        """Release what only this setting needs."""
        ...


class Subject(Protocol):
    """Something that can be measured at several settings."""

    @property
    def workload(self) -> Workload:
        """What it is fed with."""
        ...

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its figures depend on. JSON."""
        ...

    def open(self, setting: Mapping[str, Value]) -> Trial:
        """Get ready to measure a setting. Raises UsageError for one that it cannot have."""
        ...
