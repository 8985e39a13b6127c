import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.domain.units import (
    format_count,
    format_duration,
    format_duration_range,
    format_number,
    format_percent,
    format_rate,
    format_size,
    parse_count,
    parse_duration,
    parse_size,
)
from setpoint.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("2s", 2.0),
        ("1.5m", 90.0),
        ("90min", 5_400.0),
        ("1h", 3_600.0),
        ("2d", 172_800.0),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("250μs", 250e-6),
        ("7ns", 7e-9),
        (" .5 s ", 0.5),
        ("0s", 0.0),
        ("1h30m", 5_400.0),
        ("3 min 12 s", 192.0),
        ("0.1s", 0.1),
        ("1,000.5s", 1_000.5),
    ],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("500", "'500' has no unit, is it 500ms or 500s?"),
        ("1h30", "has no unit, is it 30ms or 30s?"),
        ("2sec", "unknown unit 'sec'"),
        ("2hr", "did you mean 'h'?"),
        ("2S", "did you mean 's'?"),
        ("30m1h", "from the largest unit to the smallest"),
        ("1s1s", "from the largest unit to the smallest"),
        ("", "cannot read ''"),
        ("soon", "cannot read 'soon'"),
        ("-2s", "cannot read '-2s'"),
        ("1e3s", "unknown unit 'e'"),
        ("infs", "cannot read"),
        ("٣s", "cannot read"),
        ("1,5s", "cannot read"),
        ("1,5000s", "cannot read"),
        ("9" * 400 + "s", "is too long"),
    ],
)
def test_a_wrong_duration_names_the_option_the_fault_and_the_grammar(text, said):
    with pytest.raises(UsageError) as error:
        parse_duration(text, key="--timeout")
    assert str(error.value).startswith("--timeout: ")
    assert said in str(error.value)
    assert "500ms" in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("16GiB", 16 * 2**30),
        ("16gib", 16 * 2**30),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("1024B", 1024),
        ("1.5KiB", 1536),
        ("2kB", 2_000),
        ("1TiB", 2**40),
        ("1TB", 10**12),
        ("0.3GiB", 322_122_547),
        ("0B", 0),
    ],
)
def test_sizes_are_read(text, num_bytes):
    assert parse_size(text) == num_bytes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("16", "has no unit, is it 16B or 16MiB?"),
        ("16G", "is it GB or GiB?"),
        ("16k", "is it kB or KiB?"),
        ("16Gib8B", "cannot read"),
        ("16GiBs", "did you mean 'GiB'?"),
        ("1.5B", "not a whole number of bytes"),
        ("-1B", "cannot read"),
        ("", "cannot read"),
    ],
)
def test_a_wrong_size_names_the_option_the_fault_and_the_grammar(text, said):
    with pytest.raises(UsageError) as error:
        parse_size(text, key="--memory")
    assert str(error.value).startswith("--memory: ")
    assert said in str(error.value)
    assert "16GiB" in str(error.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4_096),
        ("4,096", 4_096),
        ("1_000_000", 1_000_000),
        ("4k", 4_000),
        ("4Ki", 4_096),
        ("1.5k", 1_500),
        ("2M", 2_000_000),
        ("1Gi", 2**30),
        ("0", 0),
    ],
)
def test_counts_are_read(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4K", "is it 4k or 4Ki?"),
        ("4KI", "did you mean 'Ki'?"),
        ("1.5", "not a whole number"),
        ("1.0005k", "not a whole number"),
        ("40,96", "cannot read"),
        ("-1", "cannot read"),
        ("", "cannot read"),
        ("many", "cannot read"),
        ("1k2", "cannot read"),
    ],
)
def test_a_wrong_count_names_the_option_the_fault_and_the_grammar(text, said):
    with pytest.raises(UsageError) as error:
        parse_count(text, key="--max-rows")
    assert str(error.value).startswith("--max-rows: ")
    assert said in str(error.value)
    assert "4Ki" in str(error.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2.5e-7, "250 ns"),
        (9.996e-7, "1 µs"),
        (0.00025, "250 µs"),
        (0.0118, "11.8 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1 s"),
        (2.345, "2.35 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (192.4, "3 min 12 s"),
        (3_599.4, "59 min 59 s"),
        (3_599.6, "1 h"),
        (3_930, "1 h 6 min"),
        (86_380, "1 d"),
        (97_200, "1 d 3 h"),
        (1e9, "11,574 d 2 h"),
        (-192, "-3 min 12 s"),
    ],
)
def test_durations_are_written(seconds, text):
    assert format_duration(seconds) == text


@given(st.floats(1e-9, 1e8))
def test_a_written_duration_can_be_read_and_is_as_long(seconds):
    read = parse_duration(format_duration(seconds))
    tolerance = 0.0051 * seconds if seconds < 59.95 else 0.51 if seconds < 3_600 else 31 if seconds < 86_400 else 1_801
    assert abs(read - seconds) <= tolerance


@given(st.floats(0, 1e8), st.floats(0, 1e8))
def test_written_durations_never_show_a_full_unit_as_its_rest(one, other):
    for seconds in (one, other):
        assert not re.search(r"\b60 (s|min)|\b24 h|1,000 (ns|µs|ms)", format_duration(seconds))


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (661, 715, "11–12 min"),
        (650, 715, "10–12 min"),
        (660, 660, "11 min"),
        (0, 0, "0 s"),
        (0.2, 0.5, "200–500 ms"),
        (0.5, 3, "0.5–3 s"),
        (0, 3, "0–3 s"),
        (30, 720, "0.5–12 min"),
        (0.001, 720, "1 ms – 12 min"),
        (3_600, 5_000, "60–84 min"),
        (4_000, 8_000, "1.1–2.3 h"),
        (1e5, 1e6, "1.1–12 d"),
    ],
)
def test_ranges_are_written_in_one_unit_where_that_says_something(low_s, high_s, text):
    assert format_duration_range(low_s, high_s) == text


@given(st.floats(1e-3, 1e8), st.floats(1, 10))
def test_a_range_is_rounded_outwards_and_not_far(low_s, ratio):
    high_s = low_s * ratio
    text = format_duration_range(low_s, high_s)
    low, _, high = text.replace(" – ", "–").partition("–")
    unit = text.rsplit(" ", 1)[1]
    read_high = parse_duration(high or low)
    read_low = parse_duration(low if re.search("[a-z]", low) else f"{low} {unit}")
    assert read_low <= low_s * (1 + 1e-6)
    assert read_high >= high_s * (1 - 1e-6)
    assert read_high <= high_s * 1.1 + 1e-3
    assert read_low >= low_s - 0.1 * high_s - 1e-3


@pytest.mark.parametrize(("low_s", "high_s"), [(2, 1), (-1, 1), (0, float("inf")), (float("nan"), 1)])
def test_what_is_no_range_is_refused(low_s, high_s):
    with pytest.raises(ValueError, match="no range"):
        format_duration_range(low_s, high_s)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1_023, "1,023 B"),
        (1_536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (16 * 2**30, "16 GiB"),
        (5 * 2**50, "5,120 TiB"),
    ],
)
def test_sizes_are_written(num_bytes, text):
    assert format_size(num_bytes) == text


@given(st.integers(0, 2**50))
def test_a_written_size_can_be_read_and_is_as_large(num_bytes):
    assert abs(parse_size(format_size(num_bytes)) - num_bytes) <= 0.0051 * num_bytes + 1


@given(st.integers(0, 10**15))
def test_a_written_count_can_be_read_again(count):
    assert parse_count(format_count(count)) == count


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123456, "0.0123"),
        (1.5, "1.5"),
        (9.996, "10"),
        (11.84, "11.8"),
        (999.6, "1,000"),
        (22_344, "22,344"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers_have_three_digits_and_no_idle_zeros(value, text):
    assert format_number(value) == text


def test_rates_and_shares_are_written():
    assert format_rate(22_344.4, "tokens") == "22,344 tokens/s"
    assert format_rate(0.351, "items") == "0.351 items/s"
    assert format_percent(0.12345) == "12.3%"
    assert format_percent(1) == "100%"


@pytest.mark.parametrize("write", [format_number, format_duration, format_percent])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_never_written_as_one(write, value):
    with pytest.raises(ValueError, match="no "):
        write(value)


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="no size"):
        format_size(-1)
