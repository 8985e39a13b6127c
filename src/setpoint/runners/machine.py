"""What tells one machine's measurements from another's."""

from __future__ import annotations

import os
import platform


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's name, or `unknown`."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            return next((line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")), "unknown")
    except OSError:
        return platform.processor() or "unknown"
