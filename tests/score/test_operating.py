"""A point runs with its own options, where it was chosen for, and says so where it does not fit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.domain.batch import BatchShape
from setpoint.errors import FingerprintMismatch, UsageError
from setpoint.measure.clock import FakeClock
from setpoint.runners.fake import FakeCost, FakeRunner
from setpoint.score.job import run_job
from setpoint.score.meter import BatchSample, Work
from setpoint.score.operating import Cause, RateBand, check_holds, length_note, options_at, typical_length
from setpoint.score.sources import from_iterable
from setpoint.score.window import WindowLimits
from tests.artifacts.test_files import COST, PROFILE
from tests.score.test_job import Recorder, plan_for

AT = replace(
    PROFILE,
    point=replace(PROFILE.point, setting={"max_batch_tokens": 512}),
    options={"dtype": "bfloat16", "backend": "openvino", "streams": 2, "max_length": 256},
    subject={"model": "m1", "dtype": "bfloat16"},
    environment={"cpu": {"model": "A", "num_cores": 2}, "accelerators": []},
)
HERE = {"model": "A", "num_cores": 2}


def test_what_was_auto_or_not_given_is_the_points():
    found = options_at(AT, {"model": "m", "dtype": "auto"})
    assert found == {
        "model": "m",
        "dtype": "bfloat16",
        "backend": "openvino",
        "streams": 2,
        "max_batch_tokens": 512,
        "max_length": 256,
    }


def test_an_option_that_says_something_else_is_refused_by_name():
    with pytest.raises(UsageError, match=r"--max-batch-tokens 64 contradicts the profile.*512"):
        options_at(AT, {"max_batch_tokens": 64})
    assert options_at(AT, {"max_batch_tokens": 512})["max_batch_tokens"] == 512


def test_the_same_model_and_machine_hold():
    check_holds(AT, {"model": "m1", "dtype": "bfloat16", "versions": {}}, HERE, [])


@pytest.mark.parametrize(
    ("fingerprint", "cpu", "accelerators", "told"),
    [
        ({"model": "m2"}, HERE, [], "model: was 'm1', now 'm2'"),
        ({"dtype": "float32"}, HERE, [], "dtype: was 'bfloat16', now 'float32'"),
        ({}, {"model": "B", "num_cores": 2}, [], "cpu.model: was 'A', now 'B'"),
        ({}, {"model": "A", "num_cores": 4}, [], "cpu.num_cores: was 2, now 4"),
        ({}, HERE, ["H200"], r"accelerators: was \[\], now \['H200'\]"),
    ],
)
def test_another_model_or_machine_is_refused_with_the_difference(fingerprint, cpu, accelerators, told):
    with pytest.raises(FingerprintMismatch, match=told) as raised:
        check_holds(AT, fingerprint, cpu, accelerators)
    assert "--recalibrate" in str(raised.value)


def test_another_mix_of_lengths_is_told():
    assert length_note(AT, [3, 4, 5]) is None
    assert length_note(AT, []) is None
    assert "up to 9 tokens" in length_note(AT, [9, 9, 9])


def test_other_spellings_are_the_same_choice():
    assert options_at(AT, {"dtype": "bf16", "backend": "OpenVINO"})["dtype"] == "bfloat16"


def test_a_limit_that_the_point_was_chosen_without_is_refused():
    with pytest.raises(UsageError, match=r"--batch-size 8 contradicts the profile.*without --batch-size"):
        options_at(AT, {"batch_size": 8})
    by_count = replace(AT, point=replace(AT.point, setting={"batch_size": 8}, load_name="batch_size"))
    assert "max_batch_tokens" not in options_at(by_count, {})


def test_what_the_profile_does_not_know_is_not_compared():
    check_holds(replace(AT, environment={}), {"model": "m1"}, HERE, ["H200"])


def test_batches_that_no_longer_share_are_another_subject():
    at = replace(AT, subject={"batch_invariant": False})
    with pytest.raises(FingerprintMismatch, match="batch_invariant: was False, now True"):
        check_holds(at, {"batch_invariant": True}, HERE, [])


def test_a_longer_tail_is_told_too():
    at = replace(AT, workload=replace(AT.workload, length_quantiles={0.5: 10, 0.9: 20}))
    assert length_note(at, [10] * 90 + [20] * 10) is None
    note = length_note(at, [10] * 80 + [90] * 20)
    assert note is not None
    assert note.startswith("nine in ten of these rows have up to 90 tokens")


A_S, B_S, C_S = 0.01, 1e-4, 1e-7
LENGTHS = {0.0: 10, 0.5: 100, 1.0: 190}
RATED = replace(
    AT,
    point=replace(AT.point, setting={"max_batch_tokens": 512}, load_name="max_batch_tokens"),
    cost=replace(COST, a_s=A_S, b_s_per_token=B_S, c_s_per_token2=C_S, held_out_error=0.02),
    subject={"versions": {"torch": "2.9", "openvino": None}},
    workload=replace(AT.workload, length_quantiles=LENGTHS),
)
SAME = {"versions": {"torch": "2.9", "openvino": None}}


def _batches(count, *, slower=1.0, length=128):
    """`count` batches of rows of one length, each so many times slower than the model of RATED says."""
    found = []
    for number in range(count):
        rows = 4 + number % 60
        work = Work(batches=1, tokens=rows * length, squares=rows * length * length)
        seconds = A_S + B_S * work.tokens + C_S * work.squares
        found.append(BatchSample(work=work, duration_s=seconds * slower))
    return found


def _band(profile=RATED, fingerprint=SAME):
    band = RateBand.of(profile, fingerprint)
    assert band is not None
    return band


def test_the_length_that_a_token_is_in_comes_from_the_quantiles():
    # spread evenly over 10..190: the mean of len^2 by the mean of len
    lengths = np.linspace(10, 190, 100_001)
    assert typical_length(RATED.workload) == pytest.approx((lengths**2).mean() / lengths.mean(), rel=1e-4)
    assert typical_length(replace(RATED.workload, length_quantiles={0.5: 3})) is None
    assert typical_length(replace(RATED.workload, length_quantiles={0.0: 0, 0.5: 0, 1.0: 0})) is None


@given(st.floats(min_value=0.81, max_value=1.24), st.integers(0, 400), st.sampled_from([70, 128, 240]))
@settings(deadline=None)
def test_a_rate_inside_the_band_is_never_told(slower, count, length):
    assert _band().check(_batches(count, slower=slower, length=length), count) is None


@given(st.one_of(st.floats(0.05, 0.75), st.floats(1.3, 20.0)), st.integers(100, 400))
@settings(deadline=None)
def test_a_rate_outside_is_told_once_with_its_ratio(slower, count):
    band, batches = _band(), _batches(count, slower=slower, length=128)
    if sum(batch.duration_s for batch in batches) < 3:
        assert band.check(batches, count) is None
        return
    drift = band.check(batches, count)
    assert drift is not None
    assert drift.ratio == pytest.approx(slower)
    assert band.check(batches * 2, count * 2) is None


def test_too_few_batches_and_a_few_stalls_are_no_drift():
    assert _band().check(_batches(23, slower=3.0), 23) is None
    stalled = [
        replace(sample, duration_s=sample.duration_s * 50) if number % 5 == 0 else sample
        for number, sample in enumerate(_batches(100))
    ]
    assert _band().check(stalled, 100) is None


def _drift(batches, *, band=None):
    found = (band or _band()).check(batches, len(batches))
    assert found is not None
    return found


def test_the_likely_cause_is_what_is_known_to_differ():
    assert _drift(_batches(100, slower=2.0, length=500)).cause is Cause.LENGTHS
    other = _band(fingerprint={"versions": {"torch": "3.0", "openvino": None}})
    drift = _drift(_batches(100, slower=2.0), band=other)
    assert drift.cause is Cause.SOFTWARE
    assert "torch was 2.9, now 3.0" in str(drift)
    slow = _drift(_batches(100, slower=2.0))
    assert (slow.cause, "from the start" in slow.evidence) == (Cause.MACHINE, True)
    changed = _drift([*_batches(200), *_batches(100, slower=2.0)])
    assert (changed.cause, "meanwhile" in changed.evidence) == (Cause.MACHINE, True)
    assert _drift(_batches(300, slower=0.5)).cause is Cause.PROFILE
    assert str(slow).startswith("batches take 100% longer than the profile says (expected within 25%); likely cause:")


def test_a_profile_that_cannot_tell_has_no_band():
    assert RateBand.of(replace(RATED, cost=None), SAME) is None
    assert RateBand.of(replace(RATED, cost=replace(RATED.cost, held_out_error=0.4)), SAME) is None
    blended = replace(RATED.point, setting={"max_batch_tokens": 512, "dtype": "float32"})
    assert RateBand.of(replace(RATED, point=blended), SAME) is None


@pytest.mark.parametrize(("slower", "num_told"), [(1.0, 0), (2.0, 1)])
def test_a_job_tells_of_drift_once(tmp_path, slower, num_told):
    clock, reporter = FakeClock(), Recorder()
    runner = FakeRunner(
        shape=BatchShape(max_batch_tokens=512),
        cost=FakeCost(a_s=A_S * slower, b_s_per_token=B_S * slower, c_s_per_token2=C_S * slower),
        spend=clock.advance,
    )
    rows = [{"text": "word " * (90 + number % 60)} for number in range(400)]
    report = run_job(
        from_iterable(rows),
        runner,
        plan_for(tmp_path / "out.parquet", window=WindowLimits(max_rows=50, max_tokens=100_000, max_bytes=10**7)),
        reporter=reporter,
        clock=clock,
        rate=_band(),
    )
    assert report.ledger.num_rows == 400
    assert sum("than the profile says" in note for note in reporter.notes) == num_told
