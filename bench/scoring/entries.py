"""Who is timed in a workload, as what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from harness.ratios import Timings
from scoring.crew import Job
from scoring.tuning import describe

DTYPES = ("float32", "bfloat16", "int8")
AUTO = "auto"
GOOD_COSINE = 0.99  # an int8 peer counts if every text is at least this close to float32


class Role(StrEnum):
    """What an entry is timed as."""

    JOB = "job"  # Setpoint's whole job
    RUNNER = "bare runner"  # Setpoint without files, manifest, order and ledger
    PEER = "peer"  # at its best setting
    DEFAULT = "default"  # sentence-transformers as it comes
    UNSORTED = "unsorted 32"  # the pipeline's default use of batches
    ONE = "one at a time"  # the pipeline without batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Texts for a model. `path` and `sample_path` hold the same texts and a few typical ones for whoever is slow."""

    model_name: str
    model: Path
    path: Path
    num_texts: int
    lengths: Sequence[int]
    flops: float
    sample_path: Path
    sample_size: int
    checked: Sequence[int]  # positions of the texts that vectors are compared at

    @property
    def name(self) -> str:
        """Model and size."""
        return f"{self.model_name}/{self.num_texts}"

    @property
    def useful_tokens(self) -> int:
        """Of all texts."""
        return int(sum(self.lengths))


@dataclass(slots=True, kw_only=True)
class Entry:
    """One contender in one dtype at one setting, and what was measured of it."""

    job: Job
    role: Role
    timings: Timings
    stands_for: str | None = None  # the dtype that `auto` chose, where that one is not timed on its own
    is_sampled: bool = False  # timed on the workload's sample, not on all of it
    processed_tokens: int | None = None
    min_cosine: float | None = None  # over the texts that were checked; None before the check
    problem: str | None = None

    @property
    def dtype(self) -> str:
        """As asked for."""
        return self.job.dtype

    @property
    def name(self) -> str:
        """Contender and setting, for people and as the key of its figures."""
        if self.job.contender == "setpoint":
            also = f" ({self.stands_for})" if self.stands_for else ""
            return f"setpoint {self.role} {self.dtype}{also}"
        default = " (its default)" if self.role is Role.DEFAULT else ""
        return f"{self.job.contender} {self.dtype}, {describe(self.job.setting)}{default}"

    @property
    def counts(self) -> bool:
        """Whether it is a peer to be compared with: it ran, and int8 is close enough to float32."""
        if self.role not in (Role.PEER, Role.DEFAULT) or self.problem is not None or not self.timings.seconds:
            return False
        return self.dtype != "int8" or (self.min_cosine is not None and self.min_cosine >= GOOD_COSINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """All entries of a workload."""

    workload: Workload
    entries: list[Entry] = field(default_factory=list)

    def find(self, role: Role, dtype: str) -> Entry | None:
        """The entry of a role and dtype that ran; None if there is none."""
        for entry in self.entries:
            is_it = entry.role is role and dtype in (entry.dtype, entry.stands_for)
            if is_it and entry.problem is None and entry.timings.seconds:
                return entry
        return None

    def peers(self, dtype: str) -> list[Entry]:
        """Those that count in a dtype."""
        return [entry for entry in self.entries if entry.dtype == dtype and entry.counts]


def typical_run(lengths: Sequence[int], count: int) -> int:
    """Where the run of `count` neighbours begins whose mean length is closest to the mean of all.

    What is too slow for the whole set is timed on it. Texts come in random order, so a run is a fair sample; this one
    is fair in its mean, too.
    """
    if count >= len(lengths):
        return 0
    values = np.asarray(lengths, dtype=np.float64)
    means = np.convolve(values, np.full(count, 1.0 / count), mode="valid")
    return int(np.abs(means - values.mean()).argmin())


def settings_as_people_use() -> Mapping[Role, Mapping[str, Any]]:
    """The settings that are not tuned."""
    return {
        Role.UNSORTED: {"order": "as given", "batch": 32},
        Role.ONE: {"order": "as given", "batch": 1},
        Role.DEFAULT: {"batch": 32},
    }
