"""The grammar of `--tune`: which knobs a sweep varies, and over which values."""

from __future__ import annotations

from dataclasses import dataclass

from setpoint.domain.curve import Value
from setpoint.errors import UsageError, unknown

LOADS = ("max_batch_tokens", "batch_size")  # the knob that makes the curve
VARIANTS = ("dtype", "backend", "threads", "streams")  # each combination of these has a curve of its own
GRAMMAR = "write for example: max-batch-tokens=128..4096 or batch-size=1,4,16, then dtype=float32,bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What is varied: one load knob with its values (None: the default), and the values of each variant knob."""

    load_name: str = "max_batch_tokens"
    loads: tuple[int, ...] | None = None
    variants: tuple[tuple[str, tuple[Value, ...]], ...] = ()


def parse_tuning(text: str | None) -> Tuning:
    """Read `name=low..high` (doubling) and `name=a,b,c`, separated by commas.

    Raises UsageError that shows the part that cannot be read and the grammar.
    """
    if text is None:
        return Tuning()
    knobs: dict[str, list[str]] = {}
    name = None
    for piece in text.split(","):
        head, equals, value = piece.partition("=")
        if equals:
            name = head.strip().replace("-", "_")
            if name not in (*LOADS, *VARIANTS):
                raise UsageError(f"--tune: {unknown('knob', head.strip(), _shown((*LOADS, *VARIANTS)))}")
            if name in knobs:
                raise UsageError(f"--tune names {head.strip()} twice; give its values in one list")
            knobs[name] = []
        else:
            value = piece
        if name is None or not value.strip():
            raise UsageError(
                f"--tune: {piece.strip()!r} in {text!r} has no {'knob' if name is None else 'value'}; {GRAMMAR}"
            )
        knobs[name].append(value.strip())
    loads = [name for name in knobs if name in LOADS]
    if len(loads) > 1:
        raise UsageError(f"--tune varies {' and '.join(_shown(loads))}; one of them makes a curve")
    return Tuning(
        load_name=loads[0] if loads else "max_batch_tokens",
        loads=tuple(sorted({n for value in knobs[loads[0]] for n in _numbers(loads[0], value)})) if loads else None,
        variants=tuple((name, _values(name, values)) for name, values in knobs.items() if name in VARIANTS),
    )


def _values(name: str, values: list[str]) -> tuple[Value, ...]:
    if name in ("dtype", "backend"):
        return tuple(dict.fromkeys(values))
    return tuple(sorted({number for value in values for number in _numbers(name, value)}))


def _numbers(name: str, text: str) -> list[int]:
    low, dots, high = text.partition("..")
    try:
        first, last = int(low), int(high) if dots else int(low)
    except ValueError:
        raise UsageError(
            f"--tune: {_shown([name])[0]}={text} is neither a whole number nor a range; {GRAMMAR}"
        ) from None
    if first < 1 or last < first:
        raise UsageError(f"--tune: {_shown([name])[0]}={text} must begin at 1 or more, and not end before it begins")
    found = [first]
    while found[-1] * 2 < last:
        found.append(found[-1] * 2)
    return found if last == first else [*found, last]


def _shown(names: tuple[str, ...] | list[str]) -> list[str]:
    return [name.replace("_", "-") for name in names]
