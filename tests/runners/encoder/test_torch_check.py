"""The check at load passes what is right, sees what is wrong, and the fallback says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from setpoint.domain.batch import BatchCost
from setpoint.errors import ModelError, OutOfMemory
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder import packed_attention, torch_packed
from setpoint.runners.encoder.check import (
    TOLERANCES,
    CheckResult,
    FallbackNote,
    Tolerance,
    check_executor,
    check_sequences,
    pick_torch,
    reference_outputs,
)
from setpoint.runners.encoder.families import Positions
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.packed_attention import UnsupportedAttention
from setpoint.runners.encoder.packed_attention import attend as real_attend
from setpoint.runners.encoder.torch_device import supported_dtypes
from setpoint.runners.encoder.torch_padded import TorchPadded
from tests.runners.encoder.encoders import tiny_encoder

pytestmark = pytest.mark.usefixtures("one_thread")

needs_bfloat16 = pytest.mark.skipif(
    "bfloat16" not in supported_dtypes(torch.device("cpu")), reason="this CPU does not compute in bfloat16"
)


class Changed:
    """An executor whose outputs are changed on the way out."""

    name, cost, num_streams = "changed", BatchCost.PACKED, 1

    def __init__(self, model: EncoderModel, change: Callable[[list[np.ndarray]], list[np.ndarray]], dtype: str) -> None:
        self._inner = TorchPadded(model, device="cpu")
        self._change = change
        self.dtype = dtype

    def forward(self, batch: Sequence[TokenSequence]) -> list[np.ndarray]:
        return self._change(self._inner.forward(batch))

    def close(self) -> None:
        self._inner.close()


def checked(
    output: OutputKind, change: Callable[[list[np.ndarray]], list[np.ndarray]], dtype: str = "float32"
) -> CheckResult:
    model = tiny_encoder("bert", output)
    return check_executor(model, Changed(model, change, dtype))


def test_sequences_go_from_special_tokens_to_hundreds_and_differ() -> None:
    model = tiny_encoder("bert")
    sequences = check_sequences(model)
    lengths = [len(sequence) for sequence in sequences]
    assert min(lengths) == 2  # [CLS] [SEP]
    assert max(lengths) > 300
    assert len({sequence.ids.tobytes() for sequence in sequences}) == len(sequences)
    assert any(sequence.type_ids is not None and sequence.type_ids.any() for sequence in sequences)
    assert all(len(sequence) > 0 for sequence in check_sequences(tiny_encoder("qwen3")))


@pytest.mark.parametrize("output", OutputKind)
def test_right_executors_pass_with_their_worst_figures(output: OutputKind) -> None:
    result = checked(output, lambda outputs: outputs)
    assert result.ok
    assert result.why is None
    if output in (OutputKind.EMBEDDING, OutputKind.TOKEN_STATES):
        assert result.cosine is not None
        assert result.relative is not None
        assert result.cosine > 0.999999
        assert result.relative < 1e-5
        assert result.probability is None
    else:
        assert result.probability is not None
        assert result.probability < 1e-5
        assert result.label_flips == 0


WRONG: list[tuple[OutputKind, str, Callable[[list[np.ndarray]], list[np.ndarray]]]] = [
    (OutputKind.EMBEDDING, "relative error", lambda outputs: [array * 1.001 for array in outputs]),
    (OutputKind.EMBEDDING, "cosine", lambda outputs: [array[::-1] for array in outputs]),
    (OutputKind.EMBEDDING, "cosine", lambda outputs: outputs[::-1]),
    (OutputKind.TOKEN_STATES, "cosine", lambda outputs: [np.roll(array, 1, axis=0) for array in outputs]),
    (OutputKind.TOKEN_STATES, "shape", lambda outputs: [array[1:] for array in outputs]),
    (OutputKind.SEQUENCE_LOGITS, "probability", lambda outputs: [array * 1.01 for array in outputs]),
    (OutputKind.TOKEN_LOGITS, "probability", lambda outputs: [array + np.eye(5)[0] for array in outputs]),
    (OutputKind.TOKEN_LOGITS, "not finite", lambda outputs: [*outputs[:-1], outputs[-1] * np.nan]),
    (OutputKind.SEQUENCE_LOGITS, "outputs for", lambda outputs: outputs[1:]),
]


@pytest.mark.parametrize(("output", "why", "change"), WRONG)
def test_wrong_numbers_are_found_and_named(
    output: OutputKind, why: str, change: Callable[[list[np.ndarray]], list[np.ndarray]]
) -> None:
    result = checked(output, change)
    assert not result.ok
    assert result.why is not None
    assert why in result.why


def test_tolerance_follows_the_executors_dtype() -> None:
    def slightly_off(outputs: list[np.ndarray]) -> list[np.ndarray]:
        return [array * 1.01 for array in outputs]

    assert not checked(OutputKind.EMBEDDING, slightly_off, "float32").ok
    assert checked(OutputKind.EMBEDDING, slightly_off, "bfloat16").ok
    assert checked(OutputKind.SEQUENCE_LOGITS, slightly_off, "bfloat16").ok


def test_another_label_is_wrong_unless_the_reference_was_undecided() -> None:
    model = tiny_encoder("bert", OutputKind.SEQUENCE_LOGITS)
    sequences = check_sequences(model)[:1]
    swapped = Changed(model, lambda outputs: [array[[1, 0, 2]] for array in outputs], "bfloat16")
    decided = check_executor(model, swapped, sequences, reference=[np.array([1.0, 0.0, -9.0], np.float32)])
    assert not decided.ok

    def answer(*logits: float) -> Changed:
        return Changed(model, lambda outputs: [np.array(logits, np.float32)] * len(outputs), "bfloat16")

    undecided = [np.array([0.01, 0.0, -9.0], np.float32)]
    assert check_executor(model, answer(0.0, 0.01, -9.0), sequences, reference=undecided).ok


def test_a_model_that_is_not_finite_itself_is_said_to_be() -> None:
    model = tiny_encoder("bert", OutputKind.SEQUENCE_LOGITS)
    reference = [array * np.nan for array in reference_outputs(model, check_sequences(model))]
    result = check_executor(model, TorchPadded(model, device="cpu"), reference=reference)
    assert result.why == "the model itself gives numbers that are not finite, in float32"


@pytest.mark.parametrize("output", OutputKind)
@pytest.mark.parametrize("family", ["roberta", "modernbert", "mpnet", "qwen3"])
def test_packed_is_picked_where_it_matches(family: str, output: OutputKind) -> None:
    executor, note = pick_torch(tiny_encoder(family, output), device="cpu")
    assert executor.name == "torch-packed"
    assert note is None


def test_a_family_that_cannot_be_packed_runs_padded_and_says_why() -> None:
    executor, note = pick_torch(tiny_encoder("deberta-v2"), device="cpu")
    assert executor.name == "torch-padded"
    assert note is not None
    assert "runs padded" in str(note)
    assert "deberta-v2" in str(note)


def _leaking(*args: Any, **kwargs: Any) -> torch.Tensor:
    out = real_attend(*args, **kwargs)
    return out + 0.01 * out.mean(1, keepdim=True)  # a little of everybody else


def _failing(*_args: Any, **_kwargs: Any) -> torch.Tensor:
    raise IndexError("index out of range in self")


def _refusing(*_args: Any, **_kwargs: Any) -> torch.Tensor:
    raise UnsupportedAttention("RobertaSelfAttention passes 'softcap' to attention")


@pytest.mark.parametrize(
    ("where", "name", "replacement", "reason"),
    [
        (torch_packed, "positions_of", lambda _: Positions(padding_id=None), "a cosine of"),
        (packed_attention, "attend", _leaking, "a cosine of 0.9999"),
        (packed_attention, "attend", _failing, "IndexError: index out of range in self"),
        (packed_attention, "attend", _refusing, "passes 'softcap'"),
    ],
)
def test_a_family_that_packing_breaks_runs_padded_and_says_why(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, replacement: object, reason: str
) -> None:
    model = tiny_encoder("roberta", OutputKind.EMBEDDING)
    monkeypatch.setattr(where, name, replacement)
    executor, note = pick_torch(model, device="cpu")
    assert executor.name == "torch-padded"
    assert isinstance(note, FallbackNote)
    assert "did not give the model's numbers" in note.reason
    assert reason in str(note)
    assert check_executor(model, executor).ok


def test_running_out_of_memory_is_no_reason_to_change_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: Any, **_kwargs: Any) -> torch.Tensor:
        raise MemoryError

    monkeypatch.setattr(packed_attention, "attend", full)
    with pytest.raises(OutOfMemory):
        pick_torch(tiny_encoder("bert"), device="cpu")


@needs_bfloat16
def test_a_dtype_that_is_too_coarse_for_the_model_is_refused_unless_insisted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strict = Tolerance(relative=1e-6, cosine=0.9999999, probability=1e-6)
    monkeypatch.setitem(TOLERANCES, "bfloat16", strict)  # type: ignore[arg-type]
    model = tiny_encoder("bert")
    with pytest.raises(ModelError, match="bfloat16 does not give the numbers that the model gives in float32"):
        pick_torch(model, dtype="bfloat16", device="cpu")
    executor, note = pick_torch(model, dtype="bfloat16", device="cpu", allow_mismatch=True)
    assert executor.name == "torch-padded"
    assert note is not None
    assert "bfloat16 does not give" in note.reason


@needs_bfloat16
@pytest.mark.parametrize("output", OutputKind)
def test_bfloat16_passes_for_an_ordinary_model(output: OutputKind) -> None:
    executor, note = pick_torch(tiny_encoder("bert", output), dtype="bfloat16", device="cpu")
    assert (executor.name, executor.dtype, note) == ("torch-packed", "bfloat16", None)


def test_the_check_itself_uses_the_executor_in_different_company() -> None:
    """An executor that is right only while the whole set is together is found out."""
    model = tiny_encoder("bert")

    class Fickle(Changed):
        def forward(self, batch: Sequence[TokenSequence]) -> list[np.ndarray]:
            outputs = super().forward(batch)
            return outputs if len(batch) == len(check_sequences(model)) else outputs[::-1]

    assert not check_executor(model, Fickle(model, lambda outputs: outputs, "float32")).ok
