"""Durations, sizes and counts, as people write them and as people read them.

Read: a duration and a size carry their unit, so that ms and s can't be mistaken. Written: three significant digits,
no more than two units, thousands separated. What is written here can be read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from setpoint.errors import UsageError, nearest

_DURATION_S: Mapping[str, Decimal] = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),  # U+00B5, the micro sign
    "μs": Decimal("1e-6"),  # U+03BC, the Greek letter
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3_600),
    "d": Decimal(86_400),
}
_DURATION_GRAMMAR = "a duration is a number with its unit, ns, us, ms, s, m, h or d: 250us, 500ms, 2s, 1.5m, 1h30m"

_SIZE_BYTES: Mapping[str, int] = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE_GRAMMAR = "a size is a number with its unit, B, kB, MB, GB, TB, KiB, MiB, GiB or TiB: 1024B, 500MB, 16GiB"

_COUNT_FACTORS: Mapping[str, int] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}
_COUNT_GRAMMAR = "a count is a whole number, or one with k, M, G (thousands) or Ki, Mi, Gi (1,024s): 4096, 4k, 4Ki"

_NUMBER = r"[0-9]{1,3}(?:[,_][0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER_AND_UNIT = re.compile(rf"\s*({_NUMBER})\s*([^\W\d_]*)\s*")


def parse_duration(text: str, *, key: str = "duration") -> float:
    """Return seconds for `500ms`, `2s`, `1.5m`, `1h`, `250us` or, largest unit first, `1h30m`.

    `key` is the option that the message of a UsageError names.
    """
    total = Decimal(0)
    smallest: Decimal | None = None
    for number, unit in _parts(text, key, _DURATION_GRAMMAR):
        if not unit:
            raise UsageError(f"{key}: {text!r} has no unit, is it {number}ms or {number}s? {_DURATION_GRAMMAR}")
        factor = _DURATION_S.get(unit)
        if factor is None:
            raise UsageError(
                f"{key}: unknown unit {unit!r} in {text!r}{nearest(unit, _DURATION_S)}; {_DURATION_GRAMMAR}"
            )
        if smallest is not None and factor >= smallest:
            raise UsageError(f"{key}: {text!r} must go from the largest unit to the smallest; {_DURATION_GRAMMAR}")
        smallest = factor
        total += Decimal(number) * factor
    seconds = float(total)
    if not math.isfinite(seconds):
        raise UsageError(f"{key}: {_shown(text)} is too long; {_DURATION_GRAMMAR}")
    return seconds


def parse_size(text: str, *, key: str = "size") -> int:
    """Return bytes for `16GiB`, `500MB`, `1024B`; upper and lower case are the same, parts of a byte are cut off."""
    number, unit = _single(text, key, _SIZE_GRAMMAR)
    if not unit:
        raise UsageError(f"{key}: {text!r} has no unit, is it {number}B or {number}MiB? {_SIZE_GRAMMAR}")
    factors = {name.lower(): factor for name, factor in _SIZE_BYTES.items()}
    factor = factors.get(unit.lower())
    if factor is None:
        raise UsageError(f"{key}: unknown unit {unit!r} in {text!r}{_either(unit)}; {_SIZE_GRAMMAR}")
    size = Decimal(number) * factor
    if factor == 1 and size != int(size):
        raise UsageError(f"{key}: {text!r} is not a whole number of bytes; {_SIZE_GRAMMAR}")
    return int(size)


def parse_count(text: str, *, key: str = "count") -> int:
    """Return the whole number for `4096`, `4,096`, `4k` (4,000) or `4Ki` (4,096).

    A capital `K` is refused: half of the tools read it as 1,000 and the other half as 1,024.
    """
    number, unit = _single(text, key, _COUNT_GRAMMAR)
    factor = _COUNT_FACTORS.get(unit)
    if factor is None:
        hint = f", is it {number}k or {number}Ki?" if unit == "K" else nearest(unit, _COUNT_FACTORS) + ";"
        raise UsageError(f"{key}: unknown unit {unit!r} in {text!r}{hint} {_COUNT_GRAMMAR}")
    count = Decimal(number) * factor
    if count != int(count):
        raise UsageError(f"{key}: {text!r} is not a whole number; {_COUNT_GRAMMAR}")
    return int(count)


def format_duration(seconds: float) -> str:
    """Return `11.8 ms`, `2.35 s`, `3 min 12 s`, `1 h 5 min`, `2 d 3 h`. Raises ValueError for NaN and infinity."""
    if not math.isfinite(seconds):
        raise ValueError(f"no duration: {seconds!r}")
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    for unit, factor in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        shown = format_number(seconds / factor)
        if 0 < seconds < 1000 * factor and shown != "1,000":  # 999.9 ms is written 1 s
            return f"{shown} {unit}"
    if seconds < 59.95:  # above, three digits would show 60 s
        return f"{format_number(seconds)} s"
    large, small = "min", "s"
    whole, rest = divmod(round(seconds), 60)
    if whole >= 60:
        large, small = "h", "min"
        whole, rest = divmod(round(seconds / 60), 60)
    if large == "h" and whole >= 24:
        large, small = "d", "h"
        whole, rest = divmod(round(seconds / 3_600), 24)
    return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"


def format_duration_range(low_s: float, high_s: float) -> str:
    """Return `11–12 min` for a forecast between two durations in seconds, rounded outwards to two digits.

    Raises ValueError unless 0 <= low <= high, both finite.
    """
    if not (0 <= low_s <= high_s and math.isfinite(high_s)):
        raise ValueError(f"no range of durations: {low_s!r} to {high_s!r}")
    low, low_unit = _rounded(low_s, up=False)
    high, high_unit = _rounded(high_s, up=True)
    if high_unit != low_unit and low_s > 0:
        in_high_unit, _ = _rounded(low_s, up=False, unit=high_unit)
        if in_high_unit == "0":
            return f"{low} {low_unit} – {high} {high_unit}"
        low = in_high_unit
    return f"{high} {high_unit}" if low == high else f"{low}–{high} {high_unit}"


def format_size(num_bytes: int) -> str:
    """Return `512 B`, `1.5 KiB`, `16 GiB`: binary units, three digits. Raises ValueError for a negative size."""
    if num_bytes < 0:
        raise ValueError(f"no size: {num_bytes!r}")
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{format_number(value)} {unit}"


def format_count(count: int) -> str:
    """Return `1,234,567`."""
    return f"{count:,}"


def format_rate(per_s: float, unit: str) -> str:
    """Return `183 items/s`, `22,344 tokens/s`, `0.35 items/s`. Raises ValueError for NaN and infinity."""
    return f"{format_number(per_s)} {unit}/s"


def format_percent(share: float) -> str:
    """Return `12.3%` for 0.123. Raises ValueError for NaN and infinity."""
    return f"{format_number(share * 100)}%"


def format_number(value: float) -> str:
    """Return a number in three significant digits: `0.0123`, `1.5`, `11.8`, and whole from 100 on: `22,344`.

    Zeros that say nothing are left out. Raises ValueError for NaN and infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"no number for people: {value!r}")
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, 2 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _parts(text: str, key: str, grammar: str) -> list[tuple[str, str]]:
    """The (number, unit) pairs that a text consists of, at least one."""
    parts: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _NUMBER_AND_UNIT.match(text, position)
        if match is None:
            raise UsageError(f"{key}: cannot read {_shown(text)}; {grammar}")
        parts.append((re.sub("[,_]", "", match[1]), match[2]))
        position = match.end()
    if not parts:
        raise UsageError(f"{key}: cannot read {_shown(text)}; {grammar}")
    return parts


def _single(text: str, key: str, grammar: str) -> tuple[str, str]:
    parts = _parts(text, key, grammar)
    if len(parts) > 1:
        raise UsageError(f"{key}: cannot read {_shown(text)}; {grammar}")
    return parts[0]


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}..."


def _either(unit: str) -> str:
    """For `G`, which half of the tools read as 10^9 and the other half as 2^30: name both."""
    letter = unit.upper()
    if letter in ("K", "M", "G", "T"):
        return f" (is it {'k' if letter == 'K' else letter}B or {letter}iB?)"
    return nearest(unit, _SIZE_BYTES)


def _rounded(seconds: float, *, up: bool, unit: str | None = None) -> tuple[str, str]:
    """A duration in one unit, its own or the one given: whole, and below 10 with one decimal."""
    if seconds == 0:
        return "0", unit or "s"
    if unit is None:
        limits_s = {"ms": 1.0, "s": 120.0, "min": 7_200.0, "h": 172_800.0}
        unit = next((name for name, limit_s in limits_s.items() if seconds < limit_s), "d")
    value = seconds / float(_DURATION_S[unit])
    scale = 10 if value < 10 else 1
    # a float such as 0.7 / 0.1 lies a hair beside its value: that hair must not cost a whole step
    steps = math.ceil(value * scale - 1e-9) if up else math.floor(value * scale + 1e-9)
    return format_number(steps / scale), unit
