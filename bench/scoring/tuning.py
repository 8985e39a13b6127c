"""Every peer at its best: each setting is tried on a sample, the closest ones again, the fastest is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLOSE = 1.12  # settings this close to the best are timed again
NUM_AGAIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The fastest setting, its seconds on the sample, and what the others took."""

    setting: Mapping[str, Any]
    seconds: float
    tried: Sequence[tuple[Mapping[str, Any], float]]


def tune(settings: Sequence[Mapping[str, Any]], measure: Callable[[Mapping[str, Any]], float]) -> Tuned:
    """The setting with the shortest pass. `measure` times one pass; the first of each setting is warm-up.

    Raises ValueError for no settings.
    """
    if not settings:
        raise ValueError("no settings to choose from")
    best: dict[str, float] = {}
    for setting in settings:
        measure(setting)
        best[_key(setting)] = measure(setting)
    limit = min(best.values()) * CLOSE
    close = [setting for setting in settings if best[_key(setting)] <= limit]
    for _ in range(NUM_AGAIN if len(close) > 1 else 0):
        for setting in close:  # in turn, so that a disturbance does not hit one alone
            best[_key(setting)] = min(best[_key(setting)], measure(setting))
    tried = sorted(((setting, best[_key(setting)]) for setting in settings), key=lambda entry: entry[1])
    return Tuned(setting=tried[0][0], seconds=tried[0][1], tried=tried)


def describe(setting: Mapping[str, Any]) -> str:
    """A setting in a few words: `sorted, batches of 4, 2 streams of 1 thread`."""
    words = []
    if "order" in setting:
        words.append("unsorted" if setting["order"] == "as given" else "sorted")
    if "batch" in setting:
        words.append("one at a time" if setting["batch"] == 1 else f"batches of {setting['batch']}")
    if "streams" in setting:
        words.append(f"{setting['streams']}×{setting['threads']} threads")
    return ", ".join(words)


def _key(setting: Mapping[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True)
