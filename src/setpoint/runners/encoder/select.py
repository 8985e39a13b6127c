"""Which executor computes a model, in which dtype, on how many streams, in batches of what size: measured here.

What the user said is kept; what was left at `auto` is measured on a sample of their rows (or, without any, on real
English text of mixed length), and remembered for this model, machine and mix of lengths. An executor counts only if it
matches the model in float32 (see `check.py`); `auto` never takes int8.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from setpoint.domain.batch import BatchShape
from setpoint.errors import MissingDependency, ModelError, UsageError
from setpoint.runners.base import TokenSequence
from setpoint.runners.cache import cache_key
from setpoint.runners.encoder.check import check_executor, check_sequences, pick_torch, reference_outputs
from setpoint.runners.encoder.choice import Candidate, RememberedChoice
from setpoint.runners.encoder.executor import Executor
from setpoint.runners.encoder.graph import describe_head
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.pace import measure_pace, sample_within
from setpoint.runners.encoder.tokens import TextTokenizer
from setpoint.runners.encoder.torch_device import choose_device
from setpoint.runners.encoder.torch_device import supported_dtypes as torch_dtypes
from setpoint.runners.machine import available_cores, cpu_model

_PASS_SECONDS = 0.8  # how long one pass over the sample may take while measuring
_SAMPLE_TEXTS = 64
_ROUNDS = 2
_STEADY = 0.87  # two measurements of the same must agree at least so well for a choice to be remembered
_BUSY = "the machine was busy while this was measured, so the choice is not remembered: the next run measures again"
_ALONE, _BATCHED = "alone_tokens_per_s", "batched_tokens_per_s"
_CPU_BUDGETS = (128, 256, 512, 1024, 2048, 4096, 8192)
_ACCELERATOR_BUDGETS = (2048, 4096, 8192, 16384, 32768, 65536)
_WORTH = 1.03  # a larger budget must be this much faster: less is noise, and smaller batches pad and wait less


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """An executor and the batches it wants.

    `notes` are sentences for the user; `facts` is JSON: what was chosen, what was measured, the audit of int8.
    """

    executor: Executor
    shape: BatchShape
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any]


def select_executor(model: EncoderModel, options: EncoderOptions, *, sample: Sequence[TokenSequence] = ()) -> Selection:
    """Choose and make the executor. `sample` is of the user's own rows, tokenized; int8 is calibrated on it.

    Raises UsageError for a combination that cannot be, MissingDependency for a backend that is not installed,
    ModelError where nothing that was allowed can compute the model.
    """
    chooser = _Chooser(model, options, sample)
    candidates = chooser.candidates()
    key = chooser.key()
    remembered = RememberedChoice.read(key, candidates)
    if remembered is not None:
        return chooser.finish(remembered.candidate, remembered.shape, measured=remembered.measured)
    candidate = candidates[0] if len(candidates) == 1 else chooser.fastest(candidates)
    selection = chooser.finish(candidate, None)
    if chooser.is_steady(selection):
        RememberedChoice(candidate=candidate, shape=selection.shape, measured=chooser.measured).write(key)
        return selection
    return replace(selection, notes=(*selection.notes, _BUSY))


class _Chooser:
    """The state of one choice: executors are made once, measurements are kept for the record."""

    def __init__(self, model: EncoderModel, options: EncoderOptions, sample: Sequence[TokenSequence]) -> None:
        self.model = model
        self.options = options
        self.own_rows = list(sample)
        self.sample = self.own_rows or default_sample(model)
        self.device = str(choose_device(options.device))
        self.threads = options.threads or available_cores()
        self.measured: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.audit: dict[str, Any] | None = None
        self._executors: dict[tuple[Candidate, int], Executor] = {}
        self._reference: tuple[list[TokenSequence], list[Any]] | None = None

    def candidates(self) -> list[Candidate]:
        """What the options allow and the machine has, fastest guess first."""
        backends = self._backends()
        found = [
            Candidate(backend=backend, dtype=dtype)
            for backend in backends
            for dtype in self._dtypes(backend)
            if self.options.dtype in ("auto", dtype)
        ]
        if not found:
            known = sorted({dtype for backend in backends for dtype in self._dtypes(backend)})
            raise UsageError(
                f"dtype {self.options.dtype!r} is not to be had with {' or '.join(backends)} on {self.device}; "
                f"there is {', '.join(known)}"
            )
        return found

    def _backends(self) -> list[str]:
        wanted, int8 = self.options.backend, self.options.dtype == "int8"
        if wanted == "torch" and int8:
            raise UsageError("int8 comes with the openvino backend; give --backend openvino or another dtype")
        if self.device.split(":")[0] != "cpu":
            if wanted == "openvino" or int8:
                what = "int8" if int8 else "the openvino backend"
                raise UsageError(f"{what} is for CPUs, and the device is {self.device}; give --device cpu")
            return ["torch"]
        if wanted == "torch":
            return ["torch"]
        try:
            from setpoint.runners.encoder.graph import import_openvino

            import_openvino()
        except MissingDependency:
            if wanted == "openvino" or int8:
                raise
            return ["torch"]
        return ["openvino"] if wanted == "openvino" or int8 else ["openvino", "torch"]

    def _dtypes(self, backend: str) -> list[str]:
        if backend == "torch":
            found = list(torch_dtypes(choose_device(self.device)))
        else:
            from setpoint.runners.encoder.openvino import supported_dtypes

            found = list(supported_dtypes())
        if self.options.dtype != "int8" and "int8" in found:
            found.remove("int8")  # auto never takes it
        return sorted(found, key=lambda dtype: dtype == "float32")

    def key(self) -> str:
        """What a remembered choice depends on."""
        import torch
        import transformers

        lengths = sorted(map(len, self.sample))
        mix = [round(math.log2(lengths[int(q * (len(lengths) - 1))])) for q in (0.1, 0.5, 0.9, 1.0)]
        options = self.options
        return cache_key(
            {
                "version": 1,
                "model": [self.model.digest, type(self.model.network.model).__name__, self.model.output],
                "head": describe_head(self.model.network.pool),
                "options": [options.dtype, options.backend, options.batch_size, options.max_batch_tokens],
                "placement": [self.device, self.threads, options.streams, options.batch_invariant],
                "machine": [platform.machine(), cpu_model(), available_cores()],
                "versions": [torch.__version__, transformers.__version__, _openvino_version()],
                "lengths": mix,
            }
        )

    def fastest(self, candidates: Sequence[Candidate]) -> Candidate:
        """Measure every candidate that matches the model, twice in turn; the fastest. Raises ModelError if none does.

        In turn, because a neighbour that takes the cores for a few seconds would otherwise decide.
        """
        able = [candidate for candidate in candidates if self._matches(candidate)]
        budget = 512 if self.device == "cpu" else 8192
        best: dict[Candidate, float] = {}
        for _ in range(_ROUNDS if len(able) > 1 else 1):
            for candidate in able:
                streams = self._streams()[0]
                executor = self.executor(candidate, streams)
                rate = self.pace(candidate, executor, self._shape(executor, budget, streams))
                best[candidate] = max(rate or 0.0, best.get(candidate, 0.0))
        if not able:
            reasons = "; ".join(entry["refused"] for entry in self.measured)
            raise ModelError(f"model {self.model.source!r} runs with no backend here: {reasons}")
        return max(able, key=lambda candidate: best[candidate])

    def _matches(self, candidate: Candidate) -> bool:
        try:
            self.executor(candidate, self._streams()[0])
        except ModelError as error:
            self.measured.append({"candidate": str(candidate), "refused": str(error)})
            return False
        return True

    def executor(self, candidate: Candidate, streams: int) -> Executor:
        """Make an executor, once, and check it against the model in float32. Raises ModelError if it differs."""
        if (candidate, streams) not in self._executors:
            self._executors[candidate, streams] = self._make(candidate, streams)
        return self._executors[candidate, streams]

    def _make(self, candidate: Candidate, streams: int) -> Executor:
        if candidate.backend == "torch":
            executor, note = pick_torch(self.model, dtype=candidate.dtype, device=self.device, num_threads=self.threads)
            if note is not None and str(note) not in self.notes:
                self.notes.append(str(note))
            return executor
        if candidate.dtype == "int8":
            return self._make_int8(streams)
        from setpoint.runners.encoder.openvino import make_executor

        made = make_executor(self.model, dtype=candidate.dtype, num_threads=self.threads, num_streams=streams)
        if self._reference is None:
            sequences = check_sequences(self.model)
            self._reference = sequences, reference_outputs(self.model, sequences)
        result = check_executor(self.model, made, self._reference[0], reference=self._reference[1])
        if not result.ok:
            made.close()
            raise ModelError(f"{candidate} does not match the model in float32: {result.why}")
        return made

    def _make_int8(self, streams: int) -> Executor:
        from setpoint.runners.encoder import quantize
        from setpoint.runners.encoder.openvino import OpenVINOExecutor, make_executor

        graph, smoothing = quantize.quantized_graph(self.model, self.own_rows, num_threads=self.threads)
        made = OpenVINOExecutor(self.model, graph, dtype="int8", num_threads=self.threads, num_streams=streams)
        if self.audit is None:
            reference = make_executor(self.model, dtype="float32", num_threads=self.threads, num_streams=1)
            held_out = quantize.split_sample(self.own_rows)[1]
            found = quantize.audit(self.model, made, reference, held_out)
            reference.close()
            self.audit = {"smoothing": smoothing, **found.to_json()}
            self.notes.append(str(found))
        return made

    def finish(
        self, candidate: Candidate, shape: BatchShape | None, *, measured: Sequence[Mapping[str, Any]] = ()
    ) -> Selection:
        """The executor on its best streams with its best batches; both measured unless `shape` is given."""
        self.measured.extend(dict(entry) for entry in measured)
        if shape is None:
            try:
                shape = self._tuned(candidate)
            except ModelError as error:
                candidate = self._fall_back(candidate, error)
                shape = self._tuned(candidate)
        executor = self.executor(candidate, shape.num_streams)
        for (other, streams), unused in self._executors.items():
            if (other, streams) != (candidate, shape.num_streams) and unused is not executor:
                unused.close()
        if self.options.batch_invariant:
            self.notes.append(self._price_of_invariance(candidate, executor, shape))
            shape = replace(shape, max_batch_size=1)
        facts: dict[str, Any] = {
            "backend": executor.name,
            "dtype": executor.dtype,
            "device": self.device,
            "threads": self.threads,
            "streams": shape.num_streams,
            "max_batch_tokens": shape.max_batch_tokens,
            "max_batch_size": shape.max_batch_size,
            "measured": self.measured,
        }
        if self.audit is not None:
            facts["int8_audit"] = self.audit
        return Selection(executor=executor, shape=shape, notes=tuple(self.notes), facts=facts)

    def is_steady(self, selection: Selection) -> bool:
        """Whether the chosen shape is as fast now as when it was chosen: if not, something else used the machine."""
        shape = selection.shape
        same = [
            entry["tokens_per_s"]
            for entry in self.measured
            if entry.get("executor") == selection.executor.name
            and entry["candidate"].endswith(selection.executor.dtype)
            and (entry["streams"], entry["max_batch_tokens"]) == (shape.num_streams, shape.max_batch_tokens)
            and entry["tokens_per_s"]
        ]
        candidate = Candidate(backend=selection.executor.name.partition("-")[0], dtype=selection.executor.dtype)
        again = self.pace(candidate, selection.executor, shape)
        rates = [*same, again or 0]
        return bool(min(rates) >= max(rates) * _STEADY)

    def _price_of_invariance(self, candidate: Candidate, executor: Executor, shape: BatchShape) -> str:
        """What computing every sequence alone costs, measured once and kept with the choice."""
        entry = next((entry for entry in self.measured if _BATCHED in entry), None)
        if entry is None:
            alone = self.pace(candidate, executor, shape)
            batched = self.pace(candidate, executor, shape, is_batched=True)
            entry = {"candidate": str(candidate), _ALONE: round(alone or 0), _BATCHED: round(batched or 0)}
            self.measured.append(entry)
        return (
            f"batch-invariant: every sequence is computed alone, {entry[_ALONE]:,} tokens/s "
            f"instead of {entry[_BATCHED]:,} in batches"
        )

    def _fall_back(self, candidate: Candidate, error: ModelError) -> Candidate:
        """torch, padded if need be, where OpenVINO was asked for by name and cannot do the model; and say so."""
        if candidate.backend == "torch" or candidate.dtype == "int8":
            raise error
        self.notes.append(f"torch instead of openvino: {error}")
        return Candidate(backend="torch", dtype=candidate.dtype)

    def _tuned(self, candidate: Candidate) -> BatchShape:
        """Streams first, then the token budget: up and down from the middle while it gets faster."""
        streams = self._streams()
        fixed = self.options.max_batch_tokens
        if fixed is None and self.options.batch_size is not None:
            fixed = self.options.batch_size * self.model.max_length  # the count alone decides
        budgets = _CPU_BUDGETS if self.device == "cpu" else _ACCELERATOR_BUDGETS
        start = fixed or (512 if self.device == "cpu" else 8192)
        rates: dict[tuple[int, int], float] = {}

        def rate(count: int, budget: int) -> float:
            if (count, budget) not in rates:
                executor = self.executor(candidate, count)
                rates[count, budget] = self.pace(candidate, executor, self._shape(executor, budget, count)) or 0.0
            return rates[count, budget]

        count = streams[0] if len(streams) == 1 else max(streams, key=lambda n: rate(n, start))
        best = start
        if fixed is None and not self.options.batch_invariant:
            best = _climb(budgets, start, lambda budget: rate(count, budget))
        return self._shape(self.executor(candidate, count), best, count)

    def pace(
        self, candidate: Candidate, executor: Executor, shape: BatchShape, *, is_batched: bool = False
    ) -> float | None:
        """Measure, and keep the figure for the record. `is_batched` lets sequences share batches in any case."""
        if self.options.batch_invariant and not is_batched:
            shape = replace(shape, max_batch_size=1)
        sample = sample_within(executor, self.sample, seconds=_PASS_SECONDS * shape.num_streams)
        rate = measure_pace(executor, sample, shape, seconds=_PASS_SECONDS)
        self.measured.append(
            {
                "candidate": str(candidate),
                "executor": executor.name,
                "streams": shape.num_streams,
                "max_batch_tokens": shape.max_batch_tokens,
                "tokens_per_s": None if rate is None else round(rate),
            }
        )
        return rate

    def _streams(self) -> list[int]:
        if self.options.streams is not None:
            if self.device == "cpu" and self.options.streams > self.threads:
                raise UsageError(f"{self.options.streams} streams need at least as many threads, not {self.threads}")
            return [self.options.streams]
        return _stream_counts(self.threads) if self.device == "cpu" else [1]

    def _shape(self, executor: Executor, budget: int, streams: int) -> BatchShape:
        return BatchShape(
            max_batch_tokens=budget,
            max_batch_size=self.options.batch_size,
            cost=executor.cost,
            num_streams=streams,
        )


def default_sample(model: EncoderModel) -> list[TokenSequence]:
    """Sequences of real English text of mixed length, for when nothing of the user's is at hand."""
    from setpoint.runners.texts import docstrings

    tokenizer = TextTokenizer(model)
    texts = docstrings(_SAMPLE_TEXTS) or ["a real sentence, repeated " * n for n in (1, 3, 10, 30, 100)]
    room = max(1, model.max_length - tokenizer.single.num_special)
    return [tokenizer.join(content.ids[:room]) for content in tokenizer.tokenize(texts)]


def _openvino_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("openvino")
    except PackageNotFoundError:
        return None


def _stream_counts(threads: int) -> list[int]:
    """Stream counts worth measuring on so many threads, the likeliest first."""
    parts = (1, 2, 4, threads) if threads <= 8 else (4, 8, 2)
    return list(dict.fromkeys(max(1, threads // part) for part in parts))


def _climb(budgets: Sequence[int], start: int, rate: Any) -> int:
    """The budget of the best rate, walking up and down from `start` as long as it gets better."""
    position = budgets.index(start)
    best = start
    for larger in budgets[position + 1 :]:
        if rate(larger) < rate(best) * _WORTH:
            break
        best = larger
    if best == start:
        for smaller in reversed(budgets[:position]):
            if rate(smaller) < rate(best):
                break
            best = smaller
    return best
