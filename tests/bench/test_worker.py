"""Worker processes: answers, errors, time-outs, and nothing left behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.worker import Worker, WorkerFailed

SCRIPT = """
import json, os, subprocess, sys, time
for line in sys.stdin:
    request = json.loads(line)
    op = request.pop("op")
    if op == "stop":
        break
    if op == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print("child", child.pid, file=sys.stderr, flush=True)
        time.sleep(60)
    if op == "die":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    answer = {"error": "ValueError: no"} if op == "fail" else {"ok": request}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker("echo", [sys.executable, "-c", SCRIPT], folder=tmp_path, log=tmp_path / "log")
    yield made
    made.stop()
    assert not made.is_alive


def test_a_request_gets_its_answer_and_an_error_leaves_the_worker_alive(worker: Worker) -> None:
    assert worker.ask("echo", timeout_s=20, a=1) == {"a": 1}
    with pytest.raises(WorkerFailed, match="echo: ValueError: no"):
        worker.ask("fail", timeout_s=20)
    assert worker.ask("echo", timeout_s=20, b="ü") == {"b": "ü"}


def test_a_worker_that_dies_is_told_with_the_end_of_its_log(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match=r"died at 'die'.*out of luck"):
        worker.ask("die", timeout_s=20)
    with pytest.raises(WorkerFailed, match="not running"):
        worker.ask("echo", timeout_s=20)


def test_a_worker_that_does_not_answer_is_ended_with_its_children(worker: Worker, tmp_path: Path) -> None:
    worker.ask("echo", timeout_s=20)
    begin = time.monotonic()
    with pytest.raises(WorkerFailed, match="did not answer 'hang' within 2 s"):
        worker.ask("hang", timeout_s=2)
    assert time.monotonic() - begin < 15
    assert not worker.is_alive
    child = int((tmp_path / "log").read_text().split()[1])
    assert _is_gone(child)


def test_a_stopped_worker_is_gone(tmp_path: Path) -> None:
    made = Worker("echo", [sys.executable, "-c", SCRIPT], folder=tmp_path, log=tmp_path / "log")
    made.ask("echo", timeout_s=20)
    made.stop()
    assert not made.is_alive
    made.stop()  # again does no harm


def _is_gone(pid: int) -> bool:
    """Whether it ended (a zombie that nobody has waited for counts as ended)."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        status = Path(f"/proc/{pid}/status")
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if status.exists() and "State:\tZ" in status.read_text():
            return True
        time.sleep(0.05)
    return False
