"""What the benchmarks share: worker processes, texts, work in FLOPs, paired ratios, tables and the last JSON line."""
