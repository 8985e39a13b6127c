"""The knee of a throughput-latency curve, by two methods that may differ.

Marginal gain: go on while +x% latency buys more than +x% throughput. That is the largest throughput / latency, the
"power" of Kleinrock (Power and deterministic rules of thumb, ICC 1979). Kneedle: the largest distance to the chord of
the normalised curve (Satopaa et al., Finding a "Kneedle" in a haystack, ICDCSW 2011); it depends on the swept range.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

MIN_KNEEDLE_POINTS = 4  # three have one inner point, which would be the knee whatever was measured


def pareto_front(latency_s: Sequence[float], throughput: Sequence[float], load: Sequence[float]) -> list[int]:
    """Return the indices of points that no other beats in both, by rising latency; of equals the smaller load."""
    order = sorted(range(len(latency_s)), key=lambda i: (latency_s[i], -throughput[i], load[i]))
    front: list[int] = []
    for index in order:
        if not front or throughput[index] > throughput[front[-1]]:
            front.append(index)
    return front


def marginal_knee(latency_s: Sequence[float], throughput: Sequence[float]) -> int:
    """Return the index with the largest throughput / latency on a front by rising latency, the first of equals."""
    return max(range(len(latency_s)), key=lambda i: (throughput[i] / latency_s[i], -i))


def kneedle_knee(latency_s: Sequence[float], throughput: Sequence[float]) -> int | None:
    """Return the index of kneedle's knee on a front by rising latency; None if it sees none or has too few points."""
    if len(latency_s) < MIN_KNEEDLE_POINTS:
        return None
    from kneed import KneeLocator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if there is no knee, which None says
        found = KneeLocator(latency_s, throughput, S=1.0, curve="concave", direction="increasing").knee
    return None if found is None else min(range(len(latency_s)), key=lambda i: abs(latency_s[i] - float(found)))
