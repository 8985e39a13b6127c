"""What a run was asked for, and what it gathers on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scoring.entries import Race
from scoring.outcome import Ratio

MAX_LENGTH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command line asked for. `deadline` is of time.monotonic()."""

    models: Sequence[str]
    sizes: Sequence[int]
    dtypes: Sequence[str]
    peers: Sequence[str]
    rounds: int | None
    seed: int
    cores: int
    cache: Path
    is_quick: bool
    with_memory: bool
    deadline: float | None = None


@dataclass(slots=True, kw_only=True)
class Findings:
    """What is gathered on the way."""

    peaks: dict[str, float | None] = field(default_factory=dict)
    races: list[Race] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    tuning: dict[str, Any] = field(default_factory=dict)
    behind: dict[str, list[str]] = field(default_factory=dict)  # by workload: peers that were tuned, but not timed
    chosen: dict[str, Any] = field(default_factory=dict)
    memory: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
