"""The grammar of --tune."""

import pytest

from setpoint.cli.tuning import Tuning, parse_tuning
from setpoint.errors import UsageError


def test_without_a_text_the_token_budget_is_varied_by_default():
    assert parse_tuning(None) == Tuning(load_name="max_batch_tokens", loads=None, variants=())


def test_a_range_doubles_and_ends_where_it_was_told():
    assert parse_tuning("batch-size=1..20").loads == (1, 2, 4, 8, 16, 20)
    assert parse_tuning("batch-size=1..16").loads == (1, 2, 4, 8, 16)
    assert parse_tuning("batch-size=4").loads == (4,)


def test_lists_belong_to_the_knob_before_them():
    found = parse_tuning("dtype=float32,bfloat16,max-batch-tokens=128..512,1000,threads=2,1")
    assert found.variants == (("dtype", ("float32", "bfloat16")), ("threads", (1, 2)))
    assert (found.load_name, found.loads) == ("max_batch_tokens", (128, 256, 512, 1000))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max-batch-token=1..2", "did you mean 'max-batch-tokens'"),
        ("128..256", "has no knob"),
        ("batch-size=", "has no value"),
        ("batch-size=x", "neither a whole number nor a range"),
        ("batch-size=8..2", "not end before it begins"),
        ("batch-size=0..2", "must begin at 1"),
        ("batch-size=1,max-batch-tokens=64", "one of them makes a curve"),
        ("dtype=float32,dtype=bfloat16", "twice"),
    ],
)
def test_what_cannot_be_read_is_shown_with_the_grammar(text, told):
    with pytest.raises(UsageError, match=told):
        parse_tuning(text)
