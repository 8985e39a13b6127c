"""Ctrl-C and SIGTERM: the first asks, the second ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from setpoint.errors import Interrupted

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class SignalDesk:
    """Where signals arrive. While a job runs, the first one is handed to it; at other times it raises.

    What it raises is a KeyboardInterrupt, which the libraries that load models do not take for a failure of theirs.
    """

    def __init__(self) -> None:
        self._request: Callable[[str], None] | None = None
        self._num_signals = 0
        self.name = ""  # of the first signal

    @contextmanager
    def handing_to(self, request: Callable[[str], None]) -> Iterator[None]:
        """Hand the first signal to `request`, with its name, instead of raising."""
        self._request = request
        try:
            yield
        finally:
            self._request = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal, in the main thread, between two instructions."""
        self._num_signals += 1
        name = _NAMES[signal.Signals(number)]
        if self._num_signals > 1:
            _tell(f"\nsetpoint: stopped at once by a second {name}; what was finished is kept\n")
            os._exit(Interrupted.exit_code)
        if self._request is None:
            self.name = name
            raise KeyboardInterrupt
        _tell(f"\nsetpoint: {name}: keeping what is finished (once more to stop at once)\n")
        self._request(name)


@contextmanager
def catching_signals() -> Iterator[SignalDesk]:
    """Send Ctrl-C and SIGTERM to a desk as long as the block runs. For the main thread. Raises Interrupted."""
    desk = SignalDesk()
    before = {number: signal.signal(number, desk.receive) for number in _NAMES}
    try:
        yield desk
    except KeyboardInterrupt:
        raise Interrupted(f"stopped by {desk.name or 'Ctrl-C'}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(text: str) -> None:
    # Not print: the signal may have come in the middle of one.
    os.write(2, text.encode())
