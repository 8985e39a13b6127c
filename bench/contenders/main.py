"""A worker: `python -m contenders.main NAME`. Reads one JSON request a line on stdin, answers with one JSON line.

Requests: hello, prepare, run, release, stop, and whatever else the contender offers in `calls`. Ends when stdin does,
so it never outlives its parent. What libraries print goes to stderr, which the parent keeps as a log.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

CONTENDERS = {
    "setpoint": "setpoint_job",
    "transformers": "transformers_pipeline",
    "sentence-transformers": "sentence_encode",
    "sentence-transformers-onnx": "sentence_encode",
    "sentence-transformers-openvino": "sentence_encode",
    "openvino": "openvino_loop",
    "onnxruntime": "onnxruntime_loop",
    "ctranslate2": "ctranslate2_loop",
}


class Worker:
    """Keeps loaded scorers by model, dtype and setting."""

    def __init__(self, name: str) -> None:
        module = importlib.import_module(f"contenders.{CONTENDERS[name]}")
        self.contender = module.make(name)
        self.scorers: dict[str, Any] = {}

    def hello(self, cores: int) -> dict[str, Any]:
        """Versions, dtypes, and the settings worth trying for each."""
        dtypes = list(self.contender.dtypes())
        return {
            "versions": dict(self.contender.versions()),
            "settings": {dtype: list(self.contender.settings(dtype, cores)) for dtype in dtypes},
        }

    def prepare(self, **request: Any) -> dict[str, Any]:
        """Load, convert and compile; nothing of it counts."""
        begin = time.perf_counter()
        self._scorer(request)
        return {"seconds": time.perf_counter() - begin}

    def run(self, texts: str, vectors: str | None = None, **request: Any) -> dict[str, Any]:
        """Time one pass over the texts; with `vectors`, save what came out as a .npy file."""
        import numpy as np

        scorer = self._scorer(request)
        items = _texts(texts)
        scorer.stage(items)
        begin = time.perf_counter()
        result = scorer.score(items)
        seconds = time.perf_counter() - begin
        outcome = scorer.collect(result)
        if outcome.vectors.ndim != 2 or len(outcome.vectors) != len(items):
            raise RuntimeError(f"{len(items)} texts went in and {outcome.vectors.shape} came out")
        if vectors is not None:
            np.save(vectors, outcome.vectors.astype(np.float32))
        return {"seconds": seconds, "processed_tokens": outcome.processed_tokens}

    def release(self) -> dict[str, Any]:
        """Forget every loaded model."""
        self.scorers.clear()
        self.contender.release()
        return {}

    def _scorer(self, request: dict[str, Any]) -> Any:
        from contenders.base import PrepareOptions

        key = json.dumps([request["model"], request["dtype"], request["setting"]], sort_keys=True)
        if key not in self.scorers:
            options = PrepareOptions(
                max_length=request["max_length"],
                cores=request["cores"],
                cache=Path(request["cache"]),
                calibration=_texts(request["calibration"]),
            )
            self.scorers[key] = self.contender.prepare(
                Path(request["model"]), request["dtype"], request["setting"], options
            )
        return self.scorers[key]


@lru_cache(maxsize=4)
def _texts(path: str) -> list[str]:
    from contenders.base import read_texts

    return read_texts(path)


def main() -> int:
    """Answer requests until stdin ends or a stop comes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # usage reports stay off
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("op")
        if name == "stop":
            break
        try:
            worker = worker or Worker(sys.argv[1])
            call = getattr(worker, name, None) or worker.contender.calls[name]
            answer = {"ok": call(**request)}
        except Exception as error:  # noqa: BLE001 - whatever a library raises is told to the parent, which decides
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
