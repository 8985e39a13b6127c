"""What spoils timings: other work on the machine, stolen and throttled time, more threads than cores.

Read the counters before and after what is timed; the difference tells what happened in between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from setpoint.domain.environment import Environment
from setpoint.domain.units import format_number, format_percent
from setpoint.runners.cgroups import read_throttled_s

_OTHER_SHARE = 0.1  # of the cores that we want
_STOLEN_SHARE = 0.02
_THROTTLED_SHARE = 0.01


class Disturbance(StrEnum):
    """What may have spoilt a timing."""

    OTHER_LOAD = "other_load"
    STOLEN_TIME = "stolen_time"
    THROTTLED = "throttled"
    HOT = "hot"
    TOO_MANY_THREADS = "too_many_threads"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentWarning:
    """Something that makes timings less trustworthy, with what can be done about it."""

    code: Disturbance
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The machine's counters at one moment. Only differences mean something; times in seconds of one core."""

    wall_s: float
    busy_s: float  # all processes
    own_s: float  # this process and its children
    stolen_s: float  # taken by the host of a virtual machine
    throttled_s: float  # held back by a container's CPU quota
    num_thermal_events: int


def read_counters() -> Counters:
    """Read the counters now."""
    cpu = psutil.cpu_times()
    stolen = getattr(cpu, "steal", 0.0)
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    # guest times are counted in user and nice already
    total = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
    return Counters(
        wall_s=time.perf_counter(),
        busy_s=total - idle - stolen,
        own_s=_own_cpu_s(),
        stolen_s=stolen,
        throttled_s=read_throttled_s(),
        num_thermal_events=_thermal_events(),
    )


def warnings_between(
    environment: Environment, before: Counters, after: Counters, *, num_threads: int | None = None
) -> tuple[EnvironmentWarning, ...]:
    """What disturbed the time between two readings. `num_threads` are those that were computing (default: torch's)."""
    threads = environment.num_threads if num_threads is None else num_threads
    usable = environment.cpu.usable_cores
    wall_s = after.wall_s - before.wall_s
    found = []
    if threads > usable:
        found.append(
            EnvironmentWarning(
                code=Disturbance.TOO_MANY_THREADS,
                message=f"{threads} threads share {format_number(usable)} cores",
                advice="use no more threads than cores",
            )
        )
    if wall_s <= 0:
        return tuple(found)
    other = max(0.0, (after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / wall_s
    wanted = min(threads, usable)
    if environment.cpu.num_cores - other < (1 - _OTHER_SHARE) * wanted:
        found.append(
            EnvironmentWarning(
                code=Disturbance.OTHER_LOAD,
                message=f"other processes kept {format_number(other)} of {environment.cpu.num_cores} cores busy",
                advice="stop them, or read the figures as a lower bound",
            )
        )
    stolen = (after.stolen_s - before.stolen_s) / (wall_s * environment.cpu.num_cores)
    if stolen > _STOLEN_SHARE:
        found.append(
            EnvironmentWarning(
                code=Disturbance.STOLEN_TIME,
                message=f"the host of this virtual machine took {format_percent(stolen)} of its time",
                advice="repeat the measurement, and compare only what ran side by side",
            )
        )
    throttled = (after.throttled_s - before.throttled_s) / wall_s
    if throttled > _THROTTLED_SHARE:
        found.append(
            EnvironmentWarning(
                code=Disturbance.THROTTLED,
                message=f"the container's CPU quota held this process back {format_percent(throttled)} of the time",
                advice="raise the quota, or use fewer threads than it allows",
            )
        )
    if after.num_thermal_events > before.num_thermal_events:
        found.append(
            EnvironmentWarning(
                code=Disturbance.HOT,
                message="the processor slowed itself down because it was hot",
                advice="let it cool, and measure in shorter runs",
            )
        )
    return tuple(found)


def _own_cpu_s() -> float:
    own = psutil.Process()
    times = own.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in own.children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it ended meanwhile: its time is in children_user by now, or is lost to us
        total += spent.user + spent.system
    return float(total)


def _thermal_events() -> int:
    counts = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    return sum(int(path.read_text()) for path in counts)
