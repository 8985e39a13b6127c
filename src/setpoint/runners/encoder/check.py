"""Does an executor give the model's numbers? Checked at load, against the padded network in float32.

A handful of sequences from special tokens only to a few hundred tokens go through the network one at a time and through
the executor together, twice, in different order and company, so that tokens which see another sequence's tokens, wrong
positions and heads that read the wrong row all show. Vectors (embeddings, token states) are compared by direction and
relative error, logits as the probabilities and the label that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from setpoint.errors import ModelError, OutOfMemory, SetpointError
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.executor import Executor
from setpoint.runners.encoder.families import unpackable
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.tokens import TextTokenizer
from setpoint.runners.encoder.torch_packed import TorchPacked
from setpoint.runners.encoder.torch_padded import TorchPadded

Array = npt.NDArray[Any]

# Tokens of the text in each checked sequence: none, within one group of short sequences, neighbours, long ones that a
# sliding window of 128 cuts. Cut to what the model takes.
_LENGTHS = (0, 1, 9, 10, 40, 110, 150, 330)
_TEXT = (
    "The invoice for order 1042 arrived late, and the printer on the second floor printed only half of it. Please send "
    "a new one to Ms. Okafor in Lagos before Friday; she asked twice whether the refund had been booked. Nothing works "
    "after the update: the login page loads, then it crashes with an error that nobody here has seen before. "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an executor may be from float32.

    `relative` bounds |difference| / |reference| of a sequence's vector (or of all its token states together) and
    `cosine` its direction from below; `probability` bounds every probability, and labels must be equal unless the two
    best are closer to each other than twice that.
    """

    relative: float
    cosine: float
    probability: float


# A relative error of 4.5% is a cosine of 0.999; in float32, sums in another order differ by some 1e-6 a layer. Half
# precision moves logits by about 1%, so the probabilities of undecided tokens by a few percent.
TOLERANCES: Mapping[str, Tolerance] = {
    "float32": Tolerance(relative=5e-5, cosine=0.999999, probability=1e-4),
    "bfloat16": Tolerance(relative=0.045, cosine=0.999, probability=0.05),
    "float16": Tolerance(relative=0.045, cosine=0.999, probability=0.02),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Outcome of a check. Figures are of the worst sequence, None where they do not apply or nothing was computed.

    `cosine` and `relative` are of vectors, `probability` (the largest difference) and `label_flips` of logits. `why` is
    a sentence part that says what was wrong, None if all is well.
    """

    ok: bool
    why: str | None = None
    cosine: float | None = None
    relative: float | None = None
    probability: float | None = None
    label_flips: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackNote:
    """The model runs padded instead of packed, and why."""

    model: str
    reason: str

    def __str__(self) -> str:
        return f"model {self.model!r} runs padded, in batches of like lengths: {self.reason}"


def check_sequences(model: EncoderModel) -> list[TokenSequence]:
    """Sequences of mixed lengths that the model takes, each with a different text; a pair where it has segments."""
    tokenizer = TextTokenizer(model)
    content = tokenizer.tokenize([_TEXT])[0].ids
    endless = np.tile(content, 2 + max(_LENGTHS) // max(1, len(content)))
    room = model.max_length - tokenizer.single.num_special
    found = []
    for number, wanted in enumerate(_LENGTHS):
        start = 7 * number % max(1, len(content))
        found.append(tokenizer.join(endless[start : start + min(wanted, room)]))
    half = (model.max_length - tokenizer.double.num_special) // 2
    if model.uses_type_ids and half > 0:
        found.append(tokenizer.join(endless[: min(12, half)], endless[20 : 20 + min(30, half)]))
    return [sequence for sequence in found if len(sequence) > 0]


def reference_outputs(model: EncoderModel, sequences: Sequence[TokenSequence]) -> list[Array]:
    """What the network itself gives in float32, one sequence at a time."""
    outputs = []
    with torch.inference_mode():
        for sequence in sequences:
            ids = torch.from_numpy(sequence.ids.astype(np.int64)).unsqueeze(0)
            types = None
            if sequence.type_ids is not None:
                types = torch.from_numpy(sequence.type_ids.astype(np.int64)).unsqueeze(0)
            outputs.append(model.network(ids, torch.ones_like(ids), types)[0].float().numpy())
    return outputs


def check_executor(
    model: EncoderModel,
    executor: Executor,
    sequences: Sequence[TokenSequence] | None = None,
    tolerance: Tolerance | None = None,
    *,
    reference: Sequence[Array] | None = None,
) -> CheckResult:
    """Compare an executor with the model's network. Defaults: `check_sequences`, and the tolerance of its dtype.

    `reference` saves computing `reference_outputs` again. Raises what the executor raises.
    """
    sequences = check_sequences(model) if sequences is None else sequences
    tolerance = TOLERANCES[executor.dtype] if tolerance is None else tolerance
    reference = reference_outputs(model, sequences) if reference is None else reference
    results = [
        _compare(model, tolerance, [reference[index] for index in order], outputs)
        for order, outputs in _runs(executor, sequences)
    ]
    return next((result for result in results if not result.ok), _worst(results))


def pick_torch(
    model: EncoderModel,
    *,
    dtype: str = "float32",
    device: str = "auto",
    num_threads: int | None = None,
    num_streams: int = 1,
    allow_mismatch: bool = False,
) -> tuple[Executor, FallbackNote | None]:
    """The packed executor if the model's family can be packed and the check agrees, else the padded one and why.

    Raises ModelError where the padded one does not match either: then the dtype is too coarse for the model. With
    `allow_mismatch` it is returned all the same, for users who insist on the dtype, and the note says how far off.
    """
    settings: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "num_threads": num_threads,
        "num_streams": num_streams,
    }
    sequences = check_sequences(model)
    reference = reference_outputs(model, sequences)
    reason = unpackable(model.network.model)
    if reason is None:
        packed = TorchPacked(model, **settings)
        reason = _mismatch(model, packed, sequences, reference)
        if reason is None:
            return packed, None
        packed.close()
        reason = f"packed rows did not give the model's numbers ({reason})"
    padded = TorchPadded(model, **settings)
    result = check_executor(model, padded, sequences, reference=reference)
    if not result.ok:
        wrong = f"{dtype} does not give the numbers that the model gives in float32: {result.why}"
        if not allow_mismatch:
            padded.close()
            raise ModelError(f"model {model.source!r}: {wrong}")
        reason = f"{reason}; and {wrong}"
    return padded, FallbackNote(model=model.source, reason=reason)


def _mismatch(
    model: EncoderModel, packed: TorchPacked, sequences: Sequence[TokenSequence], reference: Sequence[Array]
) -> str | None:
    """Why the packed executor is not to be used, or None. Whatever it raises is a reason, except too little memory."""
    try:
        return check_executor(model, packed, sequences, reference=reference).why
    except OutOfMemory:
        raise
    except SetpointError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  (a model's own code may raise anything; it is reported, not hidden)
        return f"{type(error).__name__}: {error}"


def _runs(executor: Executor, sequences: Sequence[TokenSequence]) -> Iterator[tuple[list[int], list[Array]]]:
    """All together; then backwards, in two batches, so that everybody has other neighbours."""
    everything = list(range(len(sequences)))
    backwards = everything[::-1]
    for order in (everything, backwards[::2], backwards[1::2]):
        if order:
            yield order, executor.forward([sequences[index] for index in order])


def _compare(
    model: EncoderModel, tolerance: Tolerance, reference: Sequence[Array], outputs: Sequence[Array]
) -> CheckResult:
    if len(outputs) != len(reference):
        return CheckResult(ok=False, why=f"{len(outputs)} outputs for {len(reference)} sequences")
    for wanted, got in zip(reference, outputs, strict=True):
        if not np.isfinite(wanted).all():
            return CheckResult(ok=False, why="the model itself gives numbers that are not finite, in float32")
        if got.shape != wanted.shape:
            return CheckResult(ok=False, why=f"an output of shape {got.shape} instead of {wanted.shape}")
        if not np.isfinite(got).all():
            return CheckResult(ok=False, why="numbers that are not finite")
    pairs = list(zip(reference, outputs, strict=True))
    if model.output in (OutputKind.EMBEDDING, OutputKind.TOKEN_STATES):
        return _compare_vectors(tolerance, pairs)
    return _compare_logits(tolerance, pairs, independent=model.multi_label)


def _compare_vectors(tolerance: Tolerance, pairs: Sequence[tuple[Array, Array]]) -> CheckResult:
    cosine, relative = 1.0, 0.0
    for wanted, got in pairs:
        a, b = wanted.ravel().astype(np.float64), got.ravel().astype(np.float64)
        size = float(np.linalg.norm(a)) or 1.0
        relative = max(relative, float(np.linalg.norm(a - b)) / size)
        cosine = min(cosine, float(a @ b) / (size * (float(np.linalg.norm(b)) or 1.0)) if a.any() else 1.0)
    why = None
    if cosine < tolerance.cosine:
        why = f"a cosine of {cosine:.6f}, less than {tolerance.cosine:g}"
    elif relative > tolerance.relative:
        why = f"a relative error of {relative:.2g}, more than {tolerance.relative:g}"
    return CheckResult(ok=why is None, why=why, cosine=cosine, relative=relative)


def _compare_logits(tolerance: Tolerance, pairs: Sequence[tuple[Array, Array]], *, independent: bool) -> CheckResult:
    worst, flips = 0.0, 0
    for wanted, got in pairs:
        a, b = (_probabilities(logits, independent=independent) for logits in (wanted, got))
        worst = max(worst, float(np.abs(a - b).max()))
        flips += _flips(a, b, independent=independent, margin=2 * tolerance.probability)
    why = None
    if worst > tolerance.probability:
        why = f"a probability that differs by {worst:.2g}, more than {tolerance.probability:g}"
    elif flips:
        why = f"{flips} other labels"
    return CheckResult(ok=why is None, why=why, probability=worst, label_flips=flips)


def _probabilities(logits: Array, *, independent: bool) -> Array:
    """Over the last axis; a single logit, as rerankers have, stands for itself between 0 and 1."""
    logits = logits.astype(np.float64)
    if independent or logits.shape[-1] == 1:
        return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)))
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _flips(wanted: Array, got: Array, *, independent: bool, margin: float) -> int:
    """Labels that changed though the reference was not undecided within `margin`."""
    if independent or wanted.shape[-1] == 1:
        decided = np.abs(wanted - 0.5) > margin / 2
        return int((((wanted > 0.5) != (got > 0.5)) & decided).sum())
    best = np.sort(wanted, axis=-1)
    decided = best[..., -1] - best[..., -2] > margin
    return int(((wanted.argmax(-1) != got.argmax(-1)) & decided).sum())


def _worst(results: Sequence[CheckResult]) -> CheckResult:
    """One result with the worst figure of each kind."""

    def pick(name: str, choose: Any) -> Any:
        values = [value for result in results if (value := getattr(result, name)) is not None]
        return choose(values) if values else None

    return CheckResult(
        ok=True,
        cosine=pick("cosine", min),
        relative=pick("relative", max),
        probability=pick("probability", max),
        label_flips=pick("label_flips", max),
    )
