"""`setpoint score`: run a batch job over files."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

EPILOG = """
Examples:

setpoint score tickets.csv --model sentence-transformers/all-MiniLM-L6-v2 --task feature-extraction
--column text -o vectors.parquet

setpoint score rows.parquet --model ./my-classifier --task text-classification --keep id -o labels.csv

setpoint score news.jsonl --model ./nli --task zero-shot-classification --labels sport,politics
--template "{title}\\n{body}" -o topics.parquet

Run the same command again after a crash, Ctrl-C or a full disk: it goes on where it stopped.
"""


def _option(panel: str, *names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=more.pop("show_default", False), **more)


INPUT, OUTPUT, MODEL, TASK, SPEED, JOB = "Input", "Output", "Model", "Task", "Speed", "Job"


def score(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="CSV, TSV, JSON lines, Parquet, Arrow or text; a file, folder, glob, URL, database, or - for stdin.",
        ),
    ],
    model: Annotated[
        str, _option(MODEL, "--model", "-m", metavar="MODEL", help="A folder, or a hub id such as org/name.")
    ],
    task: Annotated[
        str,
        _option(
            TASK,
            "--task",
            "-t",
            metavar="TASK",
            help="text-classification, zero-shot-classification, token-classification, feature-extraction "
            "or text-ranking.",
        ),
    ],
    output: Annotated[
        str,
        _option(
            OUTPUT,
            "--output",
            "-o",
            metavar="FILE",
            help="Where results go: .parquet, .arrow, .jsonl, .csv or .tsv (text also .gz or .zst); "
            "NAME/ makes a folder of Parquet files.",
        ),
    ],
    # Input
    column: Annotated[
        str | None, _option(INPUT, "--column", "-c", metavar="NAME", help="The column that holds the text.")
    ] = None,
    template: Annotated[
        str | None,
        _option(INPUT, "--template", metavar="TEXT", help='Text made of several columns: "{title}\\n{body}".'),
    ] = None,
    pair_column: Annotated[
        str | None, _option(INPUT, "--pair-column", metavar="NAME", help="The column of the second text of a pair.")
    ] = None,
    query_column: Annotated[
        str | None, _option(INPUT, "--query-column", metavar="NAME", help="Ranking: the column of the query.")
    ] = None,
    documents_column: Annotated[
        str | None,
        _option(
            INPUT, "--documents-column", metavar="NAME", help="Ranking: the column with each row's list of documents."
        ),
    ] = None,
    labels_column: Annotated[
        str | None,
        _option(
            INPUT, "--labels-column", metavar="NAME", help="Zero-shot: the column with each row's candidate labels."
        ),
    ] = None,
    input_format: Annotated[
        str | None,
        _option(
            INPUT,
            "--input-format",
            metavar="FORMAT",
            help="csv, tsv, jsonl, json, parquet, arrow or text, if the ending does not say.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        _option(INPUT, "--query", metavar="SQL", help="SELECT statement, for a database; end it with ORDER BY a key."),
    ] = None,
    limit: Annotated[int | None, _option(INPUT, "--limit", metavar="N", help="Score only the first N rows.")] = None,
    # Output
    keep: Annotated[
        str | None,
        _option(
            OUTPUT, "--keep", metavar="NAMES", help="Columns of the input to keep: id,title, or none. All if not given."
        ),
    ] = None,
    prefix: Annotated[
        str,
        _option(
            OUTPUT,
            "--prefix",
            metavar="TEXT",
            help="Put before the names of result columns. Without one, a result whose name the input has already is "
            "called NAME_out.",
        ),
    ] = "",
    output_format: Annotated[
        str | None,
        _option(
            OUTPUT,
            "--output-format",
            metavar="FORMAT",
            help="parquet, arrow, jsonl, csv, tsv, if the ending does not say.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, _option(OUTPUT, "--overwrite", help="Replace an output that exists; it stays until the new one is whole.")
    ] = False,
    # Task
    labels: Annotated[
        str | None,
        _option(
            TASK, "--labels", metavar="LABELS", help="Zero-shot: candidate labels of all rows, with commas: a,b,c."
        ),
    ] = None,
    hypothesis_template: Annotated[
        str | None,
        _option(TASK, "--hypothesis-template", metavar="TEXT", help='Zero-shot: "This example is {}." if not given.'),
    ] = None,
    multi_label: Annotated[
        bool | None,
        _option(TASK, "--multi-label/--single-label", help="Whether several labels may be right at once."),
    ] = None,
    top_k: Annotated[
        str | None,
        _option(TASK, "--top-k", metavar="N", help="Classification: that many labels a row, or all; 1 if not given."),
    ] = None,
    function_to_apply: Annotated[
        str | None,
        _option(
            TASK, "--function-to-apply", metavar="NAME", help="softmax, sigmoid or none, to make scores of logits."
        ),
    ] = None,
    aggregation: Annotated[
        str | None,
        _option(
            TASK, "--aggregation", metavar="NAME", help="Entities from tokens: none, simple, first, average or max."
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        _option(
            TASK,
            "--pooling",
            metavar="NAME",
            help="Embeddings: mean, cls, max, lasttoken, ... or none for token states.",
        ),
    ] = None,
    normalize: Annotated[
        bool | None, _option(TASK, "--normalize/--no-normalize", help="Embeddings: to length 1 or not.")
    ] = None,
    prompt_name: Annotated[
        str | None,
        _option(
            TASK, "--prompt-name", metavar="NAME", help="Embeddings: a prompt of the model's folder, such as query."
        ),
    ] = None,
    prompt: Annotated[
        str | None, _option(TASK, "--prompt", metavar="TEXT", help="Embeddings: text put before every row's.")
    ] = None,
    truncate_dim: Annotated[
        int | None, _option(TASK, "--truncate-dim", metavar="N", help="Embeddings: keep the first N numbers.")
    ] = None,
    # Model
    revision: Annotated[
        str | None, _option(MODEL, "--revision", metavar="NAME", help="Branch, tag or commit of a hub model.")
    ] = None,
    trust_remote_code: Annotated[
        bool, _option(MODEL, "--trust-remote-code", help="Run Python code that the model brings.")
    ] = False,
    max_length: Annotated[
        int | None,
        _option(
            MODEL, "--max-length", metavar="TOKENS", help="Longest sequence in tokens; the model's limit if not given."
        ),
    ] = None,
    truncation: Annotated[
        str,
        _option(
            MODEL,
            "--truncation",
            metavar="POLICY",
            help="What to do with longer rows: truncate, window, skip or error.",
            show_default=True,
        ),
    ] = "truncate",
    window_overlap: Annotated[
        int | None,
        _option(
            MODEL,
            "--window-overlap",
            metavar="TOKENS",
            help="Tokens that neighbouring windows share; an eighth if not given.",
        ),
    ] = None,
    # Speed
    device: Annotated[
        str, _option(SPEED, "--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 or mps.", show_default=True)
    ] = "auto",
    dtype: Annotated[
        str,
        _option(
            SPEED,
            "--dtype",
            metavar="DTYPE",
            help="float32, bfloat16, float16, int8, or auto: the fastest measured here that matches float32 "
            "(never int8).",
            show_default=True,
        ),
    ] = "auto",
    backend: Annotated[
        str,
        _option(
            SPEED, "--backend", metavar="BACKEND", help="torch, openvino, or auto: the faster one.", show_default=True
        ),
    ] = "auto",
    batch_size: Annotated[
        int | None, _option(SPEED, "--batch-size", metavar="N", help="Most sequences a batch; measured if not given.")
    ] = None,
    max_batch_tokens: Annotated[
        int | None,
        _option(SPEED, "--max-batch-tokens", metavar="TOKENS", help="Most tokens a batch; measured if not given."),
    ] = None,
    threads: Annotated[
        int | None, _option(SPEED, "--threads", metavar="N", help="CPU threads; all cores if not given.")
    ] = None,
    streams: Annotated[
        int | None,
        _option(SPEED, "--streams", metavar="N", help="Batches computed side by side; measured if not given."),
    ] = None,
    batch_invariant: Annotated[
        bool,
        _option(SPEED, "--batch-invariant", help="Results that do not depend on who shares the batch; slower."),
    ] = False,
    profile: Annotated[
        str | None,
        _option(
            SPEED,
            "--profile",
            metavar="FILE",
            help="Run at the operating point of setpoint sweep or choose; refused on another model or machine.",
        ),
    ] = None,
    recalibrate: Annotated[
        bool, _option(SPEED, "--recalibrate", help="Measure this run's own batches where the profile does not hold.")
    ] = False,
    # Job
    restart: Annotated[bool, _option(JOB, "--restart", help="Drop what is finished and start over.")] = False,
    fail_on_error_rows: Annotated[
        bool, _option(JOB, "--fail-on-error-rows", help="Exit with 3 if any row has an error instead of a result.")
    ] = False,
    batch_timeout: Annotated[
        str | None,
        _option(
            JOB,
            "--batch-timeout",
            metavar="DURATION",
            help="Give up on a batch after so long (90s, 10m); 10m or more if not given.",
        ),
    ] = None,
    quiet: Annotated[bool, _option(JOB, "--quiet", "-q", help="Say nothing but errors.")] = False,
    as_json: Annotated[bool, _option(JOB, "--json", help="Print one JSON document on stdout at the end.")] = False,
    debug: Annotated[bool, _option(JOB, "--debug", help="Show where in the code an error arose.")] = False,
) -> int:
    """Score every row of INPUT with a model.

    The output has the input's columns and order, the results, and for every row num_tokens, truncated_tokens and
    error. A row that fails gets nulls and a reason; the others are not touched by it.
    """
    options = {
        "model": model,
        "task": task,
        "revision": revision,
        "trust_remote_code": trust_remote_code,
        "device": device,
        "dtype": dtype,
        "backend": backend,
        "max_length": max_length,
        "truncation": truncation,
        "window_overlap": window_overlap,
        "top_k": top_k,
        "function_to_apply": function_to_apply,
        "multi_label": multi_label,
        "labels": labels,
        "hypothesis_template": hypothesis_template,
        "aggregation": aggregation,
        "pooling": pooling,
        "normalize": normalize,
        "prompt_name": prompt_name,
        "prompt": prompt,
        "truncate_dim": truncate_dim,
        "batch_size": batch_size,
        "max_batch_tokens": max_batch_tokens,
        "threads": threads,
        "streams": streams,
        "batch_invariant": batch_invariant,
    }
    columns = {
        "column": column,
        "template": template,
        "pair_column": pair_column,
        "labels_column": labels_column,
        "query_column": query_column,
        "documents_column": documents_column,
    }
    from setpoint.cli.scoring import Command, run_command

    command = Command(
        inputs=tuple(inputs),
        output=output,
        options={name: value for name, value in options.items() if value is not None},
        columns=columns,
        input_format=input_format,
        query=query,
        output_format=output_format,
        keep=keep,
        prefix=prefix,
        limit=limit,
        restart=restart,
        overwrite=overwrite,
        batch_timeout=batch_timeout,
        profile=profile,
        recalibrate=recalibrate,
        fail_on_error_rows=fail_on_error_rows,
        is_quiet=quiet,
        as_json=as_json,
        is_debug=debug,
    )
    return run_command(command, stdout=sys.stdout, stderr=sys.stderr)
