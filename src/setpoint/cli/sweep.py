"""`setpoint sweep`: measure the throughput-latency curve and choose a point on it."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

EPILOG = """
Examples:

setpoint sweep --data tickets.csv --column text --model sentence-transformers/all-MiniLM-L6-v2 --task feature-extraction

setpoint sweep --data tickets.csv --model ./my-classifier --task text-classification --slo "batch p95 < 50ms"

setpoint sweep --data tickets.csv --model ./my-classifier --task text-classification
--tune max-batch-tokens=128..4096,dtype=float32,bfloat16

The curve is saved as it forms: after Ctrl-C it has what was measured until then.
"""

DATA, MODEL, MEASURE, OUTPUT = "Data", "Model", "Measuring", "Output"


def _option(panel: str, *names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=more.pop("show_default", False), **more)


def sweep(
    model: Annotated[str, _option(MODEL, "--model", "-m", metavar="MODEL", help="A folder, or a hub id: org/name.")],
    task: Annotated[str, _option(MODEL, "--task", "-t", metavar="TASK", help="The task, as for setpoint score.")],
    data: Annotated[
        str,
        _option(DATA, "--data", metavar="INPUT", help="Your rows: anything that setpoint score reads."),
    ],
    column: Annotated[
        str | None, _option(DATA, "--column", "-c", metavar="NAME", help="The column that holds the text.")
    ] = None,
    template: Annotated[
        str | None, _option(DATA, "--template", metavar="TEXT", help='Text of several columns: "{title}\\n{body}".')
    ] = None,
    pair_column: Annotated[
        str | None, _option(DATA, "--pair-column", metavar="NAME", help="The column of the second text of a pair.")
    ] = None,
    labels: Annotated[
        str | None, _option(MODEL, "--labels", metavar="LABELS", help="Zero-shot: candidate labels: a,b,c.")
    ] = None,
    rows: Annotated[
        int, _option(DATA, "--rows", metavar="N", help="How many rows to measure with.", show_default=True)
    ] = 1000,
    max_length: Annotated[
        int | None, _option(MODEL, "--max-length", metavar="TOKENS", help="Longest sequence in tokens.")
    ] = None,
    device: Annotated[str, _option(MODEL, "--device", metavar="DEVICE", help="auto, cpu, cuda, mps.")] = "auto",
    dtype: Annotated[
        str, _option(MODEL, "--dtype", metavar="DTYPE", help="As for setpoint score; auto takes the fastest.")
    ] = "auto",
    backend: Annotated[str, _option(MODEL, "--backend", metavar="BACKEND", help="torch, openvino or auto.")] = "auto",
    threads: Annotated[
        int | None, _option(MODEL, "--threads", metavar="N", help="CPU threads; all cores if not given.")
    ] = None,
    streams: Annotated[
        int | None, _option(MODEL, "--streams", metavar="N", help="Batches side by side; measured if not given.")
    ] = None,
    tune: Annotated[
        str | None,
        _option(
            MEASURE,
            "--tune",
            metavar="KNOBS",
            help="What to vary: max-batch-tokens=128..4096 or batch-size=1..64 (doubling), and dtype, backend, "
            "threads or streams: dtype=float32,bfloat16. The token budget if not given.",
        ),
    ] = None,
    budget: Annotated[
        str, _option(MEASURE, "--budget", metavar="DURATION", help="Time to measure in.", show_default=True)
    ] = "90s",
    slo: Annotated[
        str | None, _option(MEASURE, "--slo", metavar="LIMITS", help='What must hold: "batch p95 < 50ms".')
    ] = None,
    objective: Annotated[
        str | None, _option(MEASURE, "--objective", metavar="NAME", help="throughput, latency or deadline.")
    ] = None,
    seed: Annotated[
        int, _option(MEASURE, "--seed", metavar="N", help="Of the order of points.", show_default=True)
    ] = 0,
    output: Annotated[
        str, _option(OUTPUT, "--output", "-o", metavar="FILE", help="The curve.", show_default=True)
    ] = "curve.json",
    profile: Annotated[
        str, _option(OUTPUT, "--profile", metavar="FILE", help="The chosen point.", show_default=True)
    ] = "setpoint.json",
    overwrite: Annotated[bool, _option(OUTPUT, "--overwrite", help="Replace a curve that exists.")] = False,
    quiet: Annotated[bool, _option(OUTPUT, "--quiet", "-q", help="Say nothing but errors.")] = False,
    as_json: Annotated[bool, _option(OUTPUT, "--json", help="Print the curve as JSON on stdout.")] = False,
) -> int:
    """Measure throughput against latency on your rows, choose a point, and save both.

    Points are measured in turn and in mixed order, each until its interval is tight or the time is used up. Then
    setpoint score --profile setpoint.json runs at the chosen one, and setpoint choose picks another from the curve.
    """
    from setpoint.cli.sweeping import Command, run_command

    options = {
        "model": model,
        "task": task,
        "labels": labels,
        "max_length": max_length,
        "device": device,
        "dtype": dtype,
        "backend": backend,
        "threads": threads,
        "streams": streams,
    }
    command = Command(
        data=data,
        options={name: value for name, value in options.items() if value is not None},
        columns={"column": column, "template": template, "pair_column": pair_column},
        num_rows=rows,
        tune=tune,
        budget=budget,
        slo=slo,
        objective=objective,
        seed=seed,
        output=output,
        profile=profile,
        overwrite=overwrite,
        is_quiet=quiet,
        as_json=as_json,
    )
    return run_command(command, stdout=sys.stdout, stderr=sys.stderr)
