from hypothesis import given
from hypothesis import strategies as st

from setpoint.domain.truncation import Truncation
from setpoint.runners.encoder.fit import FitPolicy, longest_first

lengths = st.integers(0, 300)
rooms = st.integers(1, 60)


@given(lengths, rooms, st.none() | st.integers(0, 80))
def test_windows_cover_every_token_and_are_full(length: int, room: int, overlap: int | None) -> None:
    fit = FitPolicy(truncation=Truncation.WINDOW, window_overlap=overlap).fit(length, room)
    assert fit is not None
    assert fit.truncated_tokens == 0
    assert fit.spans[0][0] == 0
    assert fit.spans[-1][1] == length
    assert set().union(*(range(*span) for span in fit.spans)) == set(range(length))
    if length > room:
        assert all(stop - start == room for start, stop in fit.spans)
        shared = [left[1] - right[0] for left, right in zip(fit.spans, fit.spans[1:])]
        wanted = room // 8 if overlap is None else min(overlap, room - 1)
        assert all(found == wanted for found in shared[:-1])
        assert shared[-1] >= wanted


@given(lengths, rooms, st.booleans())
def test_truncation_keeps_one_end_and_counts_the_rest(length: int, room: int, keeps_end: bool) -> None:
    fit = FitPolicy(truncation=Truncation.TRUNCATE, keeps_end=keeps_end).fit(length, room)
    assert fit is not None
    ((start, stop),) = fit.spans
    assert stop - start + fit.truncated_tokens == length
    assert stop - start == min(length, room)
    assert (stop == length) if keeps_end else (start == 0)


def test_skip_and_error_do_not_cut() -> None:
    for truncation in (Truncation.SKIP, Truncation.ERROR):
        policy = FitPolicy(truncation=truncation)
        assert policy.fit(11, 10) is None
        assert policy.fit(10, 10) is not None


@given(lengths, lengths, st.integers(2, 200))
def test_longest_first_fills_the_room_and_never_cuts_the_shorter_below_the_longer(a: int, b: int, room: int) -> None:
    kept_a, kept_b = longest_first(a, b, room)
    assert 0 <= kept_a <= a
    assert 0 <= kept_b <= b
    assert kept_a + kept_b == min(a + b, room)
    if kept_a < a and kept_b < b:
        assert abs(kept_a - kept_b) <= 1
