"""Curves and operating points come back as they were written; what is wrong with a file is said, with its place."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from setpoint.artifacts.curve_file import curve_to_json, read_curve, write_curve
from setpoint.artifacts.profile_file import read_profile, write_profile
from setpoint.domain.curve import CostEvidence, Curve, Distribution, Estimate, Finding, Point, Verdict, Workload
from setpoint.domain.profile import Alternative, OperatingPoint
from setpoint.domain.slo import Objective, Slo
from setpoint.errors import InputError, OutputError

POINT = Point(
    setting={"batch_size": 8, "dtype": "float32"},
    load_name="batch_size",
    load=8.0,
    series="dtype=float32",
    findings=(Finding(verdict=Verdict.NON_STATIONARY, evidence="it drifted", advice="wait"),),
    throughput={"items_per_s": Estimate(value=10.0, low=9.0, high=None)},
    latency_s={
        "batch": Distribution(
            num_samples=80,
            smallest_s=0.1,
            largest_s=0.3,
            quantiles={0.5: Estimate(value=0.2, low=0.15, high=0.25), 0.99: None},
        )
    },
    num_samples=80,
)
WORKLOAD = Workload(name="t.csv", num_items=3, num_tokens=9, length_quantiles={0.5: 3}, digest="d", seed=0)
COST = CostEvidence(
    a_s=0.001,
    b_s_per_token=1e-5,
    c_s_per_token2=0.0,
    terms=("a", "b"),
    num_samples=80,
    r2=0.9,
    median_error=0.05,
    held_out_error=None,
    error_by_length=((8, 0.1, 3),),
    warnings=("little",),
)
CURVE = Curve(
    subject={"model": "m"},
    options={"dtype": "float32"},
    environment={"system": "x", "limits": None},
    workload=WORKLOAD,
    points=(POINT,),
    anchor={"batch_size": 8},
    default=None,
    seed=1,
    budget_s=90.0,
    spent_s=88.5,
    created="2026-11-30T00:00:00+00:00",
    setpoint_version="0.1.0",
    is_complete=True,
    cost=COST,
)
PROFILE = OperatingPoint(
    point=POINT,
    objective=Objective.THROUGHPUT,
    slos=(Slo(metric="batch", quantile=0.99, limit_s=0.25),),
    reason="because",
    alternatives=(
        Alternative(
            role="batch-1", setting={}, throughput=5.0, latency_s=0.1, throughput_change=-0.5, latency_change=None
        ),
    ),
    cost=COST,
    options={},
    subject={},
    environment={},
    workload=WORKLOAD,
    created="x",
    setpoint_version="0.1.0",
)


def test_a_curve_comes_back_as_it_was(tmp_path):
    write_curve(tmp_path / "c.json", CURVE)
    assert read_curve(tmp_path / "c.json") == CURVE
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_a_reader_without_setpoint_sees_schema_kind_and_verdict():
    document = json.loads(json.dumps(curve_to_json(CURVE)))
    assert (document["schema"], document["kind"]) == (1, "curve")
    assert document["points"][0]["verdict"] == "NON_STATIONARY"
    assert document["points"][0]["latency_s"]["batch"]["quantiles"]["0.99"] is None


def test_a_profile_comes_back_and_replaces_only_a_profile(tmp_path):
    path = tmp_path / "setpoint.json"
    write_profile(path, PROFILE)
    write_profile(path, PROFILE)
    assert read_profile(path) == PROFILE
    path.write_text("{}")
    with pytest.raises(OutputError, match="choose another file"):
        write_profile(path, PROFILE)
    assert path.read_text() == "{}"


def _changed(path: Path, change) -> Path:
    document = curve_to_json(CURVE)
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(schema=2), "schema 2.*install a newer setpoint"),
        (lambda d: d.update(schema=0), "schema 0.*measure again"),
        (lambda d: d.update(kind="operating-point"), "kind 'operating-point', and 'curve' is wanted"),
        (lambda d: d.pop("kind"), "is not a curve"),
        (lambda d: d.update(pointz=[]), "unknown key pointz.*did you mean 'points'"),
        (lambda d: d["points"][0].update(lode=1), r"unknown key points\[0\].lode.*did you mean 'load'"),
        (lambda d: d["points"][0].update(load="x"), r"points\[0\].load: .*not 'x'"),
        (lambda d: d.pop("seed"), "seed: "),
        (lambda d: d.update(spent_s=float("nan")), "spent_s: .*finite"),
        (lambda d: d["environment"].update(limits=[1.0, float("inf")]), r"environment.limits\[1\]: .*finite"),
        (lambda d: d.update(schema="1"), "schema: a whole number is wanted, not '1'"),
        (lambda d: d.update(schema=True), "schema: a whole number is wanted, not True"),
        (lambda d: d["points"][0].update(load="8"), r"points\[0\].load: .*not '8'"),
        (lambda d: d["points"][0].update(num_samples=True), r"points\[0\].num_samples: .*not True"),
        (lambda d: d.update(is_complete="yes"), "is_complete: .*not 'yes'"),
        (lambda d: d["points"][0].update(verdict="VALID"), r"points\[0\].verdict: .*NON_STATIONARY, not 'VALID'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, change, told):
    with pytest.raises(InputError, match=told):
        read_curve(_changed(tmp_path / "c.json", change))


def test_a_file_that_was_cut_off_is_not_there_or_is_not_json_says_so(tmp_path):
    path = tmp_path / "c.json"
    write_curve(path, replace(CURVE, subject={"model": 'a\\b"\x00c', "offset": -1.5e-300}))
    whole = path.read_text().rstrip()
    for end in range(len(whole)):
        path.write_text(whole[:end])
        with pytest.raises(InputError, match="it was cut off"):
            read_curve(path)
    for other in ("model,tokens\n1,2\n", "{'schema': 1}", '{"a": 1 x', '{"a": 1,\n b}', "[" * 100_000 + "1"):
        path.write_text(other)
        with pytest.raises(InputError, match=r"is not JSON|nested too deeply"):
            read_curve(path)
    with pytest.raises(InputError, match="no such file"):
        read_curve(tmp_path / "other.json")


def test_a_folder_that_is_not_there_is_an_error_of_output(tmp_path):
    with pytest.raises(OutputError, match="cannot be written"):
        write_curve(tmp_path / "no" / "c.json", CURVE)


def test_a_number_that_json_has_no_word_for_is_refused_and_the_file_of_before_stays(tmp_path):
    path = tmp_path / "c.json"
    write_curve(path, CURVE)
    before = path.read_bytes()
    for broken in (replace(CURVE, spent_s=math.nan), replace(CURVE, subject={"peak": math.inf})):
        with pytest.raises(OutputError, match=r"(spent_s is nan|subject.peak is inf), which JSON"):
            write_curve(path, broken)
    assert path.read_bytes() == before
