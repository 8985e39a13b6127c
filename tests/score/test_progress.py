"""What a person sees of a running job."""

from __future__ import annotations

import io
import os
import pty
from typing import Any

import pytest

from setpoint.measure.clock import FakeClock
from setpoint.score.progress import (
    BarReporter,
    LineReporter,
    QuietReporter,
    Snapshot,
    describe,
    make_reporter,
)


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "phase": "scoring",
        "rows_done": 12_288,
        "total_rows": 20_000,
        "is_total_exact": True,
        "rows_failed": 3,
        "rows_per_s": 118.2,
        "tokens_per_s": 13_412.0,
        "left_s": 65.3,
    }
    return Snapshot(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            "scoring: 12,288 of 20,000 rows (61.4%), 118 rows/s, 13,412 tokens/s, 3 failed, 1 min 5 s left",
        ),
        (
            {"rows_failed": 0, "left_s": None, "rows_per_s": None, "tokens_per_s": None},
            "scoring: 12,288 of 20,000 rows (61.4%)",
        ),
        (
            {"is_total_exact": False, "rows_failed": 0, "left_s": None, "rows_per_s": None, "tokens_per_s": None},
            "scoring: 12,288 of about 20,000 rows",
        ),
        (
            {
                "is_total_exact": False,
                "total_rows": 10_000,
                "rows_failed": 0,
                "left_s": None,
                "rows_per_s": None,
                "tokens_per_s": None,
            },
            "scoring: 12,288 rows",
        ),
        (
            {"total_rows": None, "rows_failed": 0, "left_s": None, "rows_per_s": 2.5, "tokens_per_s": None},
            "scoring: 12,288 rows, 2.5 rows/s",
        ),
    ],
)
def test_a_snapshot_in_words(changes: dict[str, Any], text: str) -> None:
    assert describe(snapshot(**changes)) == text


def test_lines_come_every_few_seconds() -> None:
    clock, stream = FakeClock(), io.StringIO()
    reporter = LineReporter(stream, clock=clock, every_s=5)
    for _ in range(100):
        reporter.show(snapshot())
        clock.advance(0.25)
    reporter.note("one thing")
    reporter.close()
    lines = stream.getvalue().splitlines()
    assert lines[:-1] == [describe(snapshot())] * 4
    assert lines[-1] == "one thing"


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines() -> None:
    assert isinstance(make_reporter(io.StringIO(), is_quiet=False), LineReporter)
    assert isinstance(make_reporter(io.StringIO(), is_quiet=True), QuietReporter)
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        reporter = make_reporter(stream, is_quiet=False)
        assert isinstance(reporter, BarReporter)
        reporter.note("loading [model] a[b]")
        reporter.show(snapshot())
        reporter.show(snapshot(total_rows=None))
        reporter.close()
        reporter.close()
    shown = os.read(controller, 65_536).decode()
    os.close(controller)
    assert "loading [model] a[b]" in shown
    assert "12,288/20,000 rows, 118/s, 3 failed, 1 min 5 s left" in shown
