"""Setpoint: the whole job from a Parquet file to a Parquet file, and the bare runner without any of that."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contenders.base import Outcome, PlainScorer, PrepareOptions, Setting, run_batches
from setpoint.domain.row import RowFailure, RowInput

JOB: Setting = {"what": "job"}
RUNNER: Setting = {"what": "runner"}


class SetpointJob:
    """Warm runners by model and dtype; converted models and measured choices are kept on disk, as for users."""

    def __init__(self) -> None:
        self._runners: dict[tuple[str, str], Any] = {}
        self.calls: Mapping[str, Any] = {
            "environment": environment,
            "gemm_peak": gemm_peak,
            "lengths": lengths,
            "facts": self.facts,
        }

    def versions(self) -> Mapping[str, str]:
        """Of Setpoint."""
        from setpoint._version import __version__

        return {"setpoint": __version__}

    def dtypes(self) -> Sequence[str]:
        """float32, what the machine has besides, and `auto`."""
        from setpoint.runners.encoder.openvino import supported_dtypes

        return [*(dtype for dtype in ("float32", "bfloat16", "int8") if dtype in supported_dtypes()), "auto"]

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """Two things to time, not two settings: how it runs is what it chooses itself."""
        return (JOB, RUNNER)

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> Any:
        """Load, choose and calibrate, all on texts like the ones to come."""
        runner = self._runner(model, dtype, setting, options)
        if setting["what"] == JOB["what"]:
            return JobScorer(runner, options.cache)
        return PlainScorer(lambda texts: run_bare(runner, texts))

    def release(self) -> None:
        """Close the runners."""
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

    def facts(self, model: str, dtype: str) -> dict[str, Any]:
        """What was chosen for a loaded model, and what was said about it."""
        runner = self._runners[model, dtype]
        return {"notes": list(runner.notes), "facts": dict(runner.facts)}

    def _runner(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> Any:
        """Loaded once a dtype; what the setting says besides `what` are options that a user could give, too."""
        from setpoint.domain.task import Task
        from setpoint.runners.encoder.options import EncoderOptions
        from setpoint.runners.encoder.runner import load_encoder

        key = (str(model), dtype)
        if key not in self._runners:
            os.environ["SETPOINT_CACHE"] = str(options.cache / "setpoint")
            told = EncoderOptions(
                model=str(model),
                task=Task.FEATURE_EXTRACTION,
                dtype=dtype,
                max_length=options.max_length,
                threads=options.cores,
                **{name: value for name, value in setting.items() if name != "what"},
            )
            self._runners[key] = load_encoder(told, sample=[RowInput(text=text) for text in options.calibration])
        return self._runners[key]


class JobScorer:
    """`setpoint score`, in process and with a warm runner: files, manifest, order and ledger included."""

    def __init__(self, runner: Any, folder: Path) -> None:
        self._runner = runner
        self._folder = folder / "jobs"
        self._input: Path | None = None
        self._staged: Sequence[str] | None = None

    def stage(self, texts: Sequence[str]) -> None:
        """Write the input file, once for the same list."""
        import pyarrow as pa
        from pyarrow import parquet

        if self._staged is texts:
            return
        self._folder.mkdir(exist_ok=True)
        self._input = self._folder / f"{uuid.uuid4().hex}.parquet"
        parquet.write_table(pa.table({"id": pa.array(range(len(texts))), "text": list(texts)}), self._input)
        self._staged = texts

    def score(self, texts: Sequence[str]) -> Any:
        """The job, from opening the input to the finished output and its ledger."""
        from setpoint.score.inputs import InputPlan
        from setpoint.score.job import run_job
        from setpoint.score.plan import JobPlan
        from setpoint.score.sources import open_source
        from setpoint.score.target import make_target

        target = make_target(str(self._folder / f"{uuid.uuid4().hex}-out.parquet"))
        return run_job(
            open_source(str(self._input)), self._runner, JobPlan(target=target, inputs=InputPlan(column="text"))
        )

    def collect(self, result: Any) -> Outcome:
        """Read the output back, and remove it. Raises RuntimeError for a row that failed or is out of order."""
        from pyarrow import parquet

        output = Path(result.output)
        table = parquet.read_table(output)
        output.unlink()
        output.with_name(output.name + ".ledger.json").unlink()
        if result.ledger.num_failed or table["id"].to_pylist() != list(range(table.num_rows)):
            raise RuntimeError(f"{result.ledger.num_failed} rows failed, or rows are out of order")
        column = table["embedding"].combine_chunks()
        vectors = column.flatten().to_numpy().reshape(table.num_rows, -1)
        useful = sum(table["num_tokens"].to_pylist())
        return Outcome(vectors=vectors, processed_tokens=round(useful / (1.0 - result.performance.padding_waste)))


def run_bare(runner: Any, texts: Sequence[str]) -> Outcome:
    """The runner alone, everything in memory: tokenize, batch, compute, read the results."""
    from setpoint.batching.pack import form_batches

    rows = runner.encode([RowInput(text=text) for text in texts])
    failed = [row for row in rows if isinstance(row, RowFailure)]
    if failed:
        raise RuntimeError(f"{len(failed)} rows failed: {failed[0]}")
    sequences = [row.sequences[0] for row in rows]
    outputs: list[Any] = [None] * len(sequences)

    def compute(batch: np.ndarray) -> None:
        for position, output in zip(batch, runner.forward([sequences[i] for i in batch])):
            outputs[position] = output

    counts = [len(sequence) for sequence in sequences]
    run_batches(compute, form_batches(counts, runner.shape), streams=runner.shape.num_streams)
    results = [runner.decode(row, [output]) for row, output in zip(rows, outputs)]
    return Outcome(vectors=np.stack([result.values["embedding"] for result in results]))


def environment() -> dict[str, Any]:
    """Where this was measured."""
    from setpoint.measure.environment import read_environment

    return read_environment().as_dict()


def gemm_peak(dtype: str, seconds: float, cores: int) -> float | None:
    """The machine's fastest matrix product in a dtype, operations per second."""
    from setpoint.runners.probe import measure_gemm_peak

    return measure_gemm_peak(dtype, seconds=seconds, num_threads=cores)


def lengths(model: str, texts: str, max_length: int) -> list[int]:
    """Useful tokens of every text."""
    from contenders.base import FastTokenizer, read_texts

    return [len(ids) for ids in FastTokenizer(Path(model), max_length=max_length).encode(read_texts(texts))]


def make(name: str) -> SetpointJob:
    """The contender."""
    return SetpointJob()
