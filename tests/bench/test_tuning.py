"""Tuning takes the fastest setting, does not count the first pass, and asks again where it is close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from scoring.lineup import quick_settings
from scoring.tuning import NUM_AGAIN, describe, tune


def test_the_first_pass_of_a_setting_does_not_count() -> None:
    passes: Counter[int] = Counter()

    def measure(setting: Mapping[str, Any]) -> float:
        passes[setting["batch"]] += 1
        warm = {4: 1.0, 8: 2.0}[setting["batch"]]
        return 0.1 if passes[setting["batch"]] == 1 else warm

    found = tune([{"batch": 8}, {"batch": 4}], measure)
    assert found.setting == {"batch": 4}
    assert found.seconds == 1.0
    assert passes == {4: 2, 8: 2}


def test_close_settings_are_timed_again_in_turn() -> None:
    asked: list[int] = []
    disturbed = iter([1.0, 1.2, 1.0, 1.1, 1.0, 0.9, 1.0, 0.95])

    def measure(setting: Mapping[str, Any]) -> float:
        asked.append(setting["batch"])
        return next(disturbed)

    found = tune([{"batch": 4}, {"batch": 8}], measure)
    assert asked == [4, 4, 8, 8] + [4, 8] * NUM_AGAIN
    assert found.setting == {"batch": 8}
    assert [setting["batch"] for setting, _ in found.tried] == [8, 4]


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="settings"):
        tune([], lambda setting: 1.0)


def test_settings_are_told_in_words() -> None:
    told = describe({"order": "longest first", "batch": 4, "streams": 2, "threads": 1})
    assert told == "sorted, batches of 4, 2×1 threads"
    assert describe({"order": "as given", "batch": 1}) == "unsorted, one at a time"


def test_a_quick_run_tries_all_settings_of_the_front_runner_and_one_of_the_others() -> None:
    streams = [{"batch": batch, "streams": n, "threads": 2 // n} for n in (1, 2) for batch in (2, 4, 8)]
    assert quick_settings("openvino", streams) == streams
    assert quick_settings("ctranslate2", streams) == [{"batch": 4, "streams": 2, "threads": 1}]
    assert quick_settings("sentence-transformers", [{"batch": n} for n in (4, 8, 16)]) == [{"batch": 8}]
