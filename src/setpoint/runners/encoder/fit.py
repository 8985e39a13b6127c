"""What becomes of a text longer than the model's limit: which tokens are read, in how many windows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from setpoint.domain.truncation import Truncation


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Ranges of a text's tokens to be read, each within the room; more than one only for windows."""

    spans: tuple[tuple[int, int], ...]
    truncated_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPolicy:
    """What the user wants done, and from which end the tokenizer cuts.

    `window_overlap` is the number of tokens that neighbouring windows share, None for an eighth of the room.
    """

    truncation: Truncation
    window_overlap: int | None = None
    keeps_end: bool = False

    def fit(self, length: int, room: int) -> Fit | None:
        """Fit `length` tokens into `room` >= 1; None where the policy is not to.

        Windows cover every token, each is full, and the last ends with the text.
        """
        if length <= room:
            return Fit(spans=((0, length),))
        if self.truncation is Truncation.TRUNCATE:
            return self.cut(length, room)
        if self.truncation is not Truncation.WINDOW:
            return None
        step = room - min(self._overlap(room), room - 1)
        starts = [*range(0, length - room, step), length - room]
        return Fit(spans=tuple((start, start + room) for start in starts))

    def cut(self, length: int, room: int) -> Fit:
        """Keep `room` tokens from the beginning, or from the end where the tokenizer cuts on the left."""
        kept = min(length, room)
        span = (length - kept, length) if self.keeps_end else (0, kept)
        return Fit(spans=(span,), truncated_tokens=length - kept)

    def _overlap(self, room: int) -> int:
        return room // 8 if self.window_overlap is None else self.window_overlap


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of each text are kept so that both fit: the longer is cut until they are even, then both.

    The same numbers as the strategy `longest_first` of tokenizers.
    """
    if first + second <= room:
        return first, second
    short, long = sorted((first, second))
    if 2 * short <= room:
        long = room - short
    else:
        short = room // 2
        long = room - short
    return (short, long) if first <= second else (long, short)
