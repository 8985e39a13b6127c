"""The command line with a fake model, as a process of its own: to be killed, interrupted and measured.

Usage: python -m tests.score.fakejob SECONDS_PER_BATCH WINDOW_ROWS score INPUT ... (a model named `hang` never returns)
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli import scoring
from setpoint.cli.main import main
from setpoint.domain.batch import BatchShape
from setpoint.runners.base import Runner, TokenSequence
from setpoint.runners.fake import FakeCost, FakeRunner
from setpoint.score import plan


class Torchlike(FakeRunner):
    """Its backend is one that the options know, so that a resumed run can ask for it again."""

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint, "backend": "torch-fake"}


def run(arguments: list[str]) -> int:
    seconds, window_rows, *words = arguments
    plan.WINDOW_ROWS = int(window_rows)

    def load(options: Any, rows: Any) -> Runner:
        def on_forward(batch: Sequence[TokenSequence]) -> None:
            if options.model == "hang":
                threading.Event().wait(60)

        return Torchlike(
            task=options.task,
            shape=BatchShape(max_batch_tokens=256, num_streams=2),
            cost=FakeCost(a_s=float(seconds)),
            spend=time.sleep,
            on_forward=on_forward,
        )

    scoring.load_runner = load
    return main(words)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
