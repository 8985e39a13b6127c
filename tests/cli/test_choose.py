from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from setpoint.cli.choose import choose
from setpoint.domain.profile import OperatingPoint
from setpoint.errors import InputError, OutputError, SetpointError, UsageError
from tests.choose.curves import linear

app = typer.Typer()
app.command()(choose)


@pytest.fixture(autouse=True)
def written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Path, OperatingPoint]]:
    """Files in memory: what is read is the linear curve, and what is written is kept here."""
    found: list[tuple[Path, OperatingPoint]] = []

    def read_profile(path: Path) -> None:
        if "profile" not in path.read_text():
            raise InputError("not a profile")

    curve_file, profile_file = ModuleType("curve_file"), ModuleType("profile_file")
    vars(curve_file)["read_curve"] = lambda path: linear()
    vars(profile_file).update(write_profile=lambda path, saved: found.append((path, saved)), read_profile=read_profile)
    monkeypatch.setitem(sys.modules, "setpoint.artifacts", ModuleType("setpoint.artifacts"))
    monkeypatch.setitem(sys.modules, "setpoint.artifacts.curve_file", curve_file)
    monkeypatch.setitem(sys.modules, "setpoint.artifacts.profile_file", profile_file)
    monkeypatch.chdir(tmp_path)
    return found


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["curve.json", *words])


def test_a_point_is_chosen_explained_and_saved(written: list[tuple[Path, OperatingPoint]]) -> None:
    result = run("--slo", "batch p99 < 250ms", "-o", "p.json")
    assert result.exit_code == 0, result.output
    assert "chosen: batch_size=8 dtype=float32" in result.output
    assert "written: p.json" in result.output
    [(path, saved)] = written
    assert (str(path), saved.point.load, saved.reason.split(" binds")[0]) == ("p.json", 8, "batch p99 < 250 ms")


def test_json_is_one_document(written: list[tuple[Path, OperatingPoint]]) -> None:
    result = run("--json", "-o", "-")
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert document["point"]["setting"]["batch_size"] == 8
    assert [knee["method"] for knee in document["knees"]] == ["marginal-gain", "kneedle"]
    assert written == []


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_infeasible_limit_writes_nothing(words: list[str], written: list[tuple[Path, OperatingPoint]]) -> None:
    result = run("--slo", "batch p99 < 1ms", *words)
    assert isinstance(result.exception, SetpointError)
    assert result.exception.exit_code == 1
    assert written == []
    if words:
        assert json.loads(result.stdout)["infeasible"]["floors"][0]["setting"]["batch_size"] == 1
    else:
        assert "the floor of batch p99 is 90 ms" in str(result.exception)


def test_only_a_profile_is_replaced(written: list[tuple[Path, OperatingPoint]]) -> None:
    Path("setpoint.json").write_text("precious")
    result = run()
    assert isinstance(result.exception, OutputError)
    assert "pass --overwrite" in str(result.exception)
    assert written == []
    assert run("--overwrite").exit_code == 0
    Path("setpoint.json").write_text("profile")
    assert run().exit_code == 0
    assert len(written) == 2


def test_wrong_words_are_named() -> None:
    wrong = run("--objective", "latancy").exception
    assert isinstance(wrong, UsageError)
    assert "did you mean 'latency'?" in str(wrong)
    wrong = run("--slo", "batch p99 < 250").exception
    assert isinstance(wrong, UsageError)
    assert "no unit" in str(wrong)
