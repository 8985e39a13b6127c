"""A whole run against workers of known speed: what is tuned, timed, left out and reported, without any model."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import score
import scoring.rounds
import scoring.run
from contenders.base import read_texts
from harness.worker import WorkerFailed
from scoring.crew import OURS, PIPELINE, SENTENCE, Crew, Job
from scoring.lineup import quick_options
from scoring.outcome import TARGETS
from scoring.run import run

# Texts a second at the best setting, by contender and dtype.
RATES = {
    (OURS, "float32"): 100.0,
    (OURS, "bfloat16"): 220.0,
    (OURS, "int8"): 400.0,
    (OURS, "auto"): 220.0,
    ("openvino", "float32"): 100.0,
    ("openvino", "bfloat16"): 200.0,
    ("openvino", "int8"): 800.0,  # fast and careless: see COSINES
    ("ctranslate2", "float32"): 80.0,
    ("ctranslate2", "int8"): 320.0,
    (PIPELINE, "float32"): 40.0,
    (SENTENCE, "float32"): 60.0,
    (SENTENCE, "bfloat16"): 110.0,
}
COSINES = {("openvino", "int8"): 0.9, ("ctranslate2", "int8"): 0.995}
STREAMS = [{"order": "longest first", "batch": batch, "streams": 2, "threads": 1} for batch in (2, 4, 8)]
SETTINGS = {OURS: [{"what": "job"}, {"what": "runner"}], SENTENCE: [{"batch": 8}, {"batch": 32}]}


@dataclass(slots=True, kw_only=True)
class FakeCrew(Crew):
    """Answers as workers of those speeds would; `fails` names contenders that raise in every pass."""

    jobs: list[Job] = field(default_factory=list)
    fails: tuple[str, ...] = ()

    def start(self, names: Any) -> None:
        for name in names:
            dtypes = [dtype for contender, dtype in RATES if contender == name]
            if not dtypes:
                self.missing[name] = "not installed; `make peers` does"
                continue
            settings = SETTINGS.get(name, STREAMS)
            self.hellos[name] = {"versions": {name: "1.0"}, "settings": dict.fromkeys(dtypes, settings)}

    def call(self, name: str, op: str, *, timeout_s: float = 1.0, **request: Any) -> Any:
        if op == "environment":
            return {"cpu": {"model": "a processor", "isa": ["AVX2"]}}
        if op == "gemm_peak":
            return {"float32": 1e12, "bfloat16": 2e12, "int8": 4e12}[request["dtype"]]
        if op == "lengths":
            return [len(text.split()) + 2 for text in read_texts(request["texts"])]
        if op == "facts":
            return {"notes": [], "facts": {"dtype": "bfloat16", "backend": "openvino", "streams": 2}}
        raise AssertionError(op)

    def prepare(self, job: Job) -> float:
        return 0.0

    def release(self) -> None:
        pass

    def run(self, job: Job, texts: Path, *, num_texts: int, vectors: Path | None = None) -> dict[str, Any]:
        if job.contender in self.fails:
            raise WorkerFailed(f"{job.contender}: no luck")
        self.jobs.append(job)
        assert num_texts == len(read_texts(str(texts)))
        rate = RATES[job.contender, job.dtype] * _share(job.setting)
        if vectors is not None:
            cosine = COSINES.get((job.contender, job.dtype), 1.0)
            np.save(vectors, np.tile([cosine, math.sqrt(1 - cosine**2)], (num_texts, 1)))
        return {"seconds": num_texts / rate, "processed_tokens": None}


def _share(setting: Mapping[str, Any]) -> float:
    if setting.get("what") == "runner":
        return 1.02
    if setting.get("order") == "as given":
        return {32: 0.25, 1: 0.9}[setting["batch"]]
    return 1.0 if setting.get("batch", 4) in (4, 8) else 0.8


@pytest.fixture
def crews(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FakeCrew]:
    made: list[FakeCrew] = []

    class Recorded(FakeCrew):
        def __init__(self, **keywords: Any) -> None:
            super().__init__(**keywords)
            made.append(self)

    def peak(rows: int) -> dict[str, Any]:
        return {"rows": rows, "peak_bytes": 2**20 * (100 if rows < 10**6 else 105), "seconds": 1.0, "rows_per_s": 1.0}

    config = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(scoring.run, "Crew", Recorded)
    monkeypatch.setattr(scoring.run, "measure_peak", peak)
    monkeypatch.setattr(scoring.run, "_model_folder", lambda crew, plan, name: tmp_path)
    monkeypatch.setattr(scoring.rounds, "_PAUSE_S", 0.0)
    return made


def _run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    shown: list[str] = []
    run(score.parse([*arguments, "--cache", str(tmp_path / "cache")]), say=lambda text: None, show=shown.append)
    last = "\n".join(shown).splitlines()[-1]
    return "\n".join(shown), json.loads(last)


def test_a_run_reports_the_speeds_that_the_workers_have(crews: list[FakeCrew], tmp_path: Path) -> None:
    text, told = _run(tmp_path, "--models", "minilm", "--texts", "200")
    ratios = told["ratios"]
    assert set(ratios) == set(told["targets"]) == set(TARGETS)
    assert ratios["float32_vs_best_peer"] == pytest.approx(1.0)
    assert ratios["bfloat16_vs_best_peer"] == pytest.approx(1.1)
    assert ratios["int8_vs_best_peer"] == pytest.approx(1.25)  # the careless one does not count
    assert ratios["float32_vs_sentence_transformers_default"] == pytest.approx(100 / 48, rel=1e-3)
    assert ratios["auto_vs_pipeline_unsorted_32"] == pytest.approx(22.0)
    assert ratios["auto_vs_pipeline_one_at_a_time"] == pytest.approx(220 / 36, rel=1e-3)
    assert ratios["machinery_overhead"] == pytest.approx(1.05 / 1.02, rel=1e-3)
    assert ratios["memory_growth"] == pytest.approx(1.1 / 1.05, rel=1e-3)
    assert told["figures"]["missing"]["onnxruntime"].startswith("not installed")
    assert "missing: onnxruntime" in text
    workload = told["figures"]["workloads"][0]
    flops = workload["gflop"] * 1e9
    assert ratios["mfu_float32"] == pytest.approx(100 * flops / 200 / 1e12, rel=1e-2)


def test_slow_batches_of_two_are_not_taken(crews: list[FakeCrew], tmp_path: Path) -> None:
    _, told = _run(tmp_path, "--models", "minilm", "--texts", "200", "--dtypes", "float32")
    entries = {entry["name"]: entry for entry in told["figures"]["workloads"][0]["entries"]}
    assert "openvino float32, sorted, batches of 4, 2×1 threads" in entries
    assert told["ratios"]["bfloat16_vs_best_peer"] is None


def test_another_workload_has_ratios_of_its_own(crews: list[FakeCrew], tmp_path: Path) -> None:
    _, told = _run(tmp_path, "--models", "bert-base", "--texts", "600", "--rounds", "1")
    assert told["ratios"]["bfloat16_vs_best_peer"] is None
    assert told["ratios"]["bfloat16_vs_best_peer@bert-base/600"] == pytest.approx(1.1)
    assert told["targets"]["bfloat16_vs_best_peer@bert-base/600"] == TARGETS["bfloat16_vs_best_peer"]
    assert told["figures"]["not_timed"]["bert-base/600"] == [
        "ctranslate2 float32",
        "ctranslate2 int8",
        f"{PIPELINE} float32",
        f"{SENTENCE} float32",
        f"{SENTENCE} bfloat16",
    ]


def test_a_peer_that_fails_is_named_and_the_rest_goes_on(
    crews: list[FakeCrew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCrew, "drop", lambda self, name, why: self.missing.update({name: why}))

    def start(self: FakeCrew, names: Any, plain: Any = FakeCrew.start) -> None:
        plain(self, names)
        self.fails = ("ctranslate2",)
        self.workers = {"ctranslate2": type("Dead", (), {"is_alive": False, "stop": lambda self: None})()}

    monkeypatch.setattr(FakeCrew, "start", start)
    _, told = _run(tmp_path, "--models", "minilm", "--texts", "200")
    assert "no luck" in told["figures"]["missing"]["ctranslate2"]
    assert told["ratios"]["int8_vs_best_peer"] is None  # nothing that counts is left
    assert told["ratios"]["float32_vs_best_peer"] == pytest.approx(1.0)


def test_a_quick_run_loads_what_auto_chose_once(crews: list[FakeCrew], tmp_path: Path) -> None:
    text, told = _run(tmp_path, "--quick")
    ours = {(job.dtype, job.setting["what"]) for job in crews[0].jobs if job.contender == OURS}
    assert ours == {("auto", "job"), ("auto", "runner"), ("float32", "job"), ("int8", "job")}
    assert told["ratios"]["bfloat16_vs_best_peer"] == pytest.approx(1.1)
    assert told["ratios"]["mfu_bfloat16"] is not None
    assert told["ratios"]["memory_growth"] is None
    assert "setpoint job auto (bfloat16)" in text


def test_a_quick_run_that_is_out_of_time_still_reports(
    crews: list[FakeCrew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score, "QUICK_S", 0.0)
    text, told = _run(tmp_path, "--quick")
    assert set(told["ratios"]) == set(TARGETS)
    assert told["ratios"]["int8_vs_best_peer"] is None
    assert "no time left" in told["figures"]["missing"]["setpoint int8"]
    assert "missing: openvino bfloat16: no time left" in text


def test_rounds_end_when_the_time_is_up(crews: list[FakeCrew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "QUICK_S", 66.0)  # just above what is kept for the rounds
    begin = time.monotonic()
    _, told = _run(tmp_path, "--quick", "--rounds", "3")
    assert time.monotonic() - begin < 30
    entries = told["figures"]["workloads"][0]["entries"]
    assert all(len(entry["seconds"]) <= 3 for entry in entries)


def test_options_that_auto_has_measured_are_given_on() -> None:
    assert quick_options({"backend": "openvino", "streams": 2}, "int8") == {"backend": "openvino", "streams": 2}
    assert quick_options({"backend": "torch-packed", "streams": 1}, "float32") == {"backend": "torch", "streams": 1}
    assert quick_options({"backend": "torch-packed", "streams": 1}, "int8") == {}
