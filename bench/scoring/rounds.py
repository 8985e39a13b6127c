"""Rounds: every entry once, in an order that changes, until there are enough or the time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.ratios import cosines, worst
from harness.worker import WorkerFailed
from scoring.crew import Crew
from scoring.entries import Entry, Race, Role, Workload

_PAUSE_S = 0.2  # threads of the one before stop spinning


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """How many rounds; those who are only there to be far behind take part in fewer. `deadline` ends it earlier."""

    rounds: int
    slow_rounds: int
    seed: int
    deadline: float | None = None  # of time.monotonic()


SLOW_ROLES = (Role.UNSORTED, Role.ONE, Role.DEFAULT)


def run_rounds(crew: Crew, race: Race, plan: RoundPlan, *, reference: np.ndarray, say: Callable[[str], None]) -> None:
    """Fill the entries' timings; the first pass of each also gives the vectors that its quality is judged by."""
    rng = random.Random(plan.seed)
    longest_round_s = 0.0
    for number in range(plan.rounds):
        begin = time.monotonic()
        if number and plan.deadline is not None and begin + longest_round_s > plan.deadline:
            say(f"stopped after {number} of {plan.rounds} rounds: the time is up")
            return
        taking_part = [
            entry
            for entry in race.entries
            if entry.problem is None and (number < plan.slow_rounds or entry.role not in SLOW_ROLES)
        ]
        rng.shuffle(taking_part)
        quick_s = 0.0
        if plan.deadline is not None:  # so that a time that is up costs those who are only there to be far behind
            taking_part.sort(key=lambda entry: entry.role in SLOW_ROLES)
        for entry in taking_part:
            taken = time.monotonic()
            if plan.deadline is not None and taken > plan.deadline and entry.role in SLOW_ROLES:
                entry.problem = "no time left in a quick run"
                continue
            time_entry(crew, race.workload, entry, number=number, reference=reference)
            if entry.role not in SLOW_ROLES:
                quick_s += time.monotonic() - taken
        longest_round_s = max(longest_round_s, quick_s if number + 1 >= plan.slow_rounds else time.monotonic() - begin)
        say(f"{race.workload.name}: round {number + 1} of {plan.rounds} took {time.monotonic() - begin:.0f} s")


def time_entry(crew: Crew, workload: Workload, entry: Entry, *, number: int, reference: np.ndarray) -> None:
    """One pass; what goes wrong with a peer is kept as its problem, what goes wrong with ours is raised."""
    time.sleep(_PAUSE_S)
    is_first = entry.min_cosine is None and not entry.is_sampled
    vectors = crew.cache / "vectors.npy" if is_first else None
    path, count = (
        (workload.sample_path, workload.sample_size) if entry.is_sampled else (workload.path, workload.num_texts)
    )
    try:
        told = crew.run(entry.job, path, num_texts=count, vectors=vectors)
    except WorkerFailed as error:
        if entry.role in (Role.JOB, Role.RUNNER):
            raise
        entry.problem = str(error)
        return
    entry.timings.seconds[number] = told["seconds"]
    entry.processed_tokens = told["processed_tokens"]
    if vectors is not None:
        entry.min_cosine = check(vectors, workload, reference)


def check(vectors: Path, workload: Workload, reference: np.ndarray) -> float:
    """The smallest cosine to float32, one at a time, over the texts that are checked."""
    found = np.load(vectors)
    vectors.unlink()
    return worst(cosines(found[list(workload.checked)], reference))
