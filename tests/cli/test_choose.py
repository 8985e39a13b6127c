from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from setpoint.artifacts.curve_file import write_curve
from setpoint.artifacts.profile_file import read_profile
from setpoint.cli.choose import choose
from setpoint.errors import OutputError, SetpointError, UsageError
from tests.choose.curves import linear

app = typer.Typer()
app.command()(choose)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_curve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    write_curve(Path("curve.json"), linear())


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["curve.json", *words])


def test_a_point_is_chosen_explained_and_saved() -> None:
    result = run("--slo", "batch p99 < 250ms", "-o", "p.json")
    assert result.exit_code == 0, result.output
    assert "chosen: batch_size=8 dtype=float32" in result.output
    assert "written: p.json" in result.output
    saved = read_profile(Path("p.json"))
    assert (saved.point.load, saved.reason.split(" binds")[0]) == (8, "batch p99 < 250 ms")
    assert [a.role for a in saved.alternatives][:2] == ["batch-1", "default"]


def test_json_is_one_document() -> None:
    result = run("--json", "-o", "-")
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert document["point"]["setting"]["batch_size"] == 8
    assert [knee["method"] for knee in document["knees"]] == ["marginal-gain", "kneedle"]
    assert os.listdir() == ["curve.json"]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_infeasible_limit_writes_nothing(words: list[str]) -> None:
    result = run("--slo", "batch p99 < 1ms", *words)
    assert isinstance(result.exception, SetpointError)
    assert result.exception.exit_code == 1
    assert os.listdir() == ["curve.json"]
    if words:
        assert json.loads(result.stdout)["infeasible"]["floors"][0]["setting"]["batch_size"] == 1
    else:
        assert "the floor of batch p99 is 90 ms" in str(result.exception)


def test_only_a_profile_is_replaced() -> None:
    assert run().exit_code == 0
    assert run("--objective", "latency").exit_code == 0
    assert read_profile(Path("setpoint.json")).point.load == 1
    Path("precious.json").write_text("precious")
    assert isinstance(run("-o", "precious.json").exception, OutputError)
    assert Path("precious.json").read_text() == "precious"


def test_wrong_words_are_named() -> None:
    wrong = run("--objective", "latancy").exception
    assert isinstance(wrong, UsageError)
    assert "did you mean 'latency'?" in str(wrong)
    wrong = run("--slo", "batch p99 < 250").exception
    assert isinstance(wrong, UsageError)
    assert "no unit" in str(wrong)
