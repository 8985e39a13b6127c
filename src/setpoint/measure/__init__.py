"""Clocks, statistics and the environment: how a figure becomes trustworthy."""
