"""What is said about a machine: known things named, unknown things said to be unknown."""

from __future__ import annotations

import json
import os

import psutil
import pytest
import torch

from setpoint.domain.environment import Cpu, Memory
from setpoint.measure.environment import (
    measure_limits,
    parse_nvidia_driver,
    read_environment,
    read_versions,
)
from setpoint.runners import probe


def test_nvidia_driver_version() -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12.2"
    assert parse_nvidia_driver(text) == "550.54.15"
    assert parse_nvidia_driver("garbled") is None


def test_usable_is_the_tightest_limit() -> None:
    cpu = Cpu(model="x", architecture="y", isa=(), num_cores=64, affinity_cores=8, quota_cores=3.5)
    assert cpu.usable_cores == 3.5
    assert Cpu(model="x", architecture="y", isa=(), num_cores=64).usable_cores == 64
    assert Memory(total_bytes=100, limit_bytes=40).usable_bytes == 40
    assert Memory(total_bytes=100, limit_bytes=400).usable_bytes == 100


def test_this_machine_agrees_with_other_tools() -> None:
    environment = read_environment()
    assert environment.cpu.num_cores == os.cpu_count()
    assert environment.memory.total_bytes == psutil.virtual_memory().total
    assert environment.num_threads == torch.get_num_threads()
    assert environment.versions["torch"] == torch.__version__
    assert environment.limits is None
    # torch's own reading of the processor is the oracle for the extensions
    best = torch.backends.cpu.get_cpu_capability()
    if best.startswith("AVX512"):
        assert "AVX-512" in environment.cpu.isa
    elif best == "AVX2":
        assert "AVX2" in environment.cpu.isa


def test_the_environment_is_plain_json() -> None:
    environment = read_environment()
    assert json.loads(json.dumps(environment.as_dict()))["cpu"]["num_cores"] == os.cpu_count()


def test_what_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.measure.environment.PACKAGES", ("no-such-package-here", "numpy"))
    versions = read_versions()
    assert versions["no-such-package-here"] is None
    assert versions["numpy"] is not None


def test_limits_are_measured_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def peak(dtype: str, **options: object) -> float | None:
        asked.append((dtype, options["num_threads"]))
        return None if dtype == "int8" else 5e9

    monkeypatch.setattr(probe, "measure_gemm_peak", peak)
    monkeypatch.setattr(probe, "measure_bandwidth", lambda **options: 7e9)
    limits = measure_limits(num_threads=1)
    assert limits.gemm_per_s == {"float32": 5e9, "bfloat16": 5e9, "int8": None}
    assert limits.bandwidth_bytes_per_s == 7e9
    assert asked == [("float32", 1), ("bfloat16", 1), ("int8", 1)]
