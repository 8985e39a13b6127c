"""int8 by calibration: weights per channel, activations by what the user's own rows show, and an audit of the outcome.

NNCF inserts the quantisers; SmoothQuant (Xiao et al., 2023, arXiv:2211.10438) first moves outliers of the activations
into the weights. How much to move is the one setting that quality depends on, so a few are tried and the one that
stays closest to float32 on held-out rows is kept.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from setpoint.errors import MissingDependency, UsageError
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.executor import Executor
from setpoint.runners.encoder.graph import cached_graph, graph_key, input_names, load_graph, quiet_tracing, save_graph
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.openvino import OpenVINOExecutor

SMOOTHING = (0.5, 0.35, 0.65)  # share of an outlier that moves into the weights; the first is enough for most models
GOOD_COSINE = 0.99  # every held-out sequence at least this close: no further setting is tried
_CALIBRATION_SEQUENCES = 96
_AUDIT_SEQUENCES = 200
_LONGEST_CALIBRATION_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """How int8 differs from float32 on a sample of the user's own rows.

    Cosine similarity of embeddings or token states; for classifiers and rankings the largest change of a probability,
    and how many sequences (for token classification: tokens) get another label.
    """

    num_sequences: int
    min_cosine: float | None = None
    mean_cosine: float | None = None
    max_probability_change: float | None = None
    mean_probability_change: float | None = None
    num_labels: int | None = None
    num_label_flips: int | None = None

    def __str__(self) -> str:
        if self.min_cosine is not None and self.mean_cosine is not None:
            return (
                f"int8 against float32 on {self.num_sequences} of your rows: cosine {self.mean_cosine:.4f} on average, "
                f"{self.min_cosine:.4f} at worst"
            )
        return (
            f"int8 against float32 on {self.num_sequences} of your rows: {self.num_label_flips} of {self.num_labels} "
            f"labels differ; a probability changes by {self.mean_probability_change:.4f} on average, "
            f"{self.max_probability_change:.4f} at most"
        )

    @property
    def worst(self) -> float:
        """One number to compare settings by: higher is better, 1 is equal to float32."""
        if self.min_cosine is not None:
            return self.min_cosine
        return 1.0 - (self.max_probability_change or 0.0)

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def quantized_graph(model: EncoderModel, sample: Sequence[TokenSequence], *, num_threads: int) -> tuple[Any, float]:
    """The model's int8 graph and the smoothing that was chosen; calibrated on `sample`, or from the cache.

    Raises UsageError without a sample, MissingDependency without nncf.
    """
    if not sample:
        raise UsageError("int8 is calibrated on your own rows, and there are none; choose another dtype")
    calibration, held_out = split_sample(sample)
    digest = _digest(calibration)
    keys = {alpha: graph_key(model, kind="int8", smoothing=alpha, calibration=digest) for alpha in SMOOTHING}
    for alpha in SMOOTHING:  # only the chosen one is ever saved
        graph = cached_graph(keys[alpha])
        if graph is not None:
            return graph, alpha
    reference = OpenVINOExecutor(model, load_graph(model), dtype="float32", num_threads=num_threads, num_streams=1)
    best: tuple[float, float, Any] | None = None
    for alpha in SMOOTHING:
        graph = _quantize(model, calibration, alpha)
        executor = OpenVINOExecutor(model, graph, dtype="int8", num_threads=num_threads, num_streams=1)
        worst = audit(model, executor, reference, held_out).worst
        executor.close()
        if best is None or worst > best[0]:
            best = (worst, alpha, graph)
        if worst >= GOOD_COSINE:
            break
    assert best is not None
    save_graph(best[2], keys[best[1]])
    return best[2], best[1]


def audit(model: EncoderModel, executor: Executor, reference: Executor, sample: Sequence[TokenSequence]) -> Audit:
    """Compare two executors on the same sequences, one at a time."""
    pairs = [(executor.forward([item])[0], reference.forward([item])[0]) for item in sample]
    if model.output in (OutputKind.EMBEDDING, OutputKind.TOKEN_STATES):
        cosines = np.array([_cosine(a, b) for a, b in pairs])
        return Audit(num_sequences=len(pairs), min_cosine=float(cosines.min()), mean_cosine=float(cosines.mean()))
    ours = np.concatenate([np.atleast_2d(a) for a, _ in pairs])
    theirs = np.concatenate([np.atleast_2d(b) for _, b in pairs])
    independent = model.multi_label or ours.shape[-1] == 1
    changes = np.abs(_probabilities(ours, independent) - _probabilities(theirs, independent))
    flips = ((ours > 0) != (theirs > 0)).any(-1) if independent else ours.argmax(-1) != theirs.argmax(-1)
    return Audit(
        num_sequences=len(pairs),
        max_probability_change=float(changes.max()),
        mean_probability_change=float(changes.mean()),
        num_labels=len(ours),
        num_label_flips=int(flips.sum()),
    )


def split_sample(sample: Sequence[TokenSequence]) -> tuple[list[TokenSequence], list[TokenSequence]]:
    """Calibration and audit sequences: disjoint where there are enough for both, both spread over all lengths."""
    ordered = sorted(sample, key=len)
    if len(ordered) < 8:
        return list(ordered), list(ordered)
    return _spread(ordered[::2], _CALIBRATION_SEQUENCES), _spread(ordered[1::2], _AUDIT_SEQUENCES)


def _spread(ordered: Sequence[TokenSequence], count: int) -> list[TokenSequence]:
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[int(i)] for i in np.linspace(0, len(ordered) - 1, count)]


def _digest(calibration: Sequence[TokenSequence]) -> str:
    import hashlib

    total = hashlib.blake2b(digest_size=16)
    for sequence in calibration:
        total.update(np.int64(len(sequence)).tobytes() + sequence.ids.tobytes())
    return total.hexdigest()


def _quantize(model: EncoderModel, calibration: Sequence[TokenSequence], alpha: float) -> Any:
    try:
        with quiet_tracing(), _quiet_logging():
            import nncf
    except ImportError as error:
        raise MissingDependency("nncf", extra="openvino", purpose="--dtype int8") from error
    items = [_inputs(model, sequence) for sequence in calibration]
    with quiet_tracing(), _quiet_logging():
        return nncf.quantize(
            load_graph(model).clone(),
            nncf.Dataset(items),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(items),
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=alpha)
            ),
        )


def _inputs(model: EncoderModel, sequence: TokenSequence) -> dict[str, npt.NDArray[np.int64]]:
    ids = sequence.ids[:_LONGEST_CALIBRATION_TOKENS].astype(np.int64)[None]
    types = np.zeros_like(ids)
    if sequence.type_ids is not None:
        types = sequence.type_ids[:_LONGEST_CALIBRATION_TOKENS].astype(np.int64)[None]
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
    return {name: arrays[name] for name in input_names(model)}


@contextlib.contextmanager
def _quiet_logging() -> Iterator[None]:
    """NNCF logs its progress to the terminal; a job's output is ours to write."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with _quiet_bars():
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _quiet_bars() -> Iterator[None]:
    import io

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _cosine(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """The worst cosine over the rows of two arrays [n, d] or two vectors [d]."""
    a, b = np.atleast_2d(a).astype(np.float64), np.atleast_2d(b).astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return float(((a * b).sum(-1) / np.maximum(norms, 1e-30)).min())


def _probabilities(logits: npt.NDArray[Any], independent: bool) -> npt.NDArray[Any]:
    if independent:
        result: npt.NDArray[Any] = 1 / (1 + np.exp(-logits))
        return result
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: npt.NDArray[Any] = shifted / shifted.sum(-1, keepdims=True)
    return probabilities
