"""The command line of the benchmark, and its memory part at a small size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import score
from scoring.memory import run, write_rows


def test_a_quick_run_is_one_model_and_200_texts() -> None:
    plan = score.parse(["--quick"])
    assert (plan.models, plan.sizes, plan.is_quick) == (("minilm",), (200,), True)
    assert plan.deadline is not None


def test_the_default_is_everything() -> None:
    plan = score.parse([])
    assert plan.models == ("minilm", "bert-base")
    assert plan.sizes == (200, 5000)
    assert plan.dtypes == ("float32", "bfloat16", "int8", "auto")
    assert "ctranslate2" in plan.peers
    assert plan.deadline is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--models", "gpt"],
        ["--texts", "0"],
        ["--texts", "many"],
        ["--dtypes", ""],
        ["--peers", "vllm"],
        ["--rounds", "0"],
        ["--quick", "--texts", "500"],
    ],
)
def test_wrong_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        score.parse(arguments)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


def test_the_million_rows_are_made_as_they_are_written(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", 50)
    with (tmp_path / "rows.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["id"]) for row in rows] == list(range(50))
    assert all(2 <= len(row["text"].split()) <= 8 for row in rows)


def test_peak_memory_is_measured_on_a_whole_job(tmp_path: Path) -> None:
    found = run(300, tmp_path)
    assert found["rows"] == 300
    assert found["peak_bytes"] > 2**20
    assert (tmp_path / "out.parquet").exists()
