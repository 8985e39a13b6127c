"""Who takes part: Setpoint in every dtype, peers at the settings that tuning found, and what people use as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.worker import WorkerFailed
from scoring.crew import FRONT_RUNNER, OURS, PIPELINE, SENTENCE, VENV_PEERS, Crew, Job
from scoring.entries import AUTO, DTYPES, Entry, Role, Workload, settings_as_people_use
from scoring.findings import Findings, Plan
from scoring.outcome import new_timings
from scoring.tuning import Tuned, describe, tune

_BEHIND = 1.15  # a peer this far behind the best of its dtype in tuning is not timed where time is short
_RESERVE_S = 65.0  # of a quick run, for the reference, the warm-up and the rounds

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Lineup:
    """What is ready to be timed on a model: our jobs by role and dtype, peers by name and dtype."""

    ours: dict[tuple[Role, str], Job] = field(default_factory=dict)
    tuned: dict[tuple[str, str], Tuned] = field(default_factory=dict)
    auto: Mapping[str, Any] = field(default_factory=dict)  # what `auto` chose


def prepare(
    crew: Crew, plan: Plan, found: Findings, model_name: str, model: Path, texts: Path, num_texts: int, say: Say
) -> Lineup:
    """Load Setpoint and tune the peers, what matters most first: a quick run may run out of time."""
    lineup = Lineup()
    front, others = _by_importance(plan.peers)
    for dtypes in ((AUTO, "float32", "bfloat16"), ("int8",)):
        for dtype in dtypes:
            if dtype not in plan.dtypes or not crew.settings(OURS, dtype):
                continue
            if dtype == AUTO or _has_time(crew, plan, f"{OURS} {dtype}"):
                _prepare_ours(crew, plan, found, lineup, model_name, model, dtype, say)
        for name in front:
            _tune(crew, plan, lineup, model, name, dtypes, texts, num_texts, say)
    for name in others:
        _tune(crew, plan, lineup, model, name, DTYPES, texts, num_texts, say)
    return lineup


def _by_importance(peers: Sequence[str]) -> tuple[list[str], list[str]]:
    """The one to beat, and the others: those that need an environment of their own before those that are slow."""
    front = [name for name in peers if name == FRONT_RUNNER]
    others = [name for name in peers if name in VENV_PEERS] + [name for name in peers if name in (PIPELINE, SENTENCE)]
    return front, others


def _has_time(crew: Crew, plan: Plan, what: str) -> bool:
    """Whether a quick run can still afford it; says what is left out."""
    if plan.deadline is None or time.monotonic() + _RESERVE_S < plan.deadline:
        return True
    crew.missing[what] = "no time left in a quick run; what was converted is kept, so the next run gets further"
    return False


def _prepare_ours(
    crew: Crew, plan: Plan, found: Findings, lineup: Lineup, model_name: str, model: Path, dtype: str, say: Say
) -> None:
    """Setpoint in a dtype.

    In a quick run `auto` is not loaded twice, what it chose stands for that dtype, and the other dtypes are told its
    backend and streams instead of measuring all of them again.
    """
    if plan.is_quick and dtype == lineup.auto.get("dtype"):
        for role in (Role.JOB, Role.RUNNER):
            lineup.ours[role, dtype] = lineup.ours[role, AUTO]
        return
    given = quick_options(lineup.auto, dtype) if plan.is_quick and dtype != AUTO else {}
    for role, what in ((Role.JOB, "job"), (Role.RUNNER, "runner")):
        job = Job(contender=OURS, model=model, dtype=dtype, setting={"what": what, **given})
        seconds = crew.prepare(job)
        lineup.ours[role, dtype] = job
        if role is Role.JOB:
            say(f"{model_name}: Setpoint {dtype} loaded in {seconds:.0f} s")
    facts = crew.call(OURS, "facts", model=str(model), dtype=dtype)
    found.chosen[f"{model_name} {dtype}"] = facts
    if dtype == AUTO:
        lineup.auto = facts["facts"]


def quick_options(auto: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Options that spare measuring what `auto` has measured: its backend and its number of streams."""
    backend = str(auto.get("backend", "auto")).split("-")[0]
    if dtype == "int8" and backend != "openvino":
        return {}
    streams = auto.get("streams")
    return {"backend": backend, **({} if streams is None else {"streams": streams})}


def _tune(
    crew: Crew,
    plan: Plan,
    lineup: Lineup,
    model: Path,
    name: str,
    dtypes: Sequence[str],
    texts: Path,
    num_texts: int,
    say: Say,
) -> None:
    """Find a peer's best setting in each dtype; a peer that fails is left out and named."""
    for dtype in dtypes:
        settings = crew.settings(name, dtype)
        if dtype not in plan.dtypes or not settings or not _has_time(crew, plan, f"{name} {dtype}"):
            continue

        def measure(setting: Mapping[str, Any], dtype: str = dtype) -> float:
            job = Job(contender=name, model=model, dtype=dtype, setting=setting)
            return float(crew.run(job, texts, num_texts=num_texts)["seconds"])

        begin = time.monotonic()
        try:
            best = tune(quick_settings(name, settings) if plan.is_quick else settings, measure)
        except WorkerFailed as error:
            crew.missing[f"{name} {dtype}"] = str(error)
            say(f"{name} {dtype} is left out: {error}")
            if not crew.workers[name].is_alive:
                crew.drop(name, str(error))
            continue
        lineup.tuned[name, dtype] = best
        say(
            f"{name} {dtype}: {describe(best.setting)}, {num_texts / best.seconds:.0f} texts/s on the sample "
            f"(tuning took {time.monotonic() - begin:.0f} s)"
        )


def quick_settings(name: str, settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Fewer to try: all of OpenVINO's, which is the one to beat; of the others one, small batches on all cores."""
    if name == FRONT_RUNNER:
        return list(settings)
    small = [setting for setting in settings if setting["batch"] in (4, 8)] or list(settings)
    most_streams = max(setting.get("streams", 1) for setting in small)
    wanted = 4 if any("streams" in setting for setting in small) else 8
    candidates = [setting for setting in small if setting.get("streams", 1) == most_streams]
    return [min(candidates, key=lambda setting: abs(setting["batch"] - wanted))]


def line_up(crew: Crew, plan: Plan, workload: Workload, lineup: Lineup) -> list[Entry]:
    """The entries of a workload. Peers far behind in tuning are left out where time is short."""
    found: list[Entry] = []

    def add(role: Role, dtype: str, job: Job, *, is_sampled: bool = False) -> None:
        size = workload.sample_size if is_sampled else workload.num_texts
        found.append(Entry(job=job, role=role, timings=new_timings(size), is_sampled=is_sampled))

    for (role, dtype), job in lineup.ours.items():
        if job.dtype != dtype:  # what `auto` chose stands for this dtype
            next(entry for entry in found if entry.job is job).stands_for = dtype
        elif role is Role.JOB or dtype == AUTO or not plan.is_quick or AUTO not in plan.dtypes:
            add(role, dtype, job)
    for (name, dtype), best in lineup.tuned.items():
        if not _is_far_behind(plan, workload, lineup.tuned, name, dtype):
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
