from __future__ import annotations

import pytest

from setpoint.choose import format_slo, parse_slos
from setpoint.domain.slo import Slo
from setpoint.errors import UsageError


def test_limits_are_read_and_written() -> None:
    assert parse_slos("batch p99 < 250ms") == (Slo(metric="batch", quantile=0.99, limit_s=0.25),)
    two = parse_slos("ttft p95<500ms,  tpot p99.9 <= 50 ms")
    assert [(s.metric, s.quantile, s.limit_s) for s in two] == [("ttft", 0.95, 0.5), ("tpot", 0.999, 0.05)]
    assert [format_slo(s) for s in two] == ["ttft p95 < 500 ms", "tpot p99.9 < 50 ms"]
    assert parse_slos(", ".join(map(format_slo, two))) == two


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("batch p99 < 250", "no unit, is it 250ms or 250s?", "250"),
        ("batsh p99 < 250ms", "did you mean 'batch'?", "batsh"),
        ("batch p98 < 250ms", "unknown percentile 'p98'", "p98"),
        ("batch < 250ms", "a percentile is missing", "<"),
        ("batch p99 > 250ms", "'<' is missing", ">"),
        ("batch p99 250ms", "'<' is missing", "250ms"),
        ("batch p99 <", "a value is missing", None),
        ("batch p99 < -1ms", "cannot read", "-1ms"),
        ("batch p99 < 0ms", "more than 0", "0ms"),
        ("batch p99 < 2parsecs", "unknown unit", "2parsecs"),
        ("", "a metric is missing", None),
        ("batch p99 < 2s,", "a metric is missing", None),
        ("ttft p99 < 2s, ttft p99 < 3s", "ttft p99 has a limit already", "ttft p99 < 3s"),
        ("batch p99 < 2s tpot p99 < 3s", "cannot read", "2s"),
    ],
)
def test_what_cannot_be_read_shows_the_place_and_the_grammar(text: str, message: str, place: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_slos(text)
    lines = str(caught.value).splitlines()
    assert message in lines[0]
    assert lines[1] == f"  {text}"
    assert lines[2] == "  " + " " * (len(text) if place is None else text.index(place)) + "^"
    assert "metric percentile < value" in lines[3]
    assert "batch, e2el, ttft, tpot, itl" in lines[4]
