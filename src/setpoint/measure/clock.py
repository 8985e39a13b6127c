"""Where time comes from. Whatever measures or waits is given a clock, so that tests decide how fast time goes."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """A monotonic clock in nanoseconds; only differences mean something."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary moment; never decreases."""
        ...


class MonotonicClock:
    """The machine's own monotonic clock, at the best resolution Python has."""

    def now_ns(self) -> int:
        """Nanoseconds of `time.perf_counter_ns`."""
        return time.perf_counter_ns()


class FakeClock:
    """A clock that stands still until it is told to advance. Safe to share between threads."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._lock = threading.Lock()

    def now_ns(self) -> int:
        """The sum of what it was advanced by, plus the start."""
        with self._lock:
            return self._now_ns

    def advance(self, duration_s: float) -> None:
        """Let `duration_s` seconds pass, rounded to whole nanoseconds; raises ValueError if negative or not finite."""
        if not math.isfinite(duration_s) or duration_s < 0:
            raise ValueError(f"a clock advances by a finite duration of at least 0 s, not {duration_s!r}")
        with self._lock:
            self._now_ns += round(duration_s * NS_PER_S)
