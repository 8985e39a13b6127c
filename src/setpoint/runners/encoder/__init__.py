"""Transformers encoders: one pass a row, any task, two kinds of executors."""
