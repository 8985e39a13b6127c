"""The import contracts hold, and would notice if they did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

VIOLATIONS = [
    ("score/planted.py", "import setpoint.cli", "each room imports only from those below it"),
    ("runners/planted.py", "import setpoint.measure", "each room imports only from those below it"),
    ("domain/planted.py", "import setpoint.batching", "each room imports only from those below it"),
    ("newroom/__init__.py", "", "each room imports only from those below it"),
    ("score/planted.py", "import torch", "only runners (and the generation engine) load model libraries"),
    ("cli/planted.py", "def late():\n    import transformers", "only runners (and the generation engine) load model"),
    ("batching/planted.py", "import time", "policy is pure"),
    ("domain/planted.py", "from pathlib import Path", "policy is pure"),
    ("cost/model.py", "import pyarrow", "policy is pure"),
    ("choose/planted.py", "import pathlib", "policy is pure"),
    ("measure/sweep/plan.py", "import time", "policy is pure"),
    ("measure/planted.py", "import rich.table", "only the command line talks to a terminal"),
]


def lint(folder: Path) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "pyproject.toml", "--no-cache", "--no-logo"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """The project's rooms without their content, under the project's own contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (ROOT / "src").rglob("__init__.py"):
        copy = tmp_path / package.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    for name in ("_version", "errors", "cost/model", "measure/sweep/plan"):
        (tmp_path / "src" / "setpoint" / f"{name}.py").write_text("")
    (tmp_path / "src" / "setpoint" / "__init__.py").write_text("import setpoint.api\n")  # as the public face does
    return tmp_path


def test_the_skeleton_keeps_every_contract(skeleton: Path) -> None:
    code, output = lint(skeleton)
    assert code == 0, output


@pytest.mark.parametrize(("where", "code", "contract"), VIOLATIONS)
def test_a_contract_notices(where: str, code: str, contract: str, skeleton: Path) -> None:
    planted = skeleton / "src" / "setpoint" / where
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(code + "\n")
    status, output = lint(skeleton)
    assert status != 0
    broken = [line for line in output.splitlines() if contract in line]
    assert any("BROKEN" in line for line in broken) or (where.startswith("newroom") and "newroom" in output), output
