"""What `setpoint score` does with its options: checks them in the order of their cost, then runs the job.

Loads pyarrow and the runners, so it is imported when a command runs, not when help is asked for.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from setpoint.artifacts.profile_file import read_profile
from setpoint.cli.signals import catching_signals
from setpoint.domain.profile import OperatingPoint
from setpoint.domain.units import parse_duration
from setpoint.errors import FingerprintMismatch, SetpointError, UsageError
from setpoint.measure.environment import read_environment
from setpoint.runners.base import EncodedRow, Runner
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.score.control import StopToken
from setpoint.score.inputs import InputPlan
from setpoint.score.job import choices_of, run_job
from setpoint.score.operating import RateBand, check_holds, length_note, options_at
from setpoint.score.plan import JobPlan
from setpoint.score.progress import make_reporter
from setpoint.score.rows import JobInput
from setpoint.score.sources import open_source
from setpoint.score.state import SavedState, check_may_begin
from setpoint.score.summary import JobReport, render
from setpoint.score.target import Target, make_target

EXIT_ERROR_ROWS = 3
SAMPLE_ROWS = 300  # of the user's own, for choosing the fastest way and for calibrating int8


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The options as they were given; `options` holds those of the model and the task that were given at all."""

    inputs: tuple[str, ...]
    output: str
    options: Mapping[str, Any]
    columns: Mapping[str, str | None]
    input_format: str | None = None
    query: str | None = None
    output_format: str | None = None
    keep: str | None = None
    prefix: str = ""
    limit: int | None = None
    restart: bool = False
    overwrite: bool = False
    batch_timeout: str | None = None
    profile: str | None = None
    recalibrate: bool = False
    fail_on_error_rows: bool = False
    is_quiet: bool = False
    as_json: bool = False
    is_debug: bool = False


def run_command(
    command: Command,
    *,
    stdout: TextIO,
    stderr: TextIO,
    load: Callable[[EncoderOptions, JobInput], Runner] | None = None,
) -> int:
    """Run the job and return the exit code. Raises SetpointError, after printing it as JSON where that was asked."""
    try:
        report = _run(command, stderr=stderr, load=load or load_runner)
    except SetpointError as error:
        if command.is_debug:
            traceback.print_exc(file=stderr)
        if command.as_json:
            failure = {"kind": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
            print(json.dumps({"schema": 1, "error": failure}, ensure_ascii=False), file=stdout, flush=True)
        raise
    if command.as_json:
        print(json.dumps(report.to_json(), ensure_ascii=False), file=stdout, flush=True)
    if not command.is_quiet:
        print(render(report), file=stderr if command.as_json else stdout, flush=True)
    return EXIT_ERROR_ROWS if command.fail_on_error_rows and report.ledger.num_failed else 0


def load_runner(options: EncoderOptions, rows: JobInput) -> Runner:
    """Load the model, chosen and calibrated on the first of the user's rows."""
    from setpoint.runners.encoder.runner import load_encoder

    return load_encoder(options, sample=rows.sample(SAMPLE_ROWS))


def _run(command: Command, *, stderr: TextIO, load: Callable[[EncoderOptions, JobInput], Runner]) -> JobReport:
    profile = _read_profile(command)
    given = _parse_options(command.options)
    options = EncoderOptions.from_keywords(given if profile is None else options_at(profile, given))
    target = make_target(command.output, format_name=command.output_format)
    plan = _plan(command, target, options)
    _refuse_input_as_output(command.inputs, target)
    state = check_may_begin(target, restart=plan.restart, overwrite=plan.overwrite)
    inputs = command.inputs if len(command.inputs) > 1 else command.inputs[0]
    source = open_source(inputs, format=command.input_format, query=command.query)
    rows = JobInput(source, plan, options.task)
    options = _as_begun(options, plan, state)
    reporter = make_reporter(stderr, is_quiet=command.is_quiet)
    stop = StopToken()
    with catching_signals() as desk:
        reporter.note(_say_loading(options))
        runner = load(options, rows)
        rate = None
        if profile is not None:
            unfit = _why_unfit(profile, runner, rows, is_refused=not command.recalibrate)
            if unfit is not None:
                reporter.note(unfit)
            if unfit is not None and command.recalibrate:
                reporter.note("measuring anew, as --recalibrate says")
                runner = load(_as_begun(EncoderOptions.from_keywords(given), plan, state), rows)
            else:
                rate = RateBand.of(profile, runner.fingerprint)
        for note in (*getattr(runner, "notes", ()), _say_chosen(runner)):
            reporter.note(note)
        plan = replace(plan, facts=dict(getattr(runner, "facts", {})))
        with desk.handing_to(stop.request):
            return run_job(rows, runner, plan, reporter=reporter, stop=stop, rate=rate)


def _read_profile(command: Command) -> OperatingPoint | None:
    if command.profile is None:
        if command.recalibrate:
            raise UsageError("--recalibrate is about a profile; give one with --profile setpoint.json")
        return None
    return read_profile(Path(command.profile))


def _why_unfit(profile: OperatingPoint, runner: Runner, rows: JobInput, *, is_refused: bool) -> str | None:
    """What to say of another model, machine or mix of lengths; None for none. Raises FingerprintMismatch if refused."""
    environment = read_environment()
    cpu = {"model": environment.cpu.model, "num_cores": environment.cpu.num_cores}
    try:
        check_holds(profile, runner.fingerprint, cpu, [found.name for found in environment.accelerators])
    except FingerprintMismatch as mismatch:
        if is_refused:
            raise
        return str(mismatch)
    encoded = runner.encode(rows.sample(SAMPLE_ROWS))
    return length_note(
        profile, [len(sequence) for row in encoded if isinstance(row, EncodedRow) for sequence in row.sequences]
    )


def _say_loading(options: EncoderOptions) -> str:
    measures = "auto" in (options.dtype, options.backend) or options.max_batch_tokens is None
    return f"loading {options.model}" + (" and measuring how it runs fastest here" if measures else "")


def _say_chosen(runner: Runner) -> str:
    choices = choices_of(runner)
    parts = [f"{choices['backend']} {choices['dtype']}", f"at most {choices['max_batch_tokens']:,} tokens a batch"]
    if choices["batch_size"] is not None:
        parts.append(f"at most {choices['batch_size']:,} sequences a batch")
    if choices["streams"] > 1:
        parts.append(f"{choices['streams']} streams")
    return f"running on {', '.join(parts)}"


def _parse_options(options: Mapping[str, Any]) -> dict[str, Any]:
    parsed = dict(options)
    top_k = parsed.get("top_k")
    if isinstance(top_k, str) and top_k.lstrip("+-").isdecimal():
        parsed["top_k"] = int(top_k)
    return parsed


def _plan(command: Command, target: Target, options: EncoderOptions) -> JobPlan:
    timeout = command.batch_timeout
    return JobPlan(
        target=target,
        inputs=InputPlan(**command.columns),
        keep=_parse_keep(command.keep),
        prefix=command.prefix,
        truncation=options.truncation,
        labels=options.labels,
        limit_rows=command.limit,
        restart=command.restart,
        overwrite=command.overwrite,
        batch_timeout_s=None if timeout is None else parse_duration(timeout, key="--batch-timeout"),
    )


def _parse_keep(keep: str | None) -> tuple[str, ...] | None:
    if keep is None or keep.strip() == "all":
        return None
    names = [name.strip() for name in keep.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    if not names:
        raise UsageError("--keep is empty; write for example --keep id,title, or --keep none")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(f"--keep names {', '.join(map(repr, repeated))} twice")
    return tuple(names)


def _as_begun(options: EncoderOptions, plan: JobPlan, state: SavedState) -> EncoderOptions:
    """The options with what `auto` became when the saved job was begun, so that nothing is measured anew."""
    if state.unfinished is not None and not plan.restart:
        choices = state.unfinished.choices
    elif state.finished is not None and not (plan.restart or plan.overwrite):
        choices = state.finished.document.get("choices", {})
    else:
        return options
    chosen: dict[str, Any] = {}
    for name in ("dtype", "backend"):
        if getattr(options, name) == "auto" and choices.get(name) is not None:
            chosen[name] = choices[name]
    for name in ("max_batch_tokens", "batch_size", "streams"):
        if getattr(options, name) is None and choices.get(name) is not None:
            chosen[name] = choices[name]
    return replace(options, **chosen)


def _refuse_input_as_output(inputs: tuple[str, ...], target: Target) -> None:
    for name in inputs:
        if os.path.exists(name) and os.path.exists(target.path) and os.path.samefile(name, target.path):
            raise UsageError(f"{name} is the input and the output at once; choose another output")
