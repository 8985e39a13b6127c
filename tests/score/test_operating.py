"""A point runs with its own options, where it was chosen for, and says so where it does not fit."""

from dataclasses import replace

import pytest

from setpoint.errors import FingerprintMismatch, UsageError
from setpoint.score.operating import check_holds, length_note, options_at
from tests.artifacts.test_files import PROFILE

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
