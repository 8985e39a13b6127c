"""Batch jobs over files: sources in, atomic shards out, nothing lost."""
