"""What a run prints: tables for people, then the JSON line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.report import json_line, plain, rounded
from scoring.crew import Crew
from scoring.entries import DTYPES, Role
from scoring.findings import MAX_LENGTH, Findings, Plan
from scoring.outcome import TARGETS, Ratio, entry_figures, mfu, overheads, race_table, ratio_table

Say = Callable[[str], None]


def report(plan: Plan, crew: Crew, found: Findings, show: Say) -> None:
    """Tables, then the line."""
    show(_headline(plan, found))
    for race in found.races:
        workload = race.workload
        show(
            f"\n{workload.name}: {workload.useful_tokens:,} useful tokens, "
            f"{workload.flops / 1e9:.0f} GFLOP, limit of {MAX_LENGTH} tokens, seed {plan.seed}"
        )
        show(race_table(race, found.peaks))
        if found.behind[workload.name]:
            show(f"far behind in tuning, so not timed here: {', '.join(found.behind[workload.name])}")
        for dtype, share in overheads(race).items():
            show(f"machinery, {dtype}: the job takes {share.median:.3f} × the bare runner's time")
    for entry in found.memory:
        show(
            f"peak memory, {entry['rows']:,} rows: {entry['peak_bytes'] / 2**20:.0f} MiB "
            f"({entry['rows_per_s']:,.0f} rows/s through files and all, no model)"
        )
    show("\n" + ratio_table(found.ratios))
    for name, why in crew.missing.items():
        show(f"missing: {name}: {why}")
    for warning in found.warnings:
        show(f"warning: {warning}")
    show(
        json_line(
            "score",
            environment={**found.environment, "peers": {k: v["versions"] for k, v in crew.hellos.items()}},
            figures=_figures(plan, crew, found),
            ratios=_all_ratios(found.ratios),
            targets={key: TARGETS[key.split("@")[0]] for key in _all_ratios(found.ratios)},
        )
    )


def _all_ratios(ratios: Sequence[Ratio]) -> dict[str, float | None]:
    """Every target's ratio, None where it was not measured, and those of further workloads."""
    measured = {ratio.key: None if ratio.found is None else ratio.found.median for ratio in ratios}
    return {**dict.fromkeys(TARGETS), **measured}


def _figures(plan: Plan, crew: Crew, found: Findings) -> dict[str, Any]:
    return {
        "quick": plan.is_quick,
        "seed": plan.seed,
        "max_length": MAX_LENGTH,
        "gemm_peak_gflops": {dtype: rounded(None if v is None else v / 1e9) for dtype, v in found.peaks.items()},
        "workloads": [
            {
                "model": race.workload.model_name,
                "texts": race.workload.num_texts,
                "useful_tokens": race.workload.useful_tokens,
                "gflop": rounded(race.workload.flops / 1e9),
                "checked_texts": len(race.workload.checked),
                "entries": entry_figures(race, found.peaks),
                "machinery_overhead": {dtype: plain(share) for dtype, share in overheads(race).items()},
                "mfu_bare_runner": {dtype: plain(mfu(race, dtype, found.peaks, role=Role.RUNNER)) for dtype in DTYPES},
            }
            for race in found.races
        ],
        "ratios": {ratio.key: {"found": plain(ratio.found), "against": ratio.against} for ratio in found.ratios},
        "tuning": found.tuning,
        "not_timed": found.behind,
        "chosen": found.chosen,
        "memory": found.memory,
        "missing": dict(crew.missing),
        "warnings": found.warnings,
    }


def _headline(plan: Plan, found: Findings) -> str:
    cpu = found.environment.get("cpu", {})
    peaks = ", ".join(f"{dtype} {rate / 1e9:.0f}" for dtype, rate in found.peaks.items() if rate)
    return (
        f"{cpu.get('model', 'unknown processor')}, {plan.cores} threads, {' '.join(cpu.get('isa', ()))}\n"
        f"fastest matrix product, GFLOP/s: {peaks}"
    )
