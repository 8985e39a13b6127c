"""What `make` and `pip` are told fits together: targets exist, every dependency is pinned within its range."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.project.docpages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    return [
        Requirement(text) for text in (*PROJECT["dependencies"], *(line for part in extras.values() for line in part))
    ]


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_every_dependency_is_pinned_within_its_range(requirement: Requirement) -> None:
    version = pins().get(canonicalize_name(requirement.name))
    assert version is not None, f"constraints.txt does not pin {requirement.name}"
    assert requirement.specifier.contains(version, prereleases=True)


def test_set_up_installs_every_extra() -> None:
    installed = re.search(r"^EXTRAS := (\S+)$", MAKEFILE, re.MULTILINE)
    assert installed is not None
    assert sorted(installed[1].split(",")) == sorted(PROJECT["optional-dependencies"])


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_help_names_targets_that_are_there() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    targets = re.findall(r"^make (\w+)", shown, re.MULTILINE)
    assert {"demo", "test", "check", "bench", "peers", "docs"} <= set(targets)
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr


def test_ci_runs_what_people_run() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert script.rstrip().endswith("make test")
    subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, timeout=60, check=True)
