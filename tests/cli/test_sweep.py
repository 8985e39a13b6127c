"""measure, choose, hold: a tiny model through the three commands."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from setpoint.artifacts.curve_file import read_curve
from setpoint.artifacts.profile_file import read_profile
from setpoint.cli.main import main
from tests.runners.encoder.tiny import tiny_model_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    tiny_model_folder(folder, "bert").rename(folder / "model")
    with (folder / "rows.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text"])
        writer.writerows([number, "the cat sat on a mat " * (1 + number % 9)] for number in range(120))
    return folder


def _sweep(folder: Path, name: str, *more: str) -> int:
    return main(
        [
            *("sweep", "--model", str(folder / "model"), "--task", "feature-extraction", "--column", "text"),
            *("--data", str(folder / "rows.csv"), "--dtype", "float32", "--backend", "torch", "--threads", "1"),
            *("--streams", "1", "--output", str(folder / f"{name}.json"), "--profile", str(folder / f"{name}-at.json")),
            *more,
        ]
    )


def test_a_curve_is_measured_a_point_chosen_and_a_job_runs_at_it(folder, capsys):
    # --slo and not the knee, so that a busy machine, whose points may be invalid, changes the exit code only
    code = _sweep(folder, "curve", "--budget", "6s", "--json", "--objective", "latency")
    out, err = capsys.readouterr()
    assert json.loads(out)["kind"] == "curve"
    curve = read_curve(folder / "curve.json")
    assert curve.workload.num_items == 120
    assert curve.cost is not None or not curve.valid_points
    assert {"batch_size=1", "batch_size=32"} <= {point.key for point in curve.points}
    if not curve.valid_points:
        assert code == 1
        pytest.skip(f"the machine was too busy for a valid point: {err}")
    assert code == 0, err
    chosen = read_profile(folder / "curve-at.json")
    assert chosen.point in curve.valid_points

    report = _score(folder, "curve-at.json", "out.parquet")
    assert report.returncode == 0, report.stderr
    choices = json.loads(report.stdout)["choices"]
    assert {name: choices[name] for name in chosen.point.setting} == dict(chosen.point.setting)

    # the same point on another machine
    document = json.loads((folder / "curve-at.json").read_text())
    document["environment"]["cpu"]["model"] = "another"
    (folder / "other.json").write_text(json.dumps(document))
    refused = _score(folder, "other.json", "again.parquet")
    assert refused.returncode == 1
    assert "cpu.model: was 'another'" in refused.stderr
    assert _score(folder, "other.json", "again.parquet", "--recalibrate", "--dtype", "float32").returncode == 0


def _score(folder: Path, profile: str, output: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "setpoint.cli.main", "score", str(folder / "rows.csv"), "--model"),
        *(str(folder / "model"), "--task", "feature-extraction", "--column", "text", "--json"),
        *("-o", str(folder / output), "--profile", str(folder / profile), *more),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--budget", "90"), "unit"),
        (("--slo", "batch p99 < 250"), "250"),
        (("--tune", "batch-sise=1..4"), "did you mean 'batch-size'"),
        (("--tune", "dtype=float99"), "float99"),
        (("--objective", "fast"), "unknown objective"),
        (("--rows", "0"), "--rows must be at least 1"),
    ],
)
def test_wrong_options_are_told_before_a_model_loads(folder, capsys, more, told):
    assert _sweep(folder, "wrong", *more) == 2
    assert told in capsys.readouterr().err
    assert not (folder / "wrong.json").exists()


def test_a_curve_that_exists_is_not_replaced(folder, capsys):
    (folder / "kept.json").write_text("mine")
    assert _sweep(folder, "kept") == 1
    assert "give --overwrite" in capsys.readouterr().err
    assert (folder / "kept.json").read_text() == "mine"
