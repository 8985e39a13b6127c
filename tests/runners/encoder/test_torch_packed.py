"""Packed rows give what the model gives for each sequence alone, for every family and every kind of output."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.domain.batch import BatchCost
from setpoint.errors import ModelError, OutOfMemory
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.executor import Executor
from setpoint.runners.encoder.families import positions_of, unpackable
from setpoint.runners.encoder.model import OutputKind
from setpoint.runners.encoder.packing import NotPacked
from setpoint.runners.encoder.torch_device import supported_dtypes
from setpoint.runners.encoder.torch_packed import TorchPacked
from tests.runners.encoder.encoders import (
    EVERY_FAMILY_AND_OUTPUT,
    largest_difference,
    one_at_a_time,
    random_sequences,
    tiny_encoder,
)

pytestmark = pytest.mark.usefixtures("one_thread")

# Out of order, with neighbours of equal length, special tokens only (2), a single token, both sides of the limits
# between short and long sequences, and long enough for the windows of 8 tokens to be computed in blocks.
LENGTHS = (17, 2, 130, 2, 64, 97, 5, 1, 33, 400, 17, 200)
TOLERANCE = 2e-5  # absolute, of numbers of the order of 4

PACKED = [pair for pair in EVERY_FAMILY_AND_OUTPUT if pair[0] != "deberta-v2"]
needs_bfloat16 = pytest.mark.skipif(
    "bfloat16" not in supported_dtypes(torch.device("cpu")), reason="this CPU does not compute in bfloat16"
)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a.ravel() @ b.ravel() / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize(("family", "output"), PACKED)
def test_every_family_packed_equals_one_at_a_time(family: str, output: OutputKind) -> None:
    model = tiny_encoder(family, output)
    sequences = random_sequences(model, LENGTHS)
    executor = TorchPacked(model, device="cpu")
    assert largest_difference(executor.forward(sequences), one_at_a_time(model, sequences)) < TOLERANCE


@needs_bfloat16
@pytest.mark.parametrize("family", sorted({family for family, _ in PACKED}))
def test_every_family_packed_in_bfloat16_stays_close(family: str) -> None:
    model = tiny_encoder(family)
    sequences = random_sequences(model, LENGTHS)
    executor = TorchPacked(model, device="cpu", dtype="bfloat16")
    for got, wanted in zip(executor.forward(sequences), one_at_a_time(model, sequences), strict=True):
        assert got.shape == wanted.shape
        assert _cosine(got, wanted) > 0.998


@pytest.mark.parametrize("pooling", ["cls", "max", "lasttoken", "weightedmean"])
@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_poolings_see_right_padded_states_and_their_mask(family: str, pooling: str) -> None:
    model = tiny_encoder(family, OutputKind.EMBEDDING, pooling)
    sequences = random_sequences(model, LENGTHS)
    outputs = TorchPacked(model, device="cpu").forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_modernbert_classifiers_pool_as_their_config_says(pooling: str) -> None:
    model = tiny_encoder("modernbert", OutputKind.SEQUENCE_LOGITS, classifier_pooling=pooling)
    sequences = random_sequences(model, LENGTHS)
    outputs = TorchPacked(model, device="cpu").forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


def test_eurobert_classifiers_pool_as_their_config_says() -> None:
    for pooling in ("bos", "mean", "late"):
        model = tiny_encoder("eurobert", OutputKind.SEQUENCE_LOGITS, classifier_pooling=pooling)
        sequences = random_sequences(model, LENGTHS)
        outputs = TorchPacked(model, device="cpu").forward(sequences)
        assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


def test_decoder_classifiers_read_the_last_token_that_is_not_padding() -> None:
    model = tiny_encoder("qwen3", OutputKind.SEQUENCE_LOGITS)
    sequences = random_sequences(model, (9, 4, 30))
    ending_in_padding = TokenSequence(np.append(sequences[0].ids, np.int32(model.tokenizer.pad_token_id)))
    sequences.append(ending_in_padding)
    outputs = TorchPacked(model, device="cpu").forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


@pytest.mark.parametrize("family", ["roberta", "mpnet", "bert"])
def test_padding_tokens_inside_a_text_are_numbered_as_the_family_does(family: str) -> None:
    model = tiny_encoder(family)
    sequences = random_sequences(model, (12, 5))
    sequences[0].ids[4] = sequences[0].ids[7] = model.tokenizer.pad_token_id
    outputs = TorchPacked(model, device="cpu").forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


@given(lengths=st.lists(st.integers(1, 150), min_size=1, max_size=12), seed=st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_any_lengths_in_any_order(lengths: list[int], seed: int) -> None:
    model = tiny_encoder("bert")
    sequences = random_sequences(model, lengths, seed=seed)
    outputs = _packed_bert().forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


@given(lengths=st.lists(st.integers(1, 60), min_size=2, max_size=10), seed=st.integers(0, 2**16), data=st.data())
@settings(max_examples=15, deadline=None)
def test_company_and_order_do_not_matter(lengths: list[int], seed: int, data: st.DataObject) -> None:
    model = tiny_encoder("bert")
    sequences = random_sequences(model, lengths, seed=seed)
    order = data.draw(st.permutations(range(len(sequences))))
    together = _packed_bert().forward(sequences)
    shuffled = _packed_bert().forward([sequences[index] for index in order])
    assert largest_difference(shuffled, [together[index] for index in order]) < TOLERANCE


_EXECUTORS: dict[str, TorchPacked] = {}


def _packed_bert() -> TorchPacked:
    if "bert" not in _EXECUTORS:
        _EXECUTORS["bert"] = TorchPacked(tiny_encoder("bert"), device="cpu")
    return _EXECUTORS["bert"]


def test_many_short_sequences_make_several_groups() -> None:
    model = tiny_encoder("bert")
    sequences = random_sequences(model, [3 + index % 14 for index in range(250)])
    outputs = _packed_bert().forward(sequences)
    assert largest_difference(outputs, one_at_a_time(model, sequences)) < TOLERANCE


def test_threads_do_not_see_each_others_sequences() -> None:
    model = tiny_encoder("modernbert")
    executor = TorchPacked(model, device="cpu", num_streams=4, num_threads=1)
    batches = [random_sequences(model, np.random.default_rng(n).integers(1, 90, 6), seed=n) for n in range(16)]
    alone = [executor.forward(batch) for batch in batches]
    start = threading.Barrier(4)

    def compute(batch: list[TokenSequence]) -> list[np.ndarray]:
        start.wait(timeout=30)
        return executor.forward(batch)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(compute, batches))
    for first, second in zip(alone, together, strict=True):
        assert largest_difference(second, first) == 0


def test_two_executors_of_one_model_do_not_disturb_each_other_or_the_model() -> None:
    model = tiny_encoder("mpnet")
    sequences = random_sequences(model, (9, 40))
    before = one_at_a_time(model, sequences)
    first, second = TorchPacked(model, device="cpu"), TorchPacked(model, device="cpu")
    assert largest_difference(first.forward(sequences), second.forward(sequences)) == 0
    assert largest_difference(one_at_a_time(model, sequences), before) == 0


def test_weights_are_shared_with_the_model_in_float32() -> None:
    model = tiny_encoder("bert")
    ours = dict(TorchPacked(model, device="cpu")._parts.body.named_parameters())
    theirs = dict(model.network.model.named_parameters())
    name = "embeddings.word_embeddings.weight"
    assert ours[name].data_ptr() == theirs[name].data_ptr()


def test_segments_are_given_where_only_some_sequences_have_them() -> None:
    model = tiny_encoder("bert")
    with_segments, without = random_sequences(model, (12, 8))
    without = TokenSequence(without.ids)
    outputs = _packed_bert().forward([without, with_segments])
    assert largest_difference(outputs, one_at_a_time(model, [without, with_segments])) < TOLERANCE


def test_an_empty_batch_gives_nothing_and_an_empty_sequence_is_refused() -> None:
    executor = _packed_bert()
    assert executor.forward([]) == []
    with pytest.raises(ModelError, match="no tokens"):
        executor.forward([TokenSequence(np.zeros(0, np.int32))])


def test_it_says_what_it_is() -> None:
    executor: Executor = TorchPacked(tiny_encoder("bert"), device="cpu", num_streams=2)
    assert (executor.name, executor.dtype, executor.cost, executor.num_streams) == (
        "torch-packed",
        "float32",
        BatchCost.PACKED,
        2,
    )
    executor.close()
    executor.close()


def test_running_out_of_memory_is_told_apart_from_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = TorchPacked(tiny_encoder("bert"), device="cpu")
    sequences = random_sequences(tiny_encoder("bert"), (5,))

    def fail(message: str) -> None:
        def raising(*_args: object, **_kwargs: object) -> None:
            raise RuntimeError(message)

        monkeypatch.setattr(executor._parts.body, "forward", raising)

    fail(
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
    )
    with pytest.raises(OutOfMemory, match="does not fit in the memory of cpu"):
        executor.forward(sequences)
    fail("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RuntimeError, match="mat1"):
        executor.forward(sequences)


def test_the_prepared_model_cannot_be_called_past_its_executor() -> None:
    body = TorchPacked(tiny_encoder("bert"), device="cpu")._parts.body
    with pytest.raises(NotPacked, match="call the executor"):
        body(input_ids=torch.ones(1, 4, dtype=torch.int64))


def test_models_that_compute_attention_themselves_are_refused_with_the_reason() -> None:
    model = tiny_encoder("deberta-v2")
    reason = unpackable(model.network.model)
    assert reason is not None
    assert "attention" in reason or "position ids" in reason
    with pytest.raises(ModelError, match="cannot read packed rows"):
        TorchPacked(model, device="cpu")


def test_rotary_positions_that_depend_on_the_batch_are_refused() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    reason = unpackable(tiny_encoder("llama", rope_parameters=_Frozen(rope)).network.model)
    assert reason is not None
    assert "longest sequence" in reason


class _Frozen(dict):  # tiny_encoder caches by its arguments
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted((key, str(value)) for key, value in self.items())))


def test_position_rules_come_from_the_models_own_embeddings() -> None:
    assert positions_of(tiny_encoder("roberta").network.model).padding_id == 1
    assert positions_of(tiny_encoder("mpnet").network.model).padding_id == 1
    assert positions_of(tiny_encoder("bert").network.model).padding_id is None
    assert positions_of(tiny_encoder("nomic_bert").network.model).padding_id is None
