"""Warnings about timings, from counters whose story is known, and from this machine under a real load."""

from __future__ import annotations

import multiprocessing
import time

from setpoint.domain.environment import Cpu, Environment, Memory
from setpoint.measure.disturbance import Counters, Disturbance, read_counters, warnings_between

START = Counters(wall_s=100.0, busy_s=500.0, own_s=10.0, stolen_s=1.0, throttled_s=2.0, num_thermal_events=4)


def machine(*, num_cores: int = 4, num_threads: int = 4, quota_cores: float | None = None) -> Environment:
    return Environment(
        cpu=Cpu(model="x", architecture="y", isa=(), num_cores=num_cores, quota_cores=quota_cores),
        memory=Memory(total_bytes=2**30),
        accelerators=(),
        system="test",
        num_threads=num_threads,
        versions={},
    )


def after(**changes: float) -> Counters:
    # Ten seconds in which this process alone kept four cores busy, and what `changes` adds to that.
    changed = {"busy_s": 40.0, "own_s": 40.0, "stolen_s": 0.0, "throttled_s": 0.0, "num_thermal_events": 0} | changes
    return Counters(
        wall_s=110.0,
        busy_s=START.busy_s + changed["busy_s"],
        own_s=START.own_s + changed["own_s"],
        stolen_s=START.stolen_s + changed["stolen_s"],
        throttled_s=START.throttled_s + changed["throttled_s"],
        num_thermal_events=START.num_thermal_events + int(changed["num_thermal_events"]),
    )


def codes(environment: Environment, end: Counters, **options: int) -> list[Disturbance]:
    return [warning.code for warning in warnings_between(environment, START, end, **options)]


def test_a_quiet_run_has_no_warnings() -> None:
    assert codes(machine(), after()) == []


def test_other_work_is_noticed_only_when_it_takes_cores_we_want() -> None:
    assert codes(machine(), after(busy_s=46.0)) == [Disturbance.OTHER_LOAD]
    assert codes(machine(), after(busy_s=42.0)) == []
    assert codes(machine(num_cores=64), after(busy_s=400.0)) == []
    assert codes(machine(num_threads=1), after(busy_s=30.0, own_s=10.0)) == []


def test_stolen_time() -> None:
    assert codes(machine(), after(stolen_s=2.0)) == [Disturbance.STOLEN_TIME]
    assert codes(machine(), after(stolen_s=0.1)) == []


def test_throttled_by_the_container_or_by_heat() -> None:
    assert codes(machine(), after(throttled_s=0.5)) == [Disturbance.THROTTLED]
    assert codes(machine(), after(num_thermal_events=1)) == [Disturbance.HOT]


def test_more_threads_than_usable_cores() -> None:
    assert codes(machine(quota_cores=1.5), after(), num_threads=2) == [Disturbance.TOO_MANY_THREADS]
    assert codes(machine(), after(), num_threads=5) == [Disturbance.TOO_MANY_THREADS]


def test_two_readings_of_the_same_moment_say_nothing_about_load() -> None:
    assert codes(machine(), START) == []


def test_every_warning_carries_advice() -> None:
    end = after(busy_s=70.0, stolen_s=9.0, throttled_s=9.0, num_thermal_events=2)
    warnings = warnings_between(machine(), START, end, num_threads=9)
    assert {warning.code for warning in warnings} == set(Disturbance)
    assert all(warning.advice in str(warning) and warning.message in str(warning) for warning in warnings)


def spin(until: float) -> None:
    while time.perf_counter() < until:
        pass


def test_own_work_is_counted_as_own_with_children() -> None:
    before = read_counters()
    child = multiprocessing.get_context("spawn").Process(target=spin, args=(time.perf_counter() + 2.0,))
    child.start()
    spin(time.perf_counter() + 0.5)
    child.join(timeout=30)
    end = read_counters()
    assert child.exitcode == 0
    # our half second on a core, and what the child had left of its two after starting
    assert end.own_s - before.own_s > 0.4
    assert end.busy_s - before.busy_s >= end.own_s - before.own_s - 0.2


def test_counters_only_grow() -> None:
    before, end = read_counters(), read_counters()
    assert end.wall_s > before.wall_s
    assert end.own_s >= before.own_s
    assert end.stolen_s >= before.stolen_s


def test_idle_time_is_not_busy() -> None:
    before = read_counters()
    time.sleep(0.3)
    end = read_counters()
    assert end.own_s - before.own_s < 0.2
