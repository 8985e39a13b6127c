"""Where a figure was measured. What could not be found out is None (or "unknown" for names), never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor, and how much of it this process may use.

    `isa` holds the vector and matrix extensions that decide how fast a model runs (AVX2, AVX-512-BF16, AMX-INT8,
    NEON, SVE, ...), empty where there are none or where the system doesn't tell. `num_cores` counts what the system
    shows; `affinity_cores` those that this process may run on; `quota_cores` what its container may use on average.
    """

    model: str
    architecture: str
    isa: tuple[str, ...]
    num_cores: int
    affinity_cores: int | None = None
    quota_cores: float | None = None

    @property
    def usable_cores(self) -> float:
        """The tightest of the limits, in cores."""
        limits: list[float] = [self.num_cores]
        if self.affinity_cores is not None:
            limits.append(self.affinity_cores)
        if self.quota_cores is not None:
            limits.append(self.quota_cores)
        return min(limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Main memory in bytes: what the machine has, and what this process's container may use (None: no limit)."""

    total_bytes: int
    limit_bytes: int | None = None

    @property
    def usable_bytes(self) -> int:
        """The tighter of the two."""
        return self.total_bytes if self.limit_bytes is None else min(self.total_bytes, self.limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A device besides the CPU that the installed torch can use."""

    device: str  # torch's name for it: cuda:0, mps, xpu:0
    name: str
    memory_bytes: int | None = None
    capability: str | None = None  # CUDA compute capability, such as 9.0
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The machine's measured limits: operations per second of the fastest matrix product by dtype, bytes per second.

    A dtype is None where the device has no product for it.
    """

    device: str
    gemm_per_s: Mapping[str, float | None]
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine, the software on it, and the thread count that torch computes with."""

    cpu: Cpu
    memory: Memory
    accelerators: tuple[Accelerator, ...]
    system: str
    num_threads: int
    versions: Mapping[str, str | None]  # by package; None: not installed
    limits: Limits | None = None  # None until measured

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return asdict(self)
