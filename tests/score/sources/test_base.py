from __future__ import annotations

import subprocess
import sys

import pytest

from setpoint.domain.task import Task
from setpoint.errors import InputError, UsageError
from setpoint.score.sources import Source, SourceEstimate, choose_text_column, from_iterable, require_columns
from setpoint.score.sources.opening import open_source

TASK = Task.TEXT_CLASSIFICATION


def test_a_missing_column_names_the_nearest_and_all() -> None:
    require_columns(["id", "text"], ["text"], source_name="t.csv")
    with pytest.raises(InputError) as caught:
        require_columns(["id", "text"], ["id", "txet"], source_name="tickets.csv")
    assert str(caught.value) == "no column 'txet' in tickets.csv (did you mean 'text'?); it has: id, text"
    with pytest.raises(InputError, match="it has: no columns at all"):
        require_columns([], ["text"], source_name="t.jsonl")


@pytest.mark.parametrize(
    ("columns", "text_columns", "chosen"),
    [
        (["whatever"], None, "whatever"),
        (["id", "Text"], None, "Text"),
        (["title", "body", "id"], None, "body"),
        (["id", "remark"], ["remark"], "remark"),
        (["id", "content", "text"], ["content", "text"], "text"),
    ],
)
def test_the_text_column_is_chosen(columns: list[str], text_columns: list[str] | None, chosen: str) -> None:
    assert choose_text_column(columns, TASK, text_columns=text_columns) == chosen


def test_a_choice_that_cannot_be_made_lists_the_columns() -> None:
    with pytest.raises(UsageError, match="Name it with --column; the columns are: a, b"):
        choose_text_column(["a", "b"], TASK)
    with pytest.raises(UsageError, match=r"no column holds text.*a, b"):
        choose_text_column(["a", "b"], TASK, text_columns=[])


def test_the_best_estimate() -> None:
    assert SourceEstimate(num_rows=0, approx_rows=7).rows == 0
    assert SourceEstimate(approx_rows=7).rows == 7
    assert SourceEstimate().rows is None


def test_every_source_is_one() -> None:
    import duckdb  # noqa: F401

    assert isinstance(from_iterable(["a"]), Source)
    assert isinstance(open_source("x.duckdb", query="SELECT 1"), Source)


def test_the_package_is_light_until_it_is_used() -> None:
    code = "import sys, setpoint.score.sources; print([m for m in ('pyarrow', 'numpy', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
