"""Frozen data that everything shares. Imports nothing heavy: no torch, no pyarrow."""
