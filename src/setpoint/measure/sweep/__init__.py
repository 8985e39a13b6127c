"""A sweep: which settings are measured, in which order, until when, and what becomes of the samples.

plan      which settings, and which comes next. Pure
point     a setting's samples → a point of the curve. Pure
run       visit after visit, until the intervals are tight or the budget is used
"""

from setpoint.measure.sweep.plan import Plan, PlannedPoint, PointState, SweepState, next_setting, plan_points
from setpoint.measure.sweep.point import make_point
from setpoint.measure.sweep.run import SweepResult, run_sweep

__all__ = [
    "Plan",
    "PlannedPoint",
    "PointState",
    "SweepResult",
    "SweepState",
    "make_point",
    "next_setting",
    "plan_points",
    "run_sweep",
]
