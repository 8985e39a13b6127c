"""Importing Setpoint and asking for help stay light: nothing that computes is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "transformers", "openvino", "nncf", "pyarrow", "scipy", "pandas", "datasets", "numpy")
LIMIT_S = 0.3

# What `setpoint ARGUMENTS` does, and then which of the heavy modules it loaded.
SHOW_LOADED = """
import contextlib, io, json, sys
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    {what}
print(json.dumps([name for name in {heavy!r} if name in sys.modules]))
"""
COMMANDS = {
    "import setpoint": "import setpoint",
    "setpoint --help": "sys.argv = ['setpoint', '--help']; from setpoint.cli.main import main; main()",
    "setpoint score --help": "sys.argv = ['setpoint', 'score', '--help']; from setpoint.cli.main import main; main()",
}


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_heavy_is_loaded(command: str) -> None:
    assert json.loads(run(SHOW_LOADED.format(what=COMMANDS[command], heavy=HEAVY))) == []


@pytest.mark.parametrize("command", ["import setpoint", "setpoint --help"])
def test_it_takes_less_than_the_limit(command: str) -> None:
    # The fastest of several, less what Python itself takes: a loaded machine must not fail this, only heavy code.
    what = COMMANDS[command]
    code = f"import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()): {what}"

    def fastest(code: str) -> float:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert fastest(code) - fastest("pass") < LIMIT_S
