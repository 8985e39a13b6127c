"""Setpoint: measure the throughput-latency curve of a model that you run, choose a point on it, hold it."""

from setpoint._version import __version__

__all__ = ["__version__"]
