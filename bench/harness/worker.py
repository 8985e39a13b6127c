"""A long-lived worker process behind JSON lines: every wait is bounded, and nothing of it is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_STOP_S = 10.0
_LOG_TAIL_CHARACTERS = 400


class WorkerFailed(Exception):
    """The worker answered with an error, died, or did not answer in time."""


class Worker:
    """One process; requests are answered one after another. A late or dead worker is killed, and says so."""

    def __init__(self, name: str, command: Sequence[str], *, folder: Path, log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("w") as stream:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                encoding="utf-8",
                env=_environment(),
                start_new_session=True,  # a signal to its group reaches whatever it started
            )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"answers-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ask(self, op: str, *, timeout_s: float, **request: Any) -> Any:
        """Send a request and wait for its answer. Raises WorkerFailed; after a time-out the process is gone."""
        if not self.is_alive:
            raise WorkerFailed(f"{self.name} is not running{self._tail()}")
        try:
            self._process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.kill()
            raise WorkerFailed(f"{self.name} did not answer {op!r} within {timeout_s:.0f} s{self._tail()}") from None
        except BrokenPipeError:
            line = None
        if line is None:
            self.kill()
            raise WorkerFailed(f"{self.name} died at {op!r}{self._tail()}")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self.name}: {answer['error']}")
        return answer["ok"]

    def stop(self) -> None:
        """Ask it to end, and make sure that it does."""
        if self.is_alive:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self._process.stdin.write(json.dumps({"op": "stop"}) + "\n")
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        self.kill()

    def kill(self) -> None:
        """End it and everything in its group now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_STOP_S)
        self._reader.join(_STOP_S)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _tail(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return f"; its log ends: {text[-_LOG_TAIL_CHARACTERS:]}" if text else ""


def _environment() -> dict[str, str]:
    """Offline, and without anybody's usage reports."""
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "true",
        "TRANSFORMERS_VERBOSITY": "error",
    }
