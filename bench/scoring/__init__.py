"""The parts of the benchmark of scoring: who takes part, tuning, rounds, ratios and targets, memory."""
