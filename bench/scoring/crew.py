"""The workers of one run: started side by side, asked one at a time, always stopped."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.worker import Worker, WorkerFailed

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
PEERS_FOLDER = ROOT / ".peers"

OURS = "setpoint"
PIPELINE = "transformers"
SENTENCE = "sentence-transformers"
FRONT_RUNNER = "openvino"  # the fastest of the hand-written loops on CPUs: the one to beat
# Those that the product's own environment has, then those that have one of their own.
HOME_PEERS = (PIPELINE, SENTENCE, FRONT_RUNNER)
VENV_PEERS = ("onnxruntime", "ctranslate2", "sentence-transformers-onnx", "sentence-transformers-openvino")

_START_S = 240.0
_PREPARE_S = 1800.0
_RUN_BASE_S = 120.0
_RUN_S_PER_TEXT = 8.0  # no contender is that slow: a worker that takes longer hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is asked to compute: everything that it keeps a loaded model by, and the limits."""

    contender: str
    model: Path
    dtype: str
    setting: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Crew:
    """Workers by name, what they said of themselves, and who is missing and why."""

    cores: int
    cache: Path
    max_length: int
    calibration: Path
    workers: dict[str, Worker] = field(default_factory=dict)
    hellos: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def start(self, names: Sequence[str]) -> None:
        """Start them all at once; a peer that does not start is missing, our own worker raises WorkerFailed."""
        logs = self.cache / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for name in names:
            python = _python_of(name)
            if python is None:
                self.missing[name] = "not installed; `make peers` does"
                continue
            command = [str(python), "-m", "contenders.main", name]
            self.workers[name] = Worker(name, command, folder=BENCH, log=logs / f"{name}.log")
        with ThreadPoolExecutor(max(1, len(self.workers))) as pool:
            for name, problem in zip(list(self.workers), pool.map(self._greet, list(self.workers))):
                if problem is None:
                    continue
                if name == OURS:
                    raise WorkerFailed(problem)
                self.drop(name, problem)

    def drop(self, name: str, why: str) -> None:
        """Go on without a worker."""
        self.missing[name] = why
        self.hellos.pop(name, None)
        worker = self.workers.pop(name, None)
        if worker is not None:
            worker.stop()

    def settings(self, name: str, dtype: str) -> list[Mapping[str, Any]]:
        """What the contender thinks worth trying in a dtype; none where it lacks it."""
        return list(self.hellos[name]["settings"].get(dtype, ())) if name in self.hellos else []

    def call(self, name: str, op: str, *, timeout_s: float = _PREPARE_S, **request: Any) -> Any:
        """Ask a worker for something of its own."""
        return self.workers[name].ask(op, timeout_s=timeout_s, **request)

    def prepare(self, job: Job) -> float:
        """Have a model loaded and compiled; seconds that it took. Raises WorkerFailed."""
        return float(self.call(job.contender, "prepare", **self._request(job))["seconds"])

    def run(self, job: Job, texts: Path, *, num_texts: int, vectors: Path | None = None) -> dict[str, Any]:
        """Time one pass: `seconds`, `processed_tokens`. Raises WorkerFailed."""
        return self.call(  # type: ignore[no-any-return]
            job.contender,
            "run",
            timeout_s=_RUN_BASE_S + _RUN_S_PER_TEXT * num_texts,
            texts=str(texts),
            vectors=None if vectors is None else str(vectors),
            **self._request(job),
        )

    def release(self) -> None:
        """Have every worker forget its models; one that does not answer any more is dropped."""
        for name in list(self.workers):
            try:
                self.call(name, "release")
            except WorkerFailed as error:
                self.drop(name, str(error))

    def stop(self) -> None:
        """End every worker."""
        for worker in self.workers.values():
            worker.stop()
        self.workers.clear()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _greet(self, name: str) -> str | None:
        try:
            self.hellos[name] = self.call(name, "hello", timeout_s=_START_S, cores=self.cores)
        except WorkerFailed as error:
            return str(error)
        return None

    def _request(self, job: Job) -> dict[str, Any]:
        return {
            "model": str(job.model),
            "dtype": job.dtype,
            "setting": dict(job.setting),
            "max_length": self.max_length,
            "cores": self.cores,
            "cache": str(self.cache),
            "calibration": str(self.calibration),
        }


def _python_of(name: str) -> Path | None:
    """The interpreter that has the contender's library; None where its environment was not made."""
    if name not in VENV_PEERS:
        return Path(sys.executable)
    folder = PEERS_FOLDER / name
    python = folder / "bin" / "python"
    return python if python.exists() and (folder / "requirements.txt").exists() else None
