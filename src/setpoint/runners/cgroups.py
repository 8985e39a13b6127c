"""What a container or a service manager lets this process use: Linux control groups, versions 1 and 2.

A limit counts wherever it stands between the process's own group and the root, so the tightest of them is taken.
Inside a container the path that the kernel reports may lie outside of what is mounted; the mount's root, which is the
container's own group there, is always looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_V1_UNLIMITED_BYTES = 2**60  # version 1 writes a huge number for "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimits:
    """None: no limit, or no control groups on this system."""

    quota_cores: float | None = None
    memory_bytes: int | None = None


def read_cgroup_limits(root: Path = Path("/")) -> CgroupLimits:
    """Read this process's limits. `root` is the file system's root; tests give another."""
    cores: list[float] = []
    sizes: list[int] = []
    for folder in _folders(root, controller=None):
        quota = _words(folder / "cpu.max")
        if len(quota) == 2 and quota[0] != "max":
            cores.append(int(quota[0]) / int(quota[1]))
        size = _words(folder / "memory.max")
        if size and size[0] != "max":
            sizes.append(int(size[0]))
    for folder in _folders(root, controller="cpu"):
        quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            cores.append(int(quota[0]) / int(period[0]))
    for folder in _folders(root, controller="memory"):
        size = _words(folder / "memory.limit_in_bytes")
        if size and int(size[0]) < _V1_UNLIMITED_BYTES:
            sizes.append(int(size[0]))
    return CgroupLimits(quota_cores=min(cores, default=None), memory_bytes=min(sizes, default=None))


def read_throttled_s(root: Path = Path("/")) -> float:
    """Seconds that this process's group has been held back by its CPU quota, since the group was made."""
    for folder in _folders(root, controller=None):
        times = dict(zip(*[iter(_words(folder / "cpu.stat"))] * 2, strict=False))
        if "throttled_usec" in times:
            return int(times["throttled_usec"]) / 1e6
    for folder in _folders(root, controller="cpu"):
        times = dict(zip(*[iter(_words(folder / "cpu.stat"))] * 2, strict=False))
        if "throttled_time" in times:
            return int(times["throttled_time"]) / 1e9
    return 0.0


def _folders(root: Path, *, controller: str | None) -> Iterator[Path]:
    # From the process's own group up to the mount's root. controller None means version 2's single tree.
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",") if controllers else []
        if controller is None and not names:
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in names:
            mounts = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / str(controller)]
        else:
            continue
        mount = next((candidate for candidate in mounts if candidate.is_dir()), None)
        if mount is None:
            continue
        folder = mount / path.strip("/")
        while folder != mount:
            yield folder
            folder = folder.parent
        yield mount


def _lines(path: Path) -> list[str]:
    # Groups come and go, and what is not ours may not be readable: both mean that there is no limit to be seen.
    try:
        return path.read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]
