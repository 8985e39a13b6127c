"""One module a task: rows to sequences (`encode`), outputs to results (`decode`)."""
