"""Find out where we run: processor, memory, accelerators, limits, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from setpoint._version import __version__
from setpoint.domain.environment import UNKNOWN, Accelerator, Cpu, Environment, Limits, Memory
from setpoint.measure.cgroups import read_cgroup_limits

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

# Names of the extensions by the flag that Linux shows in /proc/cpuinfo.
_ISA = {
    "avx2": "AVX2",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512-VNNI",
    "avx512_bf16": "AVX-512-BF16",
    "avx512_fp16": "AVX-512-FP16",
    "amx_int8": "AMX-INT8",
    "amx_bf16": "AMX-BF16",
    "amx_fp16": "AMX-FP16",
    "asimd": "NEON",
    "asimddp": "NEON-DOTPROD",
    "bf16": "ARM-BF16",
    "i8mm": "ARM-I8MM",
    "sve": "SVE",
    "sve2": "SVE2",
    "sme": "SME",
}
# The same by macOS's names (sysctl hw.optional).
_ISA_MACOS = {
    "hw.optional.avx2_0": "AVX2",
    "hw.optional.avx512f": "AVX-512",
    "hw.optional.AdvSIMD": "NEON",
    "hw.optional.arm.FEAT_DotProd": "NEON-DOTPROD",
    "hw.optional.arm.FEAT_BF16": "ARM-BF16",
    "hw.optional.arm.FEAT_I8MM": "ARM-I8MM",
    "hw.optional.arm.FEAT_SME": "SME",
}
_SYSCTL_TIMEOUT_S = 5


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
            affinity_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
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


def read_cpu() -> tuple[str, tuple[str, ...]]:
    """The processor's name and its extensions, on Linux and macOS; elsewhere what Python knows."""
    if platform.system() == "Linux":
        return parse_cpuinfo(Path("/proc/cpuinfo").read_text())
    if platform.system() == "Darwin":
        names = ("machdep.cpu.brand_string", *_ISA_MACOS)
        values = {name: _sysctl(name) for name in names}
        isa = tuple(label for name, label in _ISA_MACOS.items() if values[name] == "1")
        return values["machdep.cpu.brand_string"] or UNKNOWN, isa
    return platform.processor() or UNKNOWN, ()


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and extensions from the text of /proc/cpuinfo.

    arm64 kernels give numbers instead of a name; they are shown as they are.
    """
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    flags = set(f"{fields.get('flags', '')} {fields.get('Features', '')}".split())
    isa = tuple(label for flag, label in _ISA.items() if flag in flags)
    name = fields.get("model name") or fields.get("Hardware")
    if not name and "CPU part" in fields:
        name = f"{UNKNOWN} (implementer {fields.get('CPU implementer', '?')}, part {fields['CPU part']})"
    return name or UNKNOWN, isa


def parse_nvidia_driver(text: str) -> str | None:
    """The driver's version from the text of /proc/driver/nvidia/version."""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else None


def _with_driver(accelerator: Accelerator) -> Accelerator:
    version = Path("/proc/driver/nvidia/version")
    if not accelerator.device.startswith("cuda") or not version.exists():
        return accelerator
    return replace(accelerator, driver=parse_nvidia_driver(version.read_text()))


def _sysctl(name: str) -> str | None:
    done = subprocess.run(
        ["sysctl", "-n", name], capture_output=True, text=True, timeout=_SYSCTL_TIMEOUT_S, check=False
    )
    return done.stdout.strip() or None if done.returncode == 0 else None
