"""From the visits to a setting to its point on the curve: what counts, how fast, how late, and is it to be believed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from setpoint.domain.curve import Distribution, Estimate, Finding, Point
from setpoint.domain.slo import Slo
from setpoint.measure.series import outliers, rate_estimate
from setpoint.measure.stats import percentile
from setpoint.measure.subject import Sample, Visit
from setpoint.measure.sweep.plan import PlannedPoint
from setpoint.measure.verdict import MIN_VISITS, PointEvidence, judge
from setpoint.measure.warmup import Warmup, find_warmup

QUANTILES = (0.5, 0.9, 0.95, 0.99)
_NEIGHBOURS = 15  # batches of about the same work that one is held against


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The counted part of one visit."""

    samples: Sequence[Sample]
    duration_s: float
    is_whole: bool  # no warm-up in it, and no probe

    def amount(self, name: str) -> float:
        """Items or tokens of the window."""
        return float(sum(getattr(sample, name) for sample in self.samples))


def make_point(
    planned: PlannedPoint,
    visits: Sequence[Visit],
    *,
    anchor_rates: Sequence[float] = (),
    slos: Sequence[Slo] = (),
    items_per_token: float | None = None,
    failure: Finding | None = None,
) -> Point:
    """The point of a setting's visits, in the order they were made; `anchor_rates` are the anchor's `visit_rates`.

    Warm-up is looked for in the first visit, over the series of durations relative to those of similar batches. It is
    kept in the visits, and counts for nothing. `items_per_token` is the workload's: visits to parts of it can then be
    rated by whichever of the two varies less. A `failure` makes a FAILED point of whatever was seen before it.
    """
    answered = [sample for visit in visits for sample in visit.samples if sample.error is None]
    relative = relative_durations(answered)
    warmup = _warmup(visits, relative)
    windows = _windows(visits, warmup.num_warmup)
    counted = [sample for window in windows for sample in window.samples]
    findings: tuple[Finding, ...] = (failure,) if failure is not None else ()
    if failure is None:
        findings = judge(_evidence(visits, windows, relative, warmup, anchor_rates))
    return Point(
        setting=planned.setting,
        load_name=planned.load_name,
        load=float(planned.load),
        series=planned.series,
        findings=findings,
        throughput=_throughput(_rated(windows), items_per_token),
        latency_s=_latency(counted, slos),
        num_samples=len(counted),
        num_warmup=warmup.num_warmup,
        num_outliers=outliers(relative[warmup.num_warmup :].tolist()) if counted else 0,
        num_visits=len(visits),
        measured_s=sum(window.duration_s for window in windows),
        items_per_batch=sum(sample.num_items for sample in counted) / len(counted) if counted else None,
        padding_waste=_padding_waste(counted),
    )


def relative_durations(samples: Sequence[Sample]) -> npt.NDArray[np.float64]:
    """How long each took relative to the median of those with about the same work; 1 is typical. Shape [samples]."""
    durations = np.array([max(1, sample.end_ns - sample.start_ns) for sample in samples], dtype=np.float64)
    if len(durations) == 0:
        return durations
    order = np.lexsort(([sample.sum_len2 for sample in samples], [sample.processed_tokens for sample in samples]))
    width = min(_NEIGHBOURS, len(durations))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(durations[order], width), axis=1)
    typical = np.empty_like(durations)
    places = np.clip(np.arange(len(durations)) - width // 2, 0, len(medians) - 1)
    typical[order] = medians[places]
    return durations / typical


def visit_rates(visits: Sequence[Visit]) -> list[float]:
    """Tokens per second of each visit, padding included: the mix of lengths moves them least.

    In order and without warm-up: those of the anchor show drift.
    """
    answered = [sample for visit in visits for sample in visit.samples if sample.error is None]
    windows = _windows(visits, _warmup(visits, relative_durations(answered)).num_warmup)
    return [window.amount("processed_tokens") / window.duration_s for window in _rated(windows)]


def _warmup(visits: Sequence[Visit], relative: npt.NDArray[np.float64]) -> Warmup:
    """The warm-up, which lies within the first visit."""
    found = find_warmup(relative)
    num_first = sum(sample.error is None for sample in visits[0].samples) if visits else 0
    return replace(found, num_warmup=min(found.num_warmup, num_first))


def _rated(windows: Sequence[_Window]) -> Sequence[_Window]:
    """The windows that a rate rests on: whole ones, as soon as they are enough for an interval."""
    whole = [window for window in windows if window.is_whole]
    return whole if len(whole) >= MIN_VISITS else windows


def _evidence(
    visits: Sequence[Visit],
    windows: Sequence[_Window],
    relative: npt.NDArray[np.float64],
    warmup: Warmup,
    anchor_rates: Sequence[float],
) -> PointEvidence:
    failed = [sample.error for visit in visits for sample in visit.samples if sample.error is not None]
    rated = _rated(windows)
    spent_ns = sum(visit.end_ns - visit.start_ns for visit in visits)
    return PointEvidence(
        amounts=[window.amount("processed_tokens") for window in rated],
        durations_s=[window.duration_s for window in rated],
        relative=relative[warmup.num_warmup :].tolist(),
        num_samples=sum(len(window.samples) for window in windows),
        num_failed=len(failed),
        first_error=failed[0] if failed else None,
        is_settled=warmup.is_settled,
        warmup_evidence=warmup.evidence,
        client_share=sum(visit.client_ns for visit in visits) / spent_ns if spent_ns else 0.0,
        anchor_rates=anchor_rates,
    )


def _windows(visits: Sequence[Visit], num_warmup: int) -> list[_Window]:
    """The counted part of each visit: from the end of the warm-up on, which lies in the first."""
    windows: list[_Window] = []
    largest = max((len(visit.samples) for visit in visits), default=0)
    for number, visit in enumerate(visits):
        num_left_out = num_warmup if number == 0 else 0
        answered = [sample for sample in visit.samples if sample.error is None]
        samples = answered[num_left_out:]
        if not samples:
            continue
        start_ns = samples[0].start_ns if num_left_out else visit.start_ns
        windows.append(
            _Window(
                samples=samples,
                duration_s=max(1, visit.end_ns - start_ns) / 1e9,
                is_whole=not num_left_out and 2 * len(visit.samples) >= largest,
            )
        )
    return windows


def _throughput(windows: Sequence[_Window], items_per_token: float | None) -> Mapping[str, Estimate]:
    """Items and tokens per second.

    Over the whole workload one follows from the other. A part of it has another mix of lengths each time, and then a
    token budget fixes tokens per second, and a batch size items per second: the one with the narrower interval counts.
    """
    if not windows:
        return {}
    durations = [window.duration_s for window in windows]
    items = rate_estimate([window.amount("num_items") for window in windows], durations)
    tokens = rate_estimate([window.amount("num_tokens") for window in windows], durations)
    if items_per_token is not None and items.value > 0 and tokens.value > 0:
        if _relative_width(tokens) < _relative_width(items):
            items = _scaled(tokens, items_per_token)
        else:
            tokens = _scaled(items, 1 / items_per_token)
    return {"items_per_s": items, "tokens_per_s": tokens}


def _relative_width(rate: Estimate) -> float:
    return math.inf if rate.low is None or rate.high is None else (rate.high - rate.low) / rate.value


def _scaled(rate: Estimate, factor: float) -> Estimate:
    return Estimate(
        value=rate.value * factor,
        low=None if rate.low is None else rate.low * factor,
        high=None if rate.high is None else rate.high * factor,
    )


def _latency(counted: Sequence[Sample], slos: Sequence[Slo]) -> Mapping[str, Distribution]:
    metrics = sorted({metric for sample in counted for metric in sample.latency_ns})
    found = {}
    for metric in metrics:
        values = np.array([sample.latency_ns[metric] for sample in counted if metric in sample.latency_ns]) / 1e9
        asked = sorted({*QUANTILES, *(slo.quantile for slo in slos if slo.metric == metric)})
        found[metric] = Distribution(
            num_samples=len(values),
            smallest_s=float(values.min()),
            largest_s=float(values.max()),
            quantiles={q: _estimate(values, q) for q in asked},
        )
    return found


def _estimate(values: npt.NDArray[np.float64], q: float) -> Estimate | None:
    found = percentile(values, q)
    return None if found is None else Estimate(value=found.value, low=found.low, high=found.high)


def _padding_waste(counted: Sequence[Sample]) -> float | None:
    processed = sum(sample.processed_tokens for sample in counted)
    return 1.0 - sum(sample.num_tokens for sample in counted) / processed if processed else None
