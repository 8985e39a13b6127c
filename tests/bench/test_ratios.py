"""Ratios are taken within rounds; the best peer is the one with the best median; targets have ratios."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from harness.ratios import Timings, cosines, fastest, paired_ratio, worst
from harness.report import json_line, table
from harness.work import ModelSize, useful_flops
from scoring.crew import Job
from scoring.entries import GOOD_COSINE, Entry, Race, Role, Workload, typical_run
from scoring.outcome import TARGETS, mfu, ratios_of


def _timings(*seconds: float, texts: int = 100) -> Timings:
    return Timings(num_texts=texts, seconds=dict(enumerate(seconds)))


def test_a_ratio_is_of_the_same_round() -> None:
    ours, theirs = _timings(1.0, 10.0, 1.0), _timings(2.0, 20.0, 2.0)
    found = paired_ratio(ours, theirs)
    assert found is not None
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)  # a slow round slows both


def test_rounds_that_only_one_ran_in_do_not_count() -> None:
    found = paired_ratio(_timings(1.0, 5.0), Timings(num_texts=100, seconds={0: 3.0}))
    assert found is not None
    assert found.median == 3.0
    assert found.num_repeats == 1
    assert paired_ratio(_timings(1.0), Timings(num_texts=100)) is None


def test_the_fastest_has_the_best_median() -> None:
    assert fastest({"a": _timings(1.0, 9.0, 9.0), "b": _timings(2.0, 2.0, 2.0), "c": Timings(num_texts=1)}) == "b"
    assert fastest({}) is None


def test_cosines_are_by_row_and_the_worst_counts() -> None:
    found = cosines(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[2.0, 0.0], [1.0, 0.0]]))
    assert found == pytest.approx([1.0, math.sqrt(0.5)])
    assert worst(found) == pytest.approx(math.sqrt(0.5))
    assert math.isnan(worst([1.0, float("nan")]))


def test_flops_of_a_layer_are_those_counted_by_hand() -> None:
    size = ModelSize(num_layers=1, hidden=2, intermediate=8)
    # weights: 4 x (2 x 2) + 2 x (2 x 8) = 48; two texts of 3 and 1 tokens; QK' and PV: 2 x 2 x L x L x 2
    assert useful_flops(size, [3, 1]) == 2 * 48 * 4 + 8 * (9 + 1)


def _workload(tmp_path: Path) -> Workload:
    return Workload(
        model_name="m",
        model=tmp_path,
        path=tmp_path,
        num_texts=100,
        lengths=[10] * 100,
        flops=1e9,
        sample_path=tmp_path,
        sample_size=100,
        checked=(),
    )


def _entry(
    tmp_path: Path, role: Role, dtype: str, timings: Timings, *, name: str = "setpoint", cosine: float = 1.0
) -> Entry:
    job = Job(contender=name, model=tmp_path, dtype=dtype, setting={"batch": 4, "order": "longest first"})
    return Entry(job=job, role=role, timings=timings, min_cosine=cosine)


def test_an_int8_peer_counts_only_if_close_to_float32(tmp_path: Path) -> None:
    entries = [
        _entry(tmp_path, Role.JOB, "int8", _timings(1.0)),
        _entry(tmp_path, Role.PEER, "int8", _timings(0.5), name="careless", cosine=GOOD_COSINE - 0.01),
        _entry(tmp_path, Role.PEER, "int8", _timings(1.5), name="careful", cosine=GOOD_COSINE),
    ]
    race = Race(workload=_workload(tmp_path), entries=entries)
    ratio = next(ratio for ratio in ratios_of(race, {}) if ratio.key == "int8_vs_best_peer")
    assert ratio.found is not None
    assert ratio.found.median == 1.5
    assert ratio.against.startswith("careful")


def test_what_auto_chose_may_stand_for_its_dtype(tmp_path: Path) -> None:
    ours = _entry(tmp_path, Role.JOB, "auto", _timings(1.0))
    ours.stands_for = "bfloat16"
    race = Race(
        workload=_workload(tmp_path),
        entries=[ours, _entry(tmp_path, Role.PEER, "bfloat16", _timings(1.2), name="peer")],
    )
    ratio = next(ratio for ratio in ratios_of(race, {}) if ratio.key == "bfloat16_vs_best_peer")
    assert ratio.found is not None
    assert ratio.found.median == pytest.approx(1.2)
    share = mfu(race, "bfloat16", {"bfloat16": 2e9})
    assert share is not None
    assert share.median == pytest.approx(0.5)  # 1e9 operations a second of 2e9


def test_every_target_of_a_workload_has_a_ratio_even_where_nothing_ran(tmp_path: Path) -> None:
    found = {ratio.key: ratio.found for ratio in ratios_of(Race(workload=_workload(tmp_path)), {})}
    assert set(found) == set(TARGETS) - {"memory_growth"}
    assert set(found.values()) == {None}


def test_the_overhead_is_told_for_the_dtype_where_it_is_largest(tmp_path: Path) -> None:
    entries = [
        _entry(tmp_path, Role.JOB, "float32", _timings(10.1)),
        _entry(tmp_path, Role.RUNNER, "float32", _timings(10.0)),
        _entry(tmp_path, Role.JOB, "int8", _timings(2.1)),
        _entry(tmp_path, Role.RUNNER, "int8", _timings(2.0)),
    ]
    race = Race(workload=_workload(tmp_path), entries=entries)
    ratio = next(ratio for ratio in ratios_of(race, {}) if ratio.key == "machinery_overhead")
    assert ratio.found is not None
    assert ratio.found.median == pytest.approx(1.0)  # 5% allowed, 5% measured
    assert "int8" in ratio.against


def test_a_typical_run_has_the_mean_of_all() -> None:
    lengths = [100, 1, 1, 1, 40, 20, 100, 9]  # 34 on average
    assert typical_run(lengths, 2) == 4
    assert typical_run(lengths, 20) == 0


def test_the_last_line_is_json_with_a_ratio_for_every_target() -> None:
    line = json_line("score", environment={}, figures={}, ratios={"a": None, "b": 1.23456789}, targets={"a": 1.0})
    told = json.loads(line)
    assert list(told) == ["bench", "environment", "figures", "ratios", "targets"]
    assert told["ratios"] == {"a": None, "b": 1.2346}
    with pytest.raises(ValueError, match="c"):
        json_line("score", environment={}, figures={}, ratios={}, targets={"c": 1.0})


def test_a_table_has_straight_columns() -> None:
    lines = table(("", "n"), [("long name", "1"), ("x", "100")]).splitlines()
    assert lines[2].index("1") == lines[3].rindex("0")
