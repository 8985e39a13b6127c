"""Each verdict has its evidence, and a quiet measurement has none."""

from dataclasses import replace

import numpy as np
import pytest

from setpoint.domain.curve import Verdict
from setpoint.measure.verdict import PointEvidence, judge

QUIET = PointEvidence(
    amounts=(100.0, 101.0, 99.0),
    durations_s=(1.0, 1.0, 1.0),
    relative=tuple(np.random.default_rng(0).normal(1, 0.02, 60)),
    num_samples=60,
    anchor_rates=(100.0, 101.0, 99.0, 100.0),
)


def test_a_quiet_measurement_is_valid():
    assert judge(QUIET) == ()


def test_noise_is_rarely_called_non_stationary():
    rng = np.random.default_rng(1)
    false_alarms = 0
    for _ in range(200):
        rates = tuple(rng.normal(100, 2, 5))
        noise = tuple(rng.normal(1, 0.05, 100))
        evidence = replace(QUIET, amounts=rates, durations_s=(1.0,) * 5, relative=noise, anchor_rates=rates)
        false_alarms += bool(judge(evidence))
    assert false_alarms <= 4


@pytest.mark.parametrize(
    ("changes", "verdict", "told"),
    [
        ({"num_failed": 2, "first_error": "out of memory"}, Verdict.FAILED, "2 of 62 failed.*out of memory"),
        ({"num_samples": 5}, Verdict.TOO_FEW_SAMPLES, "5 samples in 3 visits"),
        ({"amounts": (1.0, 1.0), "durations_s": (1.0, 1.0)}, Verdict.TOO_FEW_SAMPLES, "in 2 visits"),
        ({"is_settled": False}, Verdict.NON_STATIONARY, "does not end"),
        ({"anchor_rates": (100.0, 99.0, 80.0, 79.0)}, Verdict.NON_STATIONARY, "from 100 to 79"),
        ({"relative": tuple(np.linspace(1, 1.2, 100))}, Verdict.NON_STATIONARY, "slower meanwhile"),
        ({"amounts": (100.0, 40.0, 100.0)}, Verdict.NON_STATIONARY, "from 40 to 100"),
        ({"client_share": 0.2}, Verdict.CLIENT_LIMITED, "20"),
        ({"offered_rate": 10.0, "achieved_rate": 7.0}, Verdict.OVERSATURATED, "10 requests a second"),
        ({"cache_hit_share": 0.5}, Verdict.CACHE_CONTAMINATED, "50"),
    ],
)
def test_each_verdict_shows_its_evidence_and_advises(changes, verdict, told):
    found = judge(replace(QUIET, **changes))
    assert found[0].verdict is verdict
    import re

    assert re.search(told, found[0].evidence)
    assert found[0].advice


def test_the_worst_comes_first():
    found = judge(replace(QUIET, num_failed=1, client_share=0.5))
    assert [finding.verdict for finding in found] == [Verdict.FAILED, Verdict.CLIENT_LIMITED]


def test_an_anchor_that_did_nothing_at_first_is_no_crash():
    assert judge(replace(QUIET, anchor_rates=(0.0, 0.0, 0.0))) == ()
