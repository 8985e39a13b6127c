"""Names and extensions of processors from what their kernels write, and how many cores there are for us."""

from __future__ import annotations

import os

import pytest

from setpoint.domain.environment import UNKNOWN
from setpoint.runners import machine
from setpoint.runners.cgroups import CgroupLimits
from setpoint.runners.machine import available_cores, parse_cpuinfo

X86 = """\
processor\t: 0
model name\t: Example Xeon 9000 @ 3.00GHz
flags\t\t: fpu avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8

processor\t: 1
model name\t: Example Xeon 9000 @ 3.00GHz
flags\t\t: fpu
"""
ARM = """\
processor\t: 0
Features\t: fp asimd asimddp sve bf16 i8mm
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_cpuinfo_of_x86() -> None:
    name, isa = parse_cpuinfo(X86)
    assert name == "Example Xeon 9000 @ 3.00GHz"
    assert isa == ("AVX2", "AVX-512", "AVX-512-VNNI", "AVX-512-BF16", "AMX-INT8", "AMX-BF16")


def test_cpuinfo_of_arm_shows_numbers_and_guesses_no_name() -> None:
    name, isa = parse_cpuinfo(ARM)
    assert name == "unknown (implementer 0x41, part 0xd40)"
    assert isa == ("NEON", "NEON-DOTPROD", "ARM-BF16", "ARM-I8MM", "SVE")


@pytest.mark.parametrize("text", ["", "nothing here", "processor\t: 0\n"])
def test_cpuinfo_without_a_name_is_unknown(text: str) -> None:
    assert parse_cpuinfo(text) == (UNKNOWN, ())


@pytest.mark.parametrize(
    ("affinity", "quota", "cores"), [(8, None, 8), (8, 2.5, 2), (2, 6.0, 2), (4, 0.5, 1), (None, None, os.cpu_count())]
)
def test_available_cores_are_the_tightest_limit(
    affinity: int | None, quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "affinity_cores", lambda: affinity)
    monkeypatch.setattr(machine, "read_cgroup_limits", lambda: CgroupLimits(quota_cores=quota))
    assert available_cores() == cores
