"""Find out where we run: processor, memory, accelerators, limits, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from setpoint._version import __version__
from setpoint.domain.environment import UNKNOWN, Accelerator, Cpu, Environment, Limits, Memory
from setpoint.runners.cgroups import read_cgroup_limits
from setpoint.runners.machine import affinity_cores, read_cpu

DTYPES = ("float32", "bfloat16", "int8")

# Everything whose version can change a figure or a number.
PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "openvino",
    "nncf",
    "numpy",
    "pyarrow",
    "safetensors",
    "sentence-transformers",
)


def read_environment(*, limits: Limits | None = None) -> Environment:
    """Describe this machine and process. Loads torch, for the accelerators and the thread count."""
    from setpoint.runners import probe

    cgroup = read_cgroup_limits()
    model, isa = read_cpu()
    return Environment(
        cpu=Cpu(
            model=model,
            architecture=platform.machine() or UNKNOWN,
            isa=isa,
            num_cores=os.cpu_count() or 1,
            affinity_cores=affinity_cores(),
            quota_cores=cgroup.quota_cores,
        ),
        memory=Memory(total_bytes=psutil.virtual_memory().total, limit_bytes=cgroup.memory_bytes),
        accelerators=tuple(_with_driver(found) for found in probe.accelerators()),
        system=f"{platform.system()} {platform.release()}".strip() or UNKNOWN,
        num_threads=probe.num_threads(),
        versions=read_versions(),
        limits=limits,
    )


def measure_limits(
    *, dtypes: tuple[str, ...] = DTYPES, seconds: float = 1.0, num_threads: int | None = None, device: str = "cpu"
) -> Limits:
    """Measure the machine's limits, about `seconds` for each dtype and for the bandwidth, set-up not counted."""
    from setpoint.runners import probe

    return Limits(
        device=device,
        gemm_per_s={
            dtype: probe.measure_gemm_peak(dtype, seconds=seconds, num_threads=num_threads, device=device)
            for dtype in dtypes
        },
        bandwidth_bytes_per_s=probe.measure_bandwidth(seconds=seconds, num_threads=num_threads, device=device),
    )


def read_versions() -> Mapping[str, str | None]:
    """Versions of Python, Setpoint and what computes; None for what is not installed. Imports none of them."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "setpoint": __version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def parse_nvidia_driver(text: str) -> str | None:
    """The driver's version from the text of /proc/driver/nvidia/version."""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else None


def _with_driver(accelerator: Accelerator) -> Accelerator:
    version = Path("/proc/driver/nvidia/version")
    if not accelerator.device.startswith("cuda") or not version.exists():
        return accelerator
    return replace(accelerator, driver=parse_nvidia_driver(version.read_text()))
