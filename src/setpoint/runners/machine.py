"""What tells one machine from another: the processor and its extensions, and the cores that we may use."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from setpoint.domain.environment import UNKNOWN
from setpoint.runners.cgroups import read_cgroup_limits

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


def available_cores() -> int:
    """Whole cores that this process may use: what it may run on, and what its container allows."""
    cores = affinity_cores() or os.cpu_count() or 1
    quota = read_cgroup_limits().quota_cores
    return max(1, cores if quota is None else min(cores, int(quota)))


def affinity_cores() -> int | None:
    """Cores that this process may run on; None where the system doesn't tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def cpu_model() -> str:
    """The processor's name, or `unknown`."""
    return read_cpu()[0]


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


def _sysctl(name: str) -> str | None:
    done = subprocess.run(
        ["sysctl", "-n", name], capture_output=True, text=True, timeout=_SYSCTL_TIMEOUT_S, check=False
    )
    return done.stdout.strip() or None if done.returncode == 0 else None
