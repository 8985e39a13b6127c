"""What `setpoint sweep` does with its options: checks them in the order of their cost, then measures and chooses."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from setpoint._version import __version__
from setpoint.artifacts.curve_file import curve_to_json, write_curve
from setpoint.artifacts.profile_file import write_profile
from setpoint.choose import choose, explain, operating_point, parse_slos
from setpoint.cli.live import SweepView
from setpoint.cli.measured import Models, read_rows
from setpoint.cli.signals import catching_signals
from setpoint.cli.tuning import Tuning, parse_tuning
from setpoint.cost.evidence import examine_cost
from setpoint.cost.fit import CostSample
from setpoint.domain.curve import CostEvidence, Curve
from setpoint.domain.slo import Objective, Slo
from setpoint.domain.units import parse_duration
from setpoint.errors import Interrupted, OutputError, SetpointError, UsageError, unknown
from setpoint.measure.clock import MonotonicClock
from setpoint.measure.disturbance import read_counters, warnings_between
from setpoint.measure.encoder_subject import EncoderSubject
from setpoint.measure.environment import measure_limits, read_environment
from setpoint.measure.sweep.plan import Plan, plan_points
from setpoint.measure.sweep.run import SweepResult, run_sweep
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.probe import synchronize

_LIMIT_SECONDS = 0.5  # for each dtype's peak, before the sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The options as they were given; `options` holds those of the model that were given at all."""

    data: str
    options: Mapping[str, Any]
    columns: Mapping[str, str | None]
    num_rows: int
    tune: str | None
    budget: str
    slo: str | None
    objective: str | None
    seed: int
    output: str
    profile: str
    overwrite: bool
    is_quiet: bool
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The options, checked."""

    options: EncoderOptions
    tuning: Tuning
    slos: tuple[Slo, ...]
    objective: Objective | None
    budget_s: float
    output: Path
    profile: Path


def run_command(command: Command, *, stdout: TextIO, stderr: TextIO) -> int:
    """Measure, save the curve, choose, save the point; returns the exit code.

    Raises SetpointError after printing it as JSON where that was asked. A sweep that ends early keeps its curve.
    """
    try:
        return _run(command, stdout=stdout, stderr=stderr)
    except SetpointError as error:
        if command.as_json:
            failure = {"kind": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
            print(json.dumps({"schema": 1, "error": failure}, ensure_ascii=False), file=stdout, flush=True)
        raise


def _run(command: Command, *, stdout: TextIO, stderr: TextIO) -> int:
    wanted = _check(command)
    rows = read_rows(command.data, command.columns, wanted.options, num_rows=command.num_rows)
    view = SweepView(stderr, is_quiet=command.is_quiet)
    stopped = threading.Event()
    with catching_signals() as desk:
        view.note(f"loading {wanted.options.model}")
        models = Models(wanted.options, rows.rows)
        try:
            for note in models.base.notes:
                view.note(note)
            device = str(models.base.facts["device"])
            subject = EncoderSubject(
                models.runner,
                models.sequences(),
                clock=MonotonicClock(),
                synchronize=lambda: synchronize(device),
                seed=command.seed,
                name=rows.name,
            )
            plan = _plan(wanted.tuning, subject, seed=command.seed)
            for note in plan.notes:
                view.note(note)
            environment = read_environment(limits=measure_limits(seconds=_LIMIT_SECONDS, device=device))
            before = read_counters()
            created = datetime.now(UTC).isoformat(timespec="seconds")

            def curve_of(result: SweepResult, cost: CostEvidence | None = None) -> Curve:
                warnings = warnings_between(environment, before, read_counters())
                return Curve(
                    subject=subject.fingerprint,
                    options=_options_to_load(models.options),
                    environment=environment.as_dict(),
                    workload=subject.workload,
                    points=result.points,
                    anchor=plan.anchor.setting,
                    default=None if plan.default is None else plan.default.setting,
                    seed=command.seed,
                    budget_s=wanted.budget_s,
                    spent_s=result.spent_s,
                    created=created,
                    setpoint_version=__version__,
                    is_complete=result.is_complete,
                    cost=cost,
                    warnings=tuple(str(warning) for warning in warnings),
                )

            with desk.handing_to(lambda why: stopped.set()), view:
                result = run_sweep(
                    subject,
                    plan,
                    clock=MonotonicClock(),
                    budget_s=wanted.budget_s,
                    slos=wanted.slos,
                    on_visit=view.show,
                    save=lambda partial: write_curve(wanted.output, curve_of(partial)),
                    stop=stopped.is_set,
                )
        finally:
            models.close()
    curve = curve_of(result, _cost_of(result))
    write_curve(wanted.output, curve)
    for note in (*result.notes, *curve.warnings):
        view.note(note)
    if stopped.is_set():
        raise Interrupted(f"stopped by {desk.name or 'Ctrl-C'}; {wanted.output} has what was measured until then")
    return _choose(command, wanted, curve, stdout=stdout, stderr=stderr)


def _choose(command: Command, wanted: _Wanted, curve: Curve, *, stdout: TextIO, stderr: TextIO) -> int:
    people = stderr if command.as_json else stdout
    if command.as_json:
        print(json.dumps(curve_to_json(curve), ensure_ascii=False), file=stdout, flush=True)
    try:
        choice = choose(curve, slos=wanted.slos, objective=wanted.objective)
    except SetpointError as error:  # such as no valid point: the curve is still the one document on stdout
        print(f"setpoint: {error}", file=stderr, flush=True)
        return error.exit_code
    if not command.is_quiet:
        print(explain(choice), file=people)
        print(f"curve: {wanted.output}", file=people, flush=True)
    if choice.point is None:
        return 1
    write_profile(wanted.profile, operating_point(curve, choice, datetime.now(UTC).isoformat(timespec="seconds")))
    if not command.is_quiet:
        print(f"point: {wanted.profile}; run at it with: setpoint score --profile {wanted.profile} ...", file=people)
    return 0


def _check(command: Command) -> _Wanted:
    """Everything that can be wrong without reading a row or loading a model."""
    tuning = parse_tuning(command.tune)
    options = EncoderOptions.from_keywords(command.options)
    for name, values in tuning.variants:
        for value in values:
            EncoderOptions.from_keywords({**command.options, name: value})
    if command.num_rows < 1:
        raise UsageError(f"--rows must be at least 1, not {command.num_rows}")
    output, profile = Path(command.output), Path(command.profile)
    if output.exists() and not command.overwrite:
        raise OutputError(f"{output} exists; give --overwrite to replace it, or another --output")
    for path in (output, profile):
        if not path.absolute().parent.is_dir():
            raise OutputError(f"{path} cannot be written: there is no folder {path.parent}")
    return _Wanted(
        options=options,
        tuning=tuning,
        slos=parse_slos(command.slo) if command.slo is not None else (),
        objective=None if command.objective is None else _objective(command.objective),
        budget_s=parse_duration(command.budget, key="--budget"),
        output=output,
        profile=profile,
    )


def _objective(text: str) -> Objective:
    try:
        return Objective(text.strip().lower())
    except ValueError:
        raise UsageError(unknown("objective", text, list(Objective))) from None


def _plan(tuning: Tuning, subject: EncoderSubject, *, seed: int) -> Plan:
    names = [name for name, _ in tuning.variants]
    variants = [dict(zip(names, values)) for values in itertools.product(*(values for _, values in tuning.variants))]
    return plan_points(subject.lengths, variants=variants, load_name=tuning.load_name, loads=tuning.loads, seed=seed)


def _options_to_load(options: EncoderOptions) -> dict[str, Any]:
    """What loads the same model again, in JSON's types; the batches are the chosen point's."""
    found = json.loads(json.dumps(asdict(options)))
    return {name: value for name, value in found.items() if value is not None}


def _cost_of(result: SweepResult) -> CostEvidence | None:
    """The cost model over all undisturbed batches of valid points; None without any."""
    valid = {point.key: point.num_warmup for point in result.points if point.is_valid}
    samples = [
        sample
        for key, visits in result.visits.items()
        if key in valid
        for sample in [sample for visit in visits for sample in visit.samples][valid[key] :]
    ]
    samples.sort(key=lambda sample: sample.start_ns)
    if not samples:
        return None
    costs = [
        CostSample(
            num_tokens=sample.processed_tokens,
            sum_len2=sample.sum_len2,
            seconds=(sample.end_ns - sample.start_ns) / 1e9,
        )
        for sample in samples
    ]
    return examine_cost(costs, [sample.longest for sample in samples])
