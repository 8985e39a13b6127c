"""Jobs as processes: killed at random moments, interrupted, hung, and measured."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(folder: Path, *words: str, seconds: float = 0.01, window_rows: int = 40) -> list[str]:
    arguments = ["score", str(folder / "in.csv"), "--task", "feature-extraction", "-o", str(folder / "out.parquet")]
    model = [] if "--model" in words else ["--model", "fake"]
    return [sys.executable, "-m", "tests.score.fakejob", str(seconds), str(window_rows), *arguments, *model, *words]


def start(folder: Path, *words: str, **options: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder, *words, **options),  # type: ignore[arg-type]
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def write_input(folder: Path, num_rows: int) -> None:
    folder.mkdir(exist_ok=True)
    rows = (f"{i}," if i % 50 == 13 else f"{i},row {i} " + "word " * (i % 9) for i in range(num_rows))
    lines = ["id,text", *rows]
    (folder / "in.csv").write_text("\n".join(lines) + "\n")


def num_shards(folder: Path) -> int:
    return len(list((folder / "out.parquet.parts").glob("part-*.arrow")))


def wait_for_shards(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while process.poll() is None and num_shards(folder) < count and time.monotonic() < deadline:
        time.sleep(0.002)


@pytest.mark.slow
def test_killed_at_random_moments_until_done_gives_what_one_clean_run_gives(tmp_path: Path) -> None:
    clean, killed = tmp_path / "clean", tmp_path / "killed"
    for folder in (clean, killed):
        write_input(folder, 800)
    code, _, err = finish(start(clean, "--quiet"))
    assert code == 0, err
    chance = random.Random(7)
    num_kills = 0
    for _ in range(40):
        process = start(killed, "--quiet")
        wait_for_shards(process, killed, num_shards(killed) + chance.randrange(6))
        time.sleep(chance.random() * 0.03)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            num_kills += 1
        code, _, err = finish(process)
        if code == 0:
            break
        assert code == -signal.SIGKILL, err
    assert num_kills >= 3
    table = pq.read_table(killed / "out.parquet")
    assert table.equals(pq.read_table(clean / "out.parquet"))
    assert table["id"].to_pylist() == [str(i) for i in range(800)]
    ledgers = [json.loads((folder / "out.parquet.ledger.json").read_text()) for folder in (clean, killed)]
    assert ledgers[0]["ledger"]["rows_failed"] == ledgers[1]["ledger"]["rows_failed"] == 16
    assert sorted(os.listdir(killed)) == ["in.csv", "out.parquet", "out.parquet.ledger.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    write_input(tmp_path, 2_000)
    process = start(tmp_path, seconds=0.03)
    wait_for_shards(process, tmp_path, 2)
    process.send_signal(number)
    begin = time.monotonic()
    code, _, err = finish(process)
    assert time.monotonic() - begin < 5
    assert code == 130
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert f"stopped by {name}; " in err
    assert "rows are finished and kept in" in err
    assert "run the same command again to go on" in err
    assert "Traceback" not in err
    assert num_shards(tmp_path) >= 2
    code, out, _ = finish(start(tmp_path, "--json", seconds=0.0))
    assert code == 0
    report = json.loads(out)
    assert report["rows_resumed"] >= 80
    assert report["ledger"]["rows"] == 2_000


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    write_input(tmp_path, 100)
    process = start(tmp_path, "--model", "hang")
    assert process.stderr is not None
    while "running on" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    code, _, err = finish(process)
    assert code == 130
    assert time.monotonic() - begin < 3
    assert "stopped at once" in err


def test_a_hung_model_does_not_hang_the_process(tmp_path: Path) -> None:
    write_input(tmp_path, 100)
    begin = time.monotonic()
    code, _, err = finish(start(tmp_path, "--model", "hang", "--batch-timeout", "500ms"))
    assert code == 1
    assert "has not come back" in err
    assert "--batch-timeout" in err
    assert time.monotonic() - begin < 30


def test_two_jobs_do_not_share_an_output(tmp_path: Path) -> None:
    write_input(tmp_path, 2_000)
    first = start(tmp_path, seconds=0.05)
    wait_for_shards(first, tmp_path, 1)
    code, _, err = finish(start(tmp_path))
    assert code == 1
    assert f"another job (process {first.pid}) is writing" in err
    first.send_signal(signal.SIGKILL)
    finish(first)


def test_lines_are_written_where_there_is_no_terminal(tmp_path: Path) -> None:
    write_input(tmp_path, 100)
    code, out, err = finish(start(tmp_path))
    assert code == 0
    assert "loading fake" in err
    assert "running on torch float32, at most 256 tokens a batch, 2 streams" in err
    assert "out.parquet: 100 rows in" in out
    assert "\x1b" not in out + err


MEASURE = """
import resource, sys
import numpy as np
from setpoint.domain.batch import BatchShape
from setpoint.runners.fake import FakeRunner
from setpoint.runners.base import EncodedRow, TokenSequence
from setpoint.score.job import run_job
from setpoint.score.plan import JobPlan
from setpoint.score.sources import from_iterable
from setpoint.score.target import make_target

ids = np.arange(10, dtype=np.int32)

class Light(FakeRunner):  # the fake's own tokenizing and output cost more than the job
    def encode(self, rows):
        return [EncodedRow(sequences=(TokenSequence(ids),), num_tokens=10, extra=((1,), None, "")) for _ in rows]

    def forward(self, batch):
        return [np.zeros(8, dtype=np.float32)] * len(batch)

num_rows = int(sys.argv[1])
rows = ({"id": i, "text": f"a short row {i}"} for i in range(num_rows))
runner = Light(shape=BatchShape(max_batch_tokens=4096, num_streams=2))
report = run_job(from_iterable(rows), runner, JobPlan(target=make_target(sys.argv[2])))
assert report.ledger.num_rows == num_rows
print(report.performance.peak_memory_bytes)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    def peak_bytes(num_rows: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(num_rows), str(tmp_path / f"{num_rows}.parquet")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    # From some 100,000 rows on all windows and a whole row group are in memory at once; then nothing grows any more.
    small, large = peak_bytes(100_000), peak_bytes(300_000)
    assert large - small < 32 * 2**20, f"{small / 2**20:.0f} MiB for 100,000 rows, {large / 2**20:.0f} for 300,000"
