"""Setpoint: measure the throughput-latency curve of a model that you run, choose a point on it, hold it."""

from typing import TYPE_CHECKING, Any

from setpoint._version import __version__

if TYPE_CHECKING:
    from setpoint.api import RowsFailedWarning, Scorer, load

__all__ = ["RowsFailedWarning", "Scorer", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Load what needs torch only when it is asked for: `import setpoint` stays light."""
    if name in ("RowsFailedWarning", "Scorer", "load"):
        import setpoint.api

        return getattr(setpoint.api, name)
    raise AttributeError(f"module 'setpoint' has no attribute {name!r}")
