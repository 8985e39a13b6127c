"""Who takes part: Setpoint in every dtype, peers at the settings that tuning found, and what people use as it comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.worker import WorkerFailed
from scoring.crew import OURS, PIPELINE, SENTENCE, Crew, Job
from scoring.entries import AUTO, DTYPES, Entry, Role, Workload, settings_as_people_use
from scoring.findings import Findings, Plan
from scoring.outcome import new_timings
from scoring.tuning import Tuned, describe, tune

_BEHIND = 1.15  # a peer this far behind the best of its dtype in tuning is not timed where time is short
_RESERVE_S = 70.0  # of a quick run, for the rounds

Say = Callable[[str], None]


def prepare_ours(
    crew: Crew, plan: Plan, found: Findings, model_name: str, model: Path, say: Say
) -> dict[tuple[Role, str], Job]:
    """Setpoint in every dtype. In a quick run `auto` is not loaded twice: what it chose stands for that dtype."""
    jobs: dict[tuple[Role, str], Job] = {}
    has = [dtype for dtype in (AUTO, *DTYPES) if dtype in plan.dtypes and crew.settings(OURS, dtype)]
    stands_for: str | None = None
    for dtype in has:
        if dtype == stands_for:
            for role in (Role.JOB, Role.RUNNER):
                jobs[role, dtype] = jobs[role, AUTO]
            continue
        for role in (Role.JOB, Role.RUNNER):
            job = Job(contender=OURS, model=model, dtype=dtype, setting=_what(role))
            seconds = crew.prepare(job)
            jobs[role, dtype] = job
            if role is Role.JOB:
                say(f"{model_name}: Setpoint {dtype} loaded in {seconds:.0f} s")
        facts = crew.call(OURS, "facts", model=str(model), dtype=dtype)
        found.chosen[f"{model_name} {dtype}"] = facts
        if dtype == AUTO and plan.is_quick:
            stands_for = facts["facts"]["dtype"]
    return jobs


def _what(role: Role) -> Mapping[str, Any]:
    return {"what": "job" if role is Role.JOB else "runner"}


def tune_peers(
    crew: Crew, plan: Plan, model: Path, texts: Path, num_texts: int, say: Say
) -> dict[tuple[str, str], Tuned]:
    tuned: dict[tuple[str, str], Tuned] = {}
    for name in plan.peers:
        for dtype in DTYPES:
            settings = crew.settings(name, dtype)
            if dtype not in plan.dtypes or not settings:
                continue
            if plan.is_quick:
                settings = quick_settings(name, settings)
                if time.monotonic() + _RESERVE_S > (plan.deadline or math.inf):
                    crew.missing[f"{name} {dtype}"] = "no time left in a quick run"
                    continue

            def measure(setting: Mapping[str, Any], name: str = name, dtype: str = dtype) -> float:
                job = Job(contender=name, model=model, dtype=dtype, setting=setting)
                return float(crew.run(job, texts, num_texts=num_texts)["seconds"])

            begin = time.monotonic()
            try:
                tuned[name, dtype] = tune(settings, measure)
            except WorkerFailed as error:
                crew.missing[f"{name} {dtype}"] = str(error)
                say(f"{name} {dtype} is left out: {error}")
                if not crew.workers[name].is_alive:
                    crew.drop(name, str(error))
                continue
            best = tuned[name, dtype]
            say(
                f"{name} {dtype}: {describe(best.setting)}, {num_texts / best.seconds:.0f} texts/s on the sample "
                f"(tuning took {time.monotonic() - begin:.0f} s)"
            )
    return tuned


def quick_settings(name: str, settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Fewer to try: all of OpenVINO's, which is the one to beat; of the others one, small batches on all cores."""
    if name == "openvino":
        return list(settings)
    small = [setting for setting in settings if setting["batch"] in (4, 8)] or list(settings)
    most_streams = max(setting.get("streams", 1) for setting in small)
    wanted = 4 if any("streams" in setting for setting in small) else 8
    candidates = [setting for setting in small if setting.get("streams", 1) == most_streams]
    return [min(candidates, key=lambda setting: abs(setting["batch"] - wanted))]


def line_up(
    crew: Crew,
    plan: Plan,
    workload: Workload,
    ours: Mapping[tuple[Role, str], Job],
    tuned: Mapping[tuple[str, str], Tuned],
) -> list[Entry]:
    """The entries of a workload. Peers far behind in tuning are left out where time is short."""
    found: list[Entry] = []

    def add(role: Role, dtype: str, job: Job, *, is_sampled: bool = False) -> None:
        size = workload.sample_size if is_sampled else workload.num_texts
        found.append(Entry(job=job, role=role, timings=new_timings(size), is_sampled=is_sampled))

    for (role, dtype), job in ours.items():
        if job.dtype != dtype:  # what `auto` chose stands for this dtype
            next(entry for entry in found if entry.job is job).stands_for = dtype
        elif role is Role.JOB or dtype == AUTO or not plan.is_quick or AUTO not in plan.dtypes:
            add(role, dtype, job)
    for (name, dtype), best in tuned.items():
        if not _is_far_behind(plan, workload, tuned, name, dtype):
            add(Role.PEER, dtype, Job(contender=name, model=workload.model, dtype=dtype, setting=best.setting))
    people = settings_as_people_use()
    is_part = workload.sample_size < workload.num_texts
    if PIPELINE in plan.peers and AUTO in plan.dtypes:
        for role in (Role.UNSORTED, Role.ONE):
            job = Job(contender=PIPELINE, model=workload.model, dtype="float32", setting=people[role])
            add(role, "float32", job, is_sampled=is_part)
    for dtype in ("float32", "bfloat16"):
        if SENTENCE in crew.hellos and dtype in plan.dtypes and SENTENCE in plan.peers:
            setting = people[Role.DEFAULT]
            add(Role.DEFAULT, dtype, Job(contender=SENTENCE, model=workload.model, dtype=dtype, setting=setting))
    return found


def _is_far_behind(
    plan: Plan, workload: Workload, tuned: Mapping[tuple[str, str], Tuned], name: str, dtype: str
) -> bool:
    """Where time is short, only the front runners of tuning go into the rounds."""
    if not plan.is_quick and workload.num_texts <= 500:
        return False
    best = min(found.seconds for (_, other), found in tuned.items() if other == dtype)
    return tuned[name, dtype].seconds > best * _BEHIND
