"""How a job ends early: because somebody asked, or because something does not come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from setpoint.errors import JobStopped
from setpoint.measure.clock import Clock


class StopToken:
    """Set by a signal handler or another thread; the job sees it within a fraction of a second."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.why = ""

    def request(self, why: str) -> None:
        """Ask the job to stop; `why` ends up in its message: `Ctrl-C`, `SIGTERM`."""
        self.why = why
        self._event.set()

    @property
    def requested(self) -> bool:
        """Whether somebody asked."""
        return self._event.is_set()


class FatalRow(JobStopped):
    """A row that was said to end the job, such as one that is too long under `--truncation error`."""


class Hung(JobStopped):
    """A call into the model did not come back. `rows` counts from 0, and is empty where no row is to blame."""

    def __init__(self, message: str, *, rows: tuple[int, ...]) -> None:
        super().__init__(message)
        self.rows = rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    what: str
    rows: Sequence[int]
    begun_ns: int
    bound_s: float


class Watchdog:
    """Knows which calls into the model are under way, and which of them should have come back long ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}

    @contextmanager
    def watching(self, what: str, rows: Sequence[int], bound_s: float) -> Iterator[None]:
        """Watch the calling thread until it leaves. `rows` counts from 0."""
        key = threading.get_ident()
        call = _Call(what=what, rows=rows, begun_ns=self._clock.now_ns(), bound_s=bound_s)
        with self._lock:
            self._calls[key] = call
        try:
            yield
        finally:
            with self._lock:
                del self._calls[key]

    def check(self) -> None:
        """Raise Hung for a call that is overdue."""
        now_ns = self._clock.now_ns()
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            running_s = (now_ns - call.begun_ns) / 1e9
            if running_s > call.bound_s:
                rows = tuple(sorted({int(row) for row in call.rows}))
                raise Hung(
                    f"{call.what} {_name_rows(rows)} has not come back for {running_s:.0f} s "
                    f"(the bound was {call.bound_s:.0f} s; --batch-timeout sets another)",
                    rows=rows,
                )


def _name_rows(rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0] + 1}"
    return f"{len(rows)} rows between row {rows[0] + 1} and row {rows[-1] + 1}"
