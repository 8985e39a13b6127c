"""Run a job at a chosen operating point: the options that it stands for, and whether it holds here.

A point was measured with one model on one machine over one mix of lengths. Another model or machine is refused, with
the differences named; another mix of lengths is told, since the point is then only a good start. While the job runs,
`RateBand` compares its batches with the profile's cost model, and says once where they drift apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from setpoint.cost.model import EncoderCost
from setpoint.domain.curve import Workload
from setpoint.domain.profile import OperatingPoint
from setpoint.domain.units import format_percent
from setpoint.errors import FingerprintMismatch, UsageError
from setpoint.runners.encoder.options import DTYPE_ALIASES
from setpoint.score.meter import BatchSample

_PLACES = ("dtype", "backend", "threads", "streams")
_LOADS = ("max_batch_tokens", "batch_size")
_SUBJECT = ("model", "tokenizer", "task", "dtype", "backend", "max_length", "batch_invariant")  # what sets the speed
_APART = 2.0  # the middle length of rows, by that of the measurement; the same for the longer tenth
_QUANTILES = {0.5: "half", 0.9: "nine in ten"}
_ADVICE = "sweep here and choose anew, or give --recalibrate to let this run measure its own batches"

# An encoder of MiniLM's size, float32, 2 cores: jobs of rows as long as the sweep's, four times as long and a quarter
# as long lay within 3% of the sweep's cost model in the middle; beside two busy processes they took 1.74 times as long.
_MIN_BAND = 0.25
_BAND_ERRORS = 3.0  # how many times the fit's own error counts as agreement
_MAX_BAND = 0.75  # a fit that is worse than this says nothing about the rate
_MIN_SAMPLES = 24
_MIN_BUSY_S = 3.0  # of computing
_GROWTH = 1.25  # look again when so many more batches were measured
_LATEST = 96  # batches that count as now


def options_at(profile: OperatingPoint, given: Mapping[str, Any]) -> dict[str, Any]:
    """The job's options with those of the point; `given` are the user's own.

    Raises UsageError where one that the user gave says something else than the point.
    """
    setting = profile.point.setting
    chosen = {name: setting.get(name, profile.options.get(name)) for name in _PLACES}
    chosen |= {name: setting.get(name) for name in _LOADS}
    chosen["max_length"] = profile.options.get("max_length")
    options = dict(given)
    for name, value in chosen.items():
        mine = options.get(name)
        if value is None and not (name in _LOADS and mine is not None):
            continue
        if mine is not None and _canonical(mine) not in ("auto", _canonical(value)):
            was = f"without --{_flag(name)}" if value is None else f"with {value}"
            raise UsageError(
                f"--{_flag(name)} {mine} contradicts the profile, which was chosen {was}; leave out one of them"
            )
        options[name] = value
    return options


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _canonical(value: Any) -> Any:
    """The same for two spellings of one dtype or backend."""
    if not isinstance(value, str):
        return value
    return DTYPE_ALIASES.get(value.strip().lower(), value.strip().lower())


def check_holds(
    profile: OperatingPoint, fingerprint: Mapping[str, Any], cpu: Mapping[str, Any], accelerators: Sequence[str]
) -> None:
    """Raise FingerprintMismatch where the model or the machine is another than the point was chosen for.

    `fingerprint` is the loaded runner's, `cpu` has model and num_cores, `accelerators` are names.
    """
    differences: dict[str, tuple[object, object]] = {}
    subject = profile.subject
    for name in _SUBJECT:
        if name in subject and name in fingerprint and subject[name] != fingerprint[name]:
            differences[name] = (subject[name], fingerprint[name])
    then = profile.environment.get("cpu", {})
    for name in ("model", "num_cores"):
        if name in then and then[name] != cpu[name]:
            differences[f"cpu.{name}"] = (then[name], cpu[name])
    if "accelerators" in profile.environment:
        found = [each.get("name") for each in profile.environment["accelerators"]]
        if found != list(accelerators):
            differences["accelerators"] = (found, list(accelerators))
    if differences:
        raise FingerprintMismatch("the profile was chosen for something else:", differences, advice=_ADVICE)


def length_note(profile: OperatingPoint, lengths: Sequence[int]) -> str | None:
    """What to say where rows of `lengths` tokens are much longer or shorter than those of the point's measurement.

    The middle and the longer tenth are compared; more than twice, or less than half, is much.
    """
    if not lengths:
        return None
    ordered = sorted(lengths)
    for quantile, words in _QUANTILES.items():
        then = profile.workload.length_quantiles.get(quantile)
        now = ordered[min(int(quantile * len(ordered)), len(ordered) - 1)]
        if then and not 1 / _APART <= now / then <= _APART:
            return (
                f"{words} of these rows have up to {now:,} tokens, where the profile was chosen with {then:,}: "
                "the point may not be the best one here; sweep with such rows, or give --recalibrate"
            )
    return None


class Cause(StrEnum):
    """Why a job's batches take longer or shorter than the profile says: the likeliest reason."""

    LENGTHS = "length mix"
    SOFTWARE = "other versions"
    MACHINE = "machine"
    PROFILE = "profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Batches outside the profile's band. `ratio` is measured by predicted seconds: 1.5 is half as slow again."""

    ratio: float
    band: float  # relative: 0.25 is within a quarter
    cause: Cause
    evidence: str
    advice: str

    def __str__(self) -> str:
        """One sentence or two for a person."""
        amount = format_percent(abs(self.ratio - 1))
        how = "longer" if self.ratio > 1 else "shorter"
        return (
            f"batches take {amount} {how} than the profile says (expected within {format_percent(self.band)}); "
            f"likely cause: {self.cause}: {self.evidence}; {self.advice}"
        )


class RateBand:
    """Compares the batches of a running job with what a profile's cost model says, and reports drift once.

    The middle of measured by predicted seconds over the latest batches counts, so that a few stalls do not, and a mix
    of lengths other than the profile's does not either, as long as the cost model covers it.
    """

    def __init__(
        self, cost: EncoderCost, *, band: float, typical_tokens: float | None, other_versions: Sequence[str] = ()
    ) -> None:
        """`typical_tokens` is the length that the profile's average token is in (see `typical_length`)."""
        self._cost = cost
        self._band = band
        self._typical_tokens = typical_tokens
        self._other_versions = tuple(other_versions)
        self._num_checked = 0
        self._is_told = False

    @classmethod
    def of(cls, profile: OperatingPoint, fingerprint: Mapping[str, Any]) -> RateBand | None:
        """The band of a profile for a runner of this fingerprint.

        None where the profile's cost model says nothing about this point: there is none, it is too far off, or it
        blends several variants (dtypes, backends, threads, streams) of one sweep.
        """
        cost, setting = profile.cost, profile.point.setting
        if cost is None or set(setting) - {profile.point.load_name}:
            return None
        error = cost.median_error if cost.held_out_error is None else cost.held_out_error
        band = max(_MIN_BAND, _BAND_ERRORS * error)
        if band > _MAX_BAND:
            return None
        then, now = profile.subject.get("versions"), fingerprint.get("versions")
        return cls(
            EncoderCost(a_s=cost.a_s, b_s_per_token=cost.b_s_per_token, c_s_per_token2=cost.c_s_per_token2),
            band=band,
            typical_tokens=typical_length(profile.workload),
            other_versions=_other_versions(then, now),
        )

    def check(self, samples: Sequence[BatchSample], num_samples: int) -> Drift | None:
        """What to tell, once in a job; `samples` are the latest of `num_samples` batches, in their order."""
        if self._is_told or num_samples < max(_MIN_SAMPLES, self._num_checked * _GROWTH):
            return None
        counted = [sample for sample in samples if sample.work.tokens]
        if len(counted) < _MIN_SAMPLES or sum(sample.duration_s for sample in counted) < _MIN_BUSY_S:
            return None
        self._num_checked = num_samples
        ratios = np.array([sample.duration_s / max(self._predicted_s(sample), 1e-9) for sample in counted])
        latest = float(np.median(ratios[-_LATEST:]))
        if 1 / (1 + self._band) <= latest <= 1 + self._band:
            return None
        self._is_told = True
        before = float(np.median(ratios[: len(ratios) // 2]))
        cause, evidence, advice = self._explain(latest, before, counted[-_LATEST:])
        return Drift(ratio=latest, band=self._band, cause=cause, evidence=evidence, advice=advice)

    def _predicted_s(self, sample: BatchSample) -> float:
        return self._cost.seconds(sample.work.tokens, sample.work.squares)

    def _explain(self, latest: float, before: float, samples: Sequence[BatchSample]) -> tuple[Cause, str, str]:
        """The likeliest cause: what is known to differ first, then what changed on the way, then the machine."""
        now = sum(sample.work.squares for sample in samples) / sum(sample.work.tokens for sample in samples)
        then = self._typical_tokens
        if then and not 1 / _APART <= now / then <= _APART:
            return (
                Cause.LENGTHS,
                f"tokens are in rows of about {now:,.0f} tokens, where the profile has {then:,.0f}",
                "sweep with such rows",
            )
        if self._other_versions:
            return Cause.SOFTWARE, ", ".join(self._other_versions), "sweep again with these versions"
        if 1 / (1 + self._band) <= before <= 1 + self._band:
            return (
                Cause.MACHINE,
                "the first batches of this job were as the profile says, so something changed meanwhile",
                "see what else runs, and whether the machine is throttled (setpoint env)",
            )
        if latest > 1:
            return (
                Cause.MACHINE,
                "it was so from the start: something else runs here, or the machine is slower than it was",
                "see what else runs, and whether the machine is throttled (setpoint env), or sweep again",
            )
        return Cause.PROFILE, "the machine was slower or busier while it was measured", "sweep again"


def typical_length(workload: Workload) -> float | None:
    """The length in tokens of the row that a token is in, on average: sum len^2 / sum len, from the quantiles.

    None where they are too few to say. Between two quantiles lengths are taken to be spread evenly.
    """
    quantiles = sorted(workload.length_quantiles)
    if len(quantiles) < 3 or workload.length_quantiles[quantiles[-1]] < 1:
        return None
    total = squares = 0.0
    for low, high in itertools.pairwise(quantiles):
        a, b = workload.length_quantiles[low], workload.length_quantiles[high]
        total += (high - low) * (a + b) / 2
        squares += (high - low) * (a * a + a * b + b * b) / 3  # the mean square of an even spread from a to b
    return squares / total


def _other_versions(then: object, now: object) -> list[str]:
    if not (isinstance(then, Mapping) and isinstance(now, Mapping)):
        return []
    return [f"{name} was {then[name]}, now {now[name]}" for name in then if name in now and then[name] != now[name]]
