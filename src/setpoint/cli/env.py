"""`setpoint env`: the machine as Setpoint sees it, and what it can reach."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from setpoint.domain.environment import UNKNOWN, Environment, Limits
from setpoint.domain.units import format_number, format_rate, format_size

# How long the machine is watched for other work, when nothing else is measured meanwhile.
_WATCH_S = 0.5


def env(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure GEMM peaks and memory bandwidth (about 7 s)."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Show this machine as Setpoint sees it.

    Processor, memory, accelerators, what a container allows, versions; with --measure also what the machine can
    reach at most. Warns of what spoils timings.

    Example: setpoint env --measure
    """
    import time
    from dataclasses import replace

    from setpoint.measure.disturbance import read_counters, warnings_between
    from setpoint.measure.environment import measure_limits, read_environment

    environment = read_environment()
    before = read_counters()
    if measure:
        environment = replace(environment, limits=measure_limits())
    else:
        time.sleep(_WATCH_S)
    warnings = warnings_between(environment, before, read_counters())
    if as_json:
        document = {
            "schema": 1,
            **environment.as_dict(),
            "warnings": [{"code": w.code, "message": w.message, "advice": w.advice} for w in warnings],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    typer.echo(render(environment))
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def render(environment: Environment) -> str:
    """The environment as lines for a person, unknowns said to be unknown."""
    cpu, memory = environment.cpu, environment.memory
    lines = [
        ("system", environment.system),
        ("processor", f"{cpu.model} ({cpu.architecture})"),
        ("extensions", ", ".join(cpu.isa) or UNKNOWN),
        ("cores", _cores(environment)),
        ("threads", f"{environment.num_threads} (torch)"),
        ("memory", _limited(memory.total_bytes, memory.limit_bytes)),
    ]
    for found in environment.accelerators:
        size = UNKNOWN if found.memory_bytes is None else format_size(found.memory_bytes)
        lines.append(("accelerator", f"{found.device}: {found.name}, {size}, driver {found.driver or UNKNOWN}"))
    if not environment.accelerators:
        lines.append(("accelerator", "none that torch can use"))
    lines.extend(_limits(environment.limits) if environment.limits else [])
    versions = (f"{name} {version or 'not installed'}" for name, version in environment.versions.items())
    lines.extend((("versions", next(versions)), *(("", version) for version in versions)))
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in lines)


def _cores(environment: Environment) -> str:
    cpu = environment.cpu
    notes = []
    if cpu.affinity_cores is not None and cpu.affinity_cores < cpu.num_cores:
        notes.append(f"{cpu.affinity_cores} by affinity")
    if cpu.quota_cores is not None and cpu.quota_cores < cpu.num_cores:
        notes.append(f"{format_number(cpu.quota_cores)} by the container's quota")
    return f"{cpu.num_cores}, of which usable: {', '.join(notes)}" if notes else str(cpu.num_cores)


def _limited(total_bytes: int, limit_bytes: int | None) -> str:
    if limit_bytes is None or limit_bytes >= total_bytes:
        return format_size(total_bytes)
    return f"{format_size(total_bytes)}, of which the container may use {format_size(limit_bytes)}"


def _limits(limits: Limits) -> list[tuple[str, str]]:
    rows = []
    for dtype, per_s in limits.gemm_per_s.items():
        unit = "GOP" if dtype == "int8" else "GFLOP"
        rows.append((f"peak {dtype}", "no product on this device" if per_s is None else format_rate(per_s / 1e9, unit)))
    rows.append(("bandwidth", format_rate(limits.bandwidth_bytes_per_s / 1e9, "GB")))
    return rows
