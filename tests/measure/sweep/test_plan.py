"""Which settings are planned, and in which order they come."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.errors import UsageError
from setpoint.measure.sweep import PointState, SweepState, next_setting, plan_points

LENGTHS = [20, 30, 40, 50] * 100


def _order(seed: int, num_visits: int) -> list[str]:
    """The keys of the first visits, of points that nothing is learnt about."""
    plan = plan_points(LENGTHS, seed=seed)
    states = {planned.key: PointState(planned=planned) for planned in plan.points}
    order = []
    while len(order) < num_visits:
        state = SweepState(plan=plan, points=tuple(states.values()), spent_s=0.0, budget_s=60.0)
        planned = next_setting(state)
        if planned is None:
            break
        order.append(planned.key)
        states[planned.key] = replace(states[planned.key], num_visits=states[planned.key].num_visits + 1)
    return order


@given(seed=st.integers(0, 1_000))
def test_each_round_visits_every_point_once_with_the_anchor_at_start_middle_and_end(seed: int) -> None:
    plan = plan_points(LENGTHS, seed=seed)
    others = {planned.key for planned in plan.points} - {plan.anchor.key}
    order = _order(seed, 1_000)
    assert order[0] == order[-1] == plan.anchor.key
    assert order.count(plan.anchor.key) == 7
    without = [key for key in order if key != plan.anchor.key]
    assert len(without) == 3 * len(others)
    for start in range(0, len(without), len(others)):
        assert set(without[start : start + len(others)]) == others
    places = [place for place, key in enumerate(order) if key == plan.anchor.key]
    assert max(later - place for place, later in itertools.pairwise(places)) <= len(others) // 2 + 2


def test_rounds_have_orders_of_their_own_and_a_seed_repeats_them() -> None:
    assert _order(3, 40) == _order(3, 40)
    assert _order(3, 40) != _order(4, 40)
    without = [key for key in _order(3, 40) if key != plan_points(LENGTHS).anchor.key]
    assert without[:9] != without[9:18]


def test_loads_that_form_the_same_batches_are_left_out_with_a_note() -> None:
    plan = plan_points([100] * 10)
    loads = [planned.load for planned in plan.points if planned.load_name == "max_batch_tokens"]
    assert loads == [64, 256, 512, 1024]  # 64 and 128 hold one row, from 1,000 on all ten fit
    assert plan.notes == (
        "max_batch_tokens 128, 2,048, 4,096, 8,192 left out: the same batches as a smaller one for these 10 rows",
    )
    few = plan_points([100] * 10, load_name="batch_size", loads=(4, 64, 128))
    assert [planned.load for planned in few.points] == [1, 4, 32]


def test_variants_are_series_of_their_own_with_references() -> None:
    plan = plan_points(LENGTHS, variants=[{"dtype": "float32"}, {"dtype": "bfloat16"}], loads=(256, 1024))
    assert {planned.series for planned in plan.points} == {
        f"{load} dtype={dtype}" for load in ("max_batch_tokens", "batch_size") for dtype in ("float32", "bfloat16")
    }
    assert [planned.role for planned in plan.points] == ["load", "load", "batch-1", "default"] * 2
    assert plan.default is not None
    assert plan.default.setting == {"batch_size": 32, "dtype": "float32"}
    assert not plan.can_refine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": []}, "at least one row"),
        ({"variants": []}, "at least one variant"),
        ({"variants": [{"batch_size": 2}]}, "batch_size"),
        ({"load_name": "batchsize"}, "did you mean 'batch_size'"),
        ({"loads": [0]}, "at least 1"),
        ({"loads": []}, "at least 1"),
    ],
)
def test_bad_input_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_points(**{"lengths": LENGTHS, **options})  # type: ignore[arg-type]
