"""The demonstration: real text, an embedded model, the same work done five ways, then the main job into a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setpoint.demo.figures import Work, conclusion
from setpoint.demo.race import Result, race
from setpoint.demo.ways import PIPELINE_BATCH, PipelineLaps, RunnerLaps, by_length, in_order
from setpoint.domain.row import RowInput
from setpoint.domain.task import Task
from setpoint.errors import SetpointError
from setpoint.measure.clock import MonotonicClock
from setpoint.runners.base import Runner
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.operations import encoder_flops
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.pipeline_way import PipelineWay
from setpoint.runners.encoder.runner import EncoderRunner, load_encoder
from setpoint.runners.probe import measure_gemm_peak
from setpoint.runners.texts import mixed_texts
from setpoint.score.job import run_job
from setpoint.score.plan import JobPlan
from setpoint.score.progress import Reporter
from setpoint.score.sources import from_iterable
from setpoint.score.summary import JobReport
from setpoint.score.target import make_target

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
NUM_TIMED = 200
NUM_TEXTS = 600
PACKED_TOKENS = 2_048
_FEWEST_TEXTS = 50
_PEAK_SECONDS = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the demonstration measured and made."""

    results: Sequence[Result]
    work: Work
    peaks: Mapping[str, float | None]
    sentence: str
    worst_cosine: float
    chosen: Mapping[str, Any]
    notes: Sequence[str]


def compare(*, rounds: int, tick: Callable[[str], None]) -> tuple[Outcome, EncoderRunner, list[str]]:
    """Time the ways on the first texts; returns the chosen runner and all texts, too.

    Raises SetpointError where Python was installed without the sources of its library.
    """
    tick("gathering the texts")
    texts = mixed_texts(NUM_TEXTS)
    if len(texts) < _FEWEST_TEXTS:
        raise SetpointError(
            "this Python has no sources of its standard library, whose docstrings are the demonstration's texts; "
            "try another Python, or score a file of your own with setpoint score"
        )
    timed = texts[:NUM_TIMED]
    tick("loading the model and measuring what runs it fastest here")
    options = EncoderOptions(model=MODEL, task=Task.FEATURE_EXTRACTION)
    sample = [RowInput(text=text) for text in timed]
    chosen = load_encoder(options, sample=sample)
    packed = load_encoder(
        EncoderOptions(
            model=MODEL,
            task=Task.FEATURE_EXTRACTION,
            backend="torch",
            dtype="float32",
            max_batch_tokens=PACKED_TOKENS,
        ),
        sample=sample,
    )
    lengths = _lengths(chosen, timed)
    model = load_model(options)
    pipeline = PipelineWay(model)
    ways: list[PipelineLaps | RunnerLaps] = [
        PipelineLaps("one at a time", pipeline.embed, timed, in_order(len(timed), 1)),
        PipelineLaps(f"{PIPELINE_BATCH} as they come", pipeline.embed, timed, in_order(len(timed), PIPELINE_BATCH)),
        PipelineLaps(f"{PIPELINE_BATCH} of like length", pipeline.embed, timed, by_length(lengths, PIPELINE_BATCH)),
        RunnerLaps("packed, no padding", packed, timed),
        RunnerLaps("chosen by measuring", chosen, timed),
    ]
    results = race(ways, num_texts=len(timed), clock=MonotonicClock(), laps=rounds, tick=tick)
    tick("measuring the limit of matrix products")
    work = Work(lengths=lengths, flops=encoder_flops(model))
    peaks = {dtype: measure_gemm_peak(dtype, seconds=_PEAK_SECONDS) for dtype in {way.dtype for way in ways}}
    outcome = Outcome(
        results=results,
        work=work,
        peaks=peaks,
        sentence=conclusion(results, work),
        worst_cosine=min(_cosines(ways[0].vectors, way.vectors) for way in ways[1:]),
        chosen=chosen.facts,
        notes=tuple(dict.fromkeys((*packed.notes, *chosen.notes))),
    )
    packed.close()
    return outcome, chosen, texts


def score_all(runner: Runner, texts: Sequence[str], output: Path, reporter: Reporter) -> JobReport:
    """The main job: every text into a Parquet file."""
    source = from_iterable([{"text": text} for text in texts])
    plan = JobPlan(target=make_target(output), overwrite=True, restart=True)
    return run_job(source, runner, plan, reporter=reporter)


def _lengths(runner: Runner, texts: Sequence[str]) -> list[int]:
    rows = runner.encode([RowInput(text=text) for text in texts])
    return [getattr(row, "num_tokens", 0) for row in rows]


def _cosines(vectors: Sequence[Any], others: Sequence[Any]) -> float:
    """The worst cosine of all texts: the ways do the same work, or the race means nothing."""
    import numpy as np

    a, b = np.stack(vectors).astype(np.float64), np.stack(others).astype(np.float64)
    return float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min())
