"""Container limits, read from file trees as kernels lay them out."""

from __future__ import annotations

from pathlib import Path

from setpoint.runners.cgroups import CgroupLimits, read_cgroup_limits, read_throttled_s


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_limits_of_the_own_group(tmp_path: Path) -> None:
    root = lay(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job\n",
            "sys/fs/cgroup/user.slice/job/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/user.slice/job/memory.max": "1073741824\n",
        },
    )
    assert read_cgroup_limits(root) == CgroupLimits(quota_cores=1.5, memory_bytes=2**30)


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    root = lay(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container\n",
            "sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/pod/memory.max": "500\n",
            "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/container/memory.max": "900\n",
        },
    )
    assert read_cgroup_limits(root) == CgroupLimits(quota_cores=2.0, memory_bytes=500)


def test_a_path_from_outside_the_container_falls_back_to_the_mount(tmp_path: Path) -> None:
    root = lay(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/0123abcd\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": "max\n",
        },
    )
    assert read_cgroup_limits(root) == CgroupLimits(quota_cores=0.5)


def test_version_1_limits(tmp_path: Path) -> None:
    root = lay(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "300000\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4096\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert read_cgroup_limits(root) == CgroupLimits(quota_cores=3.0, memory_bytes=4096)


def test_no_limit_where_nothing_limits(tmp_path: Path) -> None:
    assert read_cgroup_limits(tmp_path) == CgroupLimits()
    root = lay(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert read_cgroup_limits(root) == CgroupLimits()


def test_throttled_time_in_either_version(tmp_path: Path) -> None:
    second = lay(
        tmp_path / "v2",
        {
            "proc/self/cgroup": "0::/job\n",
            "sys/fs/cgroup/job/cpu.stat": "usage_usec 9000000\nnr_throttled 3\nthrottled_usec 2500000\n",
        },
    )
    first = lay(
        tmp_path / "v1",
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/job\n",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 1500000000\n",
        },
    )
    assert read_throttled_s(second) == 2.5
    assert read_throttled_s(first) == 1.5
    assert read_throttled_s(tmp_path) == 0.0
