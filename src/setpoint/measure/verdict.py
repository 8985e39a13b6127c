"""Whether a point may be believed: the evidence goes in, findings with advice come out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from setpoint.domain.curve import Finding, Verdict
from setpoint.domain.units import format_percent
from setpoint.measure.series import MIN_VALUES, rate_estimate, trend
from setpoint.measure.stats import min_samples

MIN_VISITS = MIN_VALUES
MIN_SAMPLES = min_samples(0.5)
CLIENT_SHARE = 0.05  # of the window: beyond it the loop around the model is part of the figure
DRIFT = 0.10  # of the anchor between its first and last visits: a neighbour on the machine, or heat
TREND = 0.05  # within a point
TREND_P = 0.01
VISITS_APART = 0.25  # half the rate's 95% interval, relative to the rate: visits that differ so much say little
SATURATION = 0.95  # achieved of offered
CACHE_HITS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PointEvidence:
    """What is known of a point when it is judged.

    `amounts` and `durations_s` are those of its visits without warm-up, `relative` its counted samples' durations
    relative to typical ones, in order. `anchor_rates` are the rates of the anchor's visits over the whole sweep, in
    order. The last three are for servers: the share of answers out of a cache, the offered and the achieved rate.
    """

    amounts: Sequence[float]
    durations_s: Sequence[float]
    relative: Sequence[float]
    num_samples: int
    num_failed: int = 0
    first_error: str | None = None
    is_settled: bool = True
    warmup_evidence: str = ""
    client_share: float = 0.0
    anchor_rates: Sequence[float] = ()
    cache_hit_share: float | None = None
    offered_rate: float | None = None
    achieved_rate: float | None = None


def judge(evidence: PointEvidence) -> tuple[Finding, ...]:
    """Everything that speaks against a point, the worst first; nothing for a valid one."""
    checks: tuple[Callable[[PointEvidence], Finding | None], ...] = (
        _failed,
        _too_few,
        _unsettled,
        _drifting_anchor,
        _trend,
        _visits_apart,
        _client_limited,
        _oversaturated,
        _cached,
    )
    return tuple(found for check in checks if (found := check(evidence)) is not None)


def _failed(evidence: PointEvidence) -> Finding | None:
    if not evidence.num_failed:
        return None
    return Finding(
        verdict=Verdict.FAILED,
        evidence=f"{evidence.num_failed} of {evidence.num_failed + evidence.num_samples} failed, the first with: "
        f"{evidence.first_error or 'unknown'}",
        advice="use a smaller load, or mend what the message says",
    )


def _too_few(evidence: PointEvidence) -> Finding | None:
    visits = len(evidence.durations_s)
    if visits >= MIN_VISITS and evidence.num_samples >= MIN_SAMPLES:
        return None
    return Finding(
        verdict=Verdict.TOO_FEW_SAMPLES,
        evidence=f"{evidence.num_samples} samples in {visits} visits; an interval needs {MIN_SAMPLES} in {MIN_VISITS}",
        advice="give a larger --budget, or fewer points",
    )


def _unsettled(evidence: PointEvidence) -> Finding | None:
    if evidence.is_settled:
        return None
    return Finding(
        verdict=Verdict.NON_STATIONARY,
        evidence=f"the warm-up does not end: {evidence.warmup_evidence or 'no end was found'}",
        advice="give a larger --budget; if it stays, look for what keeps changing (compilation, clocks, swapping)",
    )


def _drifting_anchor(evidence: PointEvidence) -> Finding | None:
    """The first third of the anchor's visits against the last: what holds for it holds for all points."""
    rates = evidence.anchor_rates
    third = max(1, len(rates) // 3)
    if len(rates) < MIN_VISITS:
        return None
    first, last = _middle(rates[:third]), _middle(rates[-third:])
    if first <= 0 or abs(last / first - 1) <= DRIFT:
        return None
    return Finding(
        verdict=Verdict.NON_STATIONARY,
        evidence=f"the anchor's rate went from {first:,.0f} to {last:,.0f} per second during the sweep",
        advice="stop other work on the machine, let it cool, and sweep again",
    )


def _trend(evidence: PointEvidence) -> Finding | None:
    if len(evidence.relative) < 4:
        return None
    found = trend(list(evidence.relative))
    if found.p_value >= TREND_P or abs(found.change) <= TREND:
        return None
    way = "slower" if found.change > 0 else "faster"
    return Finding(
        verdict=Verdict.NON_STATIONARY,
        evidence=f"batches became {format_percent(abs(found.change))} {way} meanwhile (p = {found.p_value:.1g})",
        advice="stop other work on the machine, let it cool, and sweep again",
    )


def _visits_apart(evidence: PointEvidence) -> Finding | None:
    if len(evidence.durations_s) < MIN_VISITS:
        return None
    rates = sorted(amount / duration for amount, duration in zip(evidence.amounts, evidence.durations_s))
    rate = rate_estimate(evidence.amounts, evidence.durations_s)
    if rate.low is None or rate.high is None or rate.value == 0:
        return None
    half = (rate.high - rate.low) / 2 / rate.value
    if half <= VISITS_APART:
        return None
    return Finding(
        verdict=Verdict.NON_STATIONARY,
        evidence=f"visits disagree: from {rates[0]:,.0f} to {rates[-1]:,.0f} per second",
        advice="give a larger --budget, and stop other work on the machine",
    )


def _client_limited(evidence: PointEvidence) -> Finding | None:
    if evidence.client_share <= CLIENT_SHARE:
        return None
    return Finding(
        verdict=Verdict.CLIENT_LIMITED,
        evidence=f"the measuring loop itself took {format_percent(evidence.client_share)} of the time",
        advice="use larger batches, or read the figure as a lower bound",
    )


def _oversaturated(evidence: PointEvidence) -> Finding | None:
    offered, achieved = evidence.offered_rate, evidence.achieved_rate
    if offered is None or achieved is None or achieved >= SATURATION * offered:
        return None
    return Finding(
        verdict=Verdict.OVERSATURATED,
        evidence=f"{offered:.3g} requests a second were offered, {achieved:.3g} were answered",
        advice="offer less: latencies here say how long it was measured, not how fast the server is",
    )


def _cached(evidence: PointEvidence) -> Finding | None:
    if evidence.cache_hit_share is None or evidence.cache_hit_share <= CACHE_HITS:
        return None
    return Finding(
        verdict=Verdict.CACHE_CONTAMINATED,
        evidence=f"{format_percent(evidence.cache_hit_share)} of the answers came out of a cache",
        advice="send fresh content, or declare the hit rate that real traffic has",
    )


def _middle(rates: Sequence[float]) -> float:
    ordered = sorted(rates)
    return ordered[len(ordered) // 2]
