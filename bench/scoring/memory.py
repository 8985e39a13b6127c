"""Peak memory of a job against its number of rows: `python -m scoring.memory ROWS` runs one and prints JSON.

The model is a stand-in whose cost is nothing (a real one would take hours for a million rows and hold the same memory
for ten rows as for ten million); input, order, shards, digests, merge and ledger are the product's own.
"""

from __future__ import annotations

import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent.parent
_WORDS = ("order", "refund", "late", "parcel", "thanks", "broken", "again", "when", "invoice", "please")
_TIMEOUT_S = 900.0


def measure_peak(rows: int) -> dict[str, Any]:
    """Run a job over so many short rows in a process of its own: `rows`, `peak_bytes`, `seconds`, `rows_per_s`."""
    done = subprocess.run(
        [sys.executable, "-m", "scoring.memory", str(rows)],
        cwd=BENCH,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the job over {rows} rows failed: {done.stderr.strip()[-400:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def write_rows(path: Path, rows: int) -> None:
    """A CSV of short rows, written as it is made."""
    rng = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text"])
        for number in range(rows):
            writer.writerow([number, " ".join(rng.choices(_WORDS, k=rng.randint(2, 8)))])


def run(rows: int, folder: Path) -> dict[str, Any]:
    """The job, in this process."""
    from setpoint.domain.batch import BatchShape
    from setpoint.runners.fake import FakeRunner
    from setpoint.score.inputs import InputPlan
    from setpoint.score.job import run_job
    from setpoint.score.plan import JobPlan
    from setpoint.score.sources import open_source
    from setpoint.score.target import make_target

    write_rows(folder / "rows.csv", rows)
    runner = FakeRunner(shape=BatchShape(max_batch_tokens=4096), record_batches=False)
    begin = time.perf_counter()
    plan = JobPlan(target=make_target(str(folder / "out.parquet")), inputs=InputPlan(column="text"))
    report = run_job(open_source(str(folder / "rows.csv")), runner, plan)
    seconds = time.perf_counter() - begin
    if report.ledger.num_rows != rows or report.ledger.num_failed:
        raise RuntimeError(f"{report.ledger.num_rows} rows came out, {report.ledger.num_failed} failed")
    return {"rows": rows, "peak_bytes": _peak_bytes(), "seconds": seconds, "rows_per_s": rows / seconds}


def _peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would count what the parent held when it forked
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(run(int(sys.argv[1]), Path(made))))
