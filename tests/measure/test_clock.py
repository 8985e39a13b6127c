import threading

import pytest

from setpoint.measure.clock import Clock, FakeClock, MonotonicClock


def test_the_fake_clock_stands_still_until_advanced():
    clock = FakeClock(start_ns=7)
    assert clock.now_ns() == clock.now_ns() == 7
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now_ns() == 1_500_000_007


@pytest.mark.parametrize("duration_s", [-1e-9, float("nan"), float("inf")])
def test_the_fake_clock_refuses_to_go_back_or_nowhere(duration_s):
    clock = FakeClock()
    with pytest.raises(ValueError, match="finite duration"):
        clock.advance(duration_s)
    assert clock.now_ns() == 0


def test_the_fake_clock_loses_nothing_between_threads():
    clock = FakeClock()
    threads = [threading.Thread(target=lambda: [clock.advance(1e-9) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_ns() == 2_000


def test_the_monotonic_clock_never_decreases():
    clock: Clock = MonotonicClock()
    readings = [clock.now_ns() for _ in range(1_000)]
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]
