"""`setpoint choose`: a point of a measured curve, with its reason."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from setpoint.choose import Choice
    from setpoint.domain.curve import Point
    from setpoint.domain.slo import Objective

NO_OUTPUT = "-"


def choose(
    curve: Annotated[Path, typer.Argument(metavar="CURVE", help="A curve that setpoint sweep has written.")],
    slo: Annotated[
        list[str] | None,
        typer.Option("--slo", metavar="LIMITS", help='Limits on latency: "batch p99 < 250ms"; repeat or use commas.'),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="NAME",
            help="throughput, latency, or deadline (throughput within the limits). Without limits, throughput is the "
            "knee.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where the profile goes, replacing an earlier one; - writes none."
        ),
    ] = Path("setpoint.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Choose a point of a measured curve, and say why.

    Takes the highest throughput whose latency, by the bad end of its interval, keeps every limit; without limits, the
    knee. Measures nothing, so that it can be repeated with other limits. Exits with 1 if no setting keeps the limits.

    Example: setpoint choose curve.json --slo "batch p99 < 250ms"
    """
    from datetime import UTC, datetime

    from setpoint.artifacts.curve_file import read_curve
    from setpoint.artifacts.profile_file import write_profile
    from setpoint.choose import choose as choose_point
    from setpoint.choose import explain, operating_point, parse_slos
    from setpoint.errors import SetpointError

    slos = parse_slos(", ".join(slo)) if slo else ()
    wanted = _objective(objective)
    writes = str(output) != NO_OUTPUT
    measured = read_curve(curve)
    choice = choose_point(measured, slos=slos, objective=wanted)
    if choice.point is None:
        if as_json:
            typer.echo(json.dumps(document(choice), indent=2))
        raise SetpointError(choice.reason if as_json else explain(choice))
    if writes:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        write_profile(output, operating_point(measured, choice, created))
    if as_json:
        typer.echo(json.dumps(document(choice), indent=2))
        return
    typer.echo(explain(choice))
    if not measured.is_complete:
        typer.echo("warning: the sweep was interrupted; run it again to measure the rest", err=True)
    if writes:
        typer.echo(f"written: {output}")


def document(choice: Choice) -> dict[str, Any]:
    """What --json prints: the choice with its figures; latencies in seconds, `point` null if nothing was chosen."""
    return {
        "schema": 1,
        "point": None if choice.point is None else _point(choice.point),
        "objective": choice.objective.value,
        "slos": [asdict(slo) for slo in choice.slos],
        "reason": choice.reason,
        "throughput_name": choice.throughput_name,
        "latency_metric": choice.latency_metric,
        "latency_quantile": choice.latency_quantile,
        "alternatives": [
            {
                "role": a.role,
                "setting": dict(a.setting),
                "throughput": a.throughput,
                "latency_s": a.latency_s,
                "throughput_change": a.throughput_change,
                "latency_change": a.latency_change,
            }
            for a in choice.alternatives
        ],
        "knees": [{"method": knee.method, "setting": dict(knee.point.setting)} for knee in choice.knees],
        "inconclusive": [
            {
                "setting": dict(item.point.setting),
                "slo": asdict(item.slo),
                "estimate": None if item.estimate is None else asdict(item.estimate),
                "num_more_samples": item.num_more_samples,
            }
            for item in choice.inconclusive
        ],
        "infeasible": None
        if choice.infeasible is None
        else {
            "is_certain": choice.infeasible.is_certain,
            "floors": [
                {
                    "slo": asdict(floor.slo),
                    "setting": None if floor.point is None else dict(floor.point.setting),
                    "estimate": None if floor.estimate is None else asdict(floor.estimate),
                }
                for floor in choice.infeasible.floors
            ],
        },
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "setting": dict(point.setting),
        "throughput": {name: asdict(estimate) for name, estimate in point.throughput.items()},
        "latency_s": {
            metric: {
                "num_samples": distribution.num_samples,
                "quantiles": {
                    f"{quantile:g}": None if estimate is None else asdict(estimate)
                    for quantile, estimate in distribution.quantiles.items()
                },
            }
            for metric, distribution in point.latency_s.items()
        },
    }


def _objective(name: str | None) -> Objective | None:
    from setpoint.domain.slo import Objective
    from setpoint.errors import UsageError, unknown

    if name is None:
        return None
    names = [objective.value for objective in Objective]
    if name not in names:
        raise UsageError(unknown("objective", name, names))
    return Objective(name)
