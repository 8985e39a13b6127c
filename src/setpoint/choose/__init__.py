"""Choose a point of a measured curve, and say why. Pure: no files, no clock, repeatable on an old curve."""

from setpoint.choose.choice import Choice, Floor, Inconclusive, Infeasible, Knee, operating_point
from setpoint.choose.decide import choose
from setpoint.choose.slo_text import format_slo, parse_slos
from setpoint.choose.words import explain

__all__ = [
    "Choice",
    "Floor",
    "Inconclusive",
    "Infeasible",
    "Knee",
    "choose",
    "explain",
    "format_slo",
    "operating_point",
    "parse_slos",
]
