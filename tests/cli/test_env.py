"""`setpoint env`, run as a person would."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from setpoint.cli.env import env, render
from setpoint.domain.environment import Accelerator, Cpu, Environment, Limits, Memory

app = typer.Typer()
app.command()(env)


def environment(**changes: object) -> Environment:
    values: dict[str, object] = {
        "cpu": Cpu(model="Example", architecture="arm64", isa=(), num_cores=8, affinity_cores=8),
        "memory": Memory(total_bytes=2**34),
        "accelerators": (),
        "system": "Linux 6",
        "num_threads": 4,
        "versions": {"python": "3.12.1", "openvino": None},
    }
    return Environment(**{**values, **changes})  # type: ignore[arg-type]


def test_json_is_one_document_on_stdout() -> None:
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert document["cpu"]["num_cores"] >= 1
    assert isinstance(document["warnings"], list)
    assert document["limits"] is None


def test_measure_adds_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(device="cpu", gemm_per_s={"float32": 2e11, "int8": None}, bandwidth_bytes_per_s=4e10)
    monkeypatch.setattr("setpoint.measure.environment.measure_limits", lambda: limits)
    result = CliRunner().invoke(app, ["--measure", "--json"])
    assert json.loads(result.stdout)["limits"]["gemm_per_s"] == {"float32": 2e11, "int8": None}


def test_people_see_every_line() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0, result.output
    for label in ("system", "processor", "extensions", "cores", "threads", "memory", "accelerator", "versions"):
        assert any(line.startswith(label) for line in result.stdout.splitlines()), label


def test_unknown_is_said_to_be_unknown() -> None:
    shown = render(environment(accelerators=(Accelerator(device="mps", name="Apple GPU"),)))
    assert "extensions   unknown" in shown
    assert "mps: Apple GPU, unknown, driver unknown" in shown
    assert "openvino not installed" in shown


def test_limits_of_the_container_are_shown_beside_the_machine() -> None:
    cpu = Cpu(model="Example", architecture="x86_64", isa=("AVX2",), num_cores=64, affinity_cores=8, quota_cores=2.5)
    shown = render(environment(cpu=cpu, memory=Memory(total_bytes=2**36, limit_bytes=2**32)))
    assert "64, of which usable: 8 by affinity, 2.5 by the container's quota" in shown
    assert "64 GiB, of which the container may use 4 GiB" in shown


def test_peaks_carry_their_unit() -> None:
    limits = Limits(
        device="cpu", gemm_per_s={"float32": 1.9e11, "float16": None, "int8": 8.3e11}, bandwidth_bytes_per_s=3.9e10
    )
    shown = render(environment(limits=limits))
    assert "190 GFLOP/s" in shown
    assert "830 GOP/s" in shown
    assert "39 GB/s" in shown
    assert "no product on this device" in shown
