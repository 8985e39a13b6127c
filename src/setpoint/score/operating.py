"""Run a job at a chosen operating point: the options that it stands for, and whether it holds here.

A point was measured with one model on one machine over one mix of lengths. Another model or machine is refused, with
the differences named; another mix of lengths is told, since the point is then only a good start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.domain.profile import OperatingPoint
from setpoint.errors import FingerprintMismatch, UsageError

_PLACES = ("dtype", "backend", "threads", "streams")
_LOADS = ("max_batch_tokens", "batch_size")
_SUBJECT = ("model", "tokenizer", "task", "dtype", "backend", "max_length")
_APART = 2.0  # the middle length of rows, by that of the measurement
_ADVICE = "sweep here and choose anew, or give --recalibrate to let this run measure its own batches"


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
        if value is None:
            continue
        mine = options.get(name)
        if mine is not None and mine not in ("auto", value):
            raise UsageError(
                f"--{name.replace('_', '-')} {mine} contradicts the profile, which was chosen with {value}; "
                "leave out one of them"
            )
        options[name] = value
    return options


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
    found = [each.get("name") for each in profile.environment.get("accelerators", ())]
    if found != list(accelerators):
        differences["accelerators"] = (found, list(accelerators))
    if differences:
        raise FingerprintMismatch("the profile was chosen for something else:", differences, advice=_ADVICE)


def length_note(profile: OperatingPoint, lengths: Sequence[int]) -> str | None:
    """What to say where the rows are much longer or shorter than those that the point was chosen with."""
    then = profile.workload.length_quantiles.get(0.5)
    if not lengths or not then:
        return None
    now = sorted(lengths)[len(lengths) // 2]
    if 1 / _APART <= now / then <= _APART:
        return None
    return (
        f"half of these rows have up to {now:,} tokens, where the profile was chosen with {then:,}: "
        "the point may not be the best one here; sweep with such rows"
    )
