"""Choosing an executor: what is measured wins, what does not match is refused, and a choice is remembered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.errors import ModelError, OutOfMemory, UsageError
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder import select as selecting
from setpoint.runners.encoder.choice import Candidate, RememberedChoice
from setpoint.runners.encoder.load import load_model
from setpoint.runners.encoder.model import EncoderModel
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.encoder.pace import measure_pace, sample_within
from setpoint.runners.encoder.select import Selection, select_executor
from tests.runners.encoder.tiny import tiny_model_folder


class TimedExecutor:
    """Takes `per_token` seconds a token, and runs out of memory above `limit` tokens."""

    name = "timed"
    dtype = "float32"
    cost = BatchCost.PADDED

    def __init__(self, per_token: float = 1e-5, *, limit: int = 10**9, num_streams: int = 1) -> None:
        self.per_token = per_token
        self.limit = limit
        self.num_streams = num_streams
        self.calls: list[int] = []

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        tokens = len(batch) * max(map(len, batch))
        self.calls.append(tokens)
        if tokens > self.limit:
            raise OutOfMemory("too much")
        time.sleep(self.per_token * tokens)
        return [np.zeros(2, np.float32) for _ in batch]

    def close(self) -> None:
        pass


def items(*lengths: int) -> list[TokenSequence]:
    return [TokenSequence(np.ones(length, np.int32)) for length in lengths]


def test_pace_counts_useful_tokens_of_all_streams() -> None:
    executor = TimedExecutor(1e-4, num_streams=2)
    shape = BatchShape(max_batch_tokens=100, cost=BatchCost.PADDED, num_streams=2)
    rate = measure_pace(executor, items(*[100] * 8), shape, seconds=0.2)
    assert rate == pytest.approx(2 / 1e-4, rel=0.25)


def test_pace_pays_for_padding() -> None:
    shape = BatchShape(max_batch_tokens=200, cost=BatchCost.PADDED)
    rate = measure_pace(TimedExecutor(1e-4), items(100, 50), shape, seconds=0.1)
    assert rate == pytest.approx(0.75 / 1e-4, rel=0.25)


def test_running_out_of_memory_while_measuring_is_survived() -> None:
    shape = BatchShape(max_batch_tokens=200, cost=BatchCost.PADDED)
    assert measure_pace(TimedExecutor(limit=150), items(100, 100), shape, seconds=0.1) is None


def test_the_sample_is_cut_to_what_there_is_time_for() -> None:
    sample = items(*range(1, 201))
    kept = sample_within(TimedExecutor(1e-4), sample, seconds=0.2)
    assert 8 <= len(kept) < 60
    assert len(kept[0]) == 1
    assert len(kept[-1]) == 200
    assert len(sample_within(TimedExecutor(1e-9), sample, seconds=1)) == 200


def test_the_climb_stops_where_it_gets_no_better() -> None:
    budgets = (128, 256, 512, 1024, 2048)
    asked: list[int] = []

    def rate(budget: int) -> float:
        asked.append(budget)
        return {128: 50, 256: 70, 512: 60, 1024: 55, 2048: 99}[budget]

    assert selecting._climb(budgets, 512, rate) == 256
    assert 2048 not in asked
    assert selecting._climb(budgets, 512, lambda budget: budget) == 2048
    assert selecting._climb(budgets, 512, lambda budget: 1.0) == 128  # ties go to the smaller batch


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> EncoderModel:
    folder = tiny_model_folder(tmp_path_factory.mktemp("bert"), "bert", "feature-extraction")
    return load_model(EncoderOptions(model=str(folder), task="feature-extraction"))


def choose(bert: EncoderModel, **options: Any) -> Selection:
    return select_executor(bert, EncoderOptions(model=bert.source, task="feature-extraction", **options))


def test_auto_takes_the_fastest_and_remembers_it(bert: EncoderModel, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def pace(executor: Any, sample: Any, shape: BatchShape, *, seconds: float) -> float:
        measured.append(executor.name)
        return 900.0 if executor.name == "torch-packed" and executor.dtype == "float32" else 100.0

    monkeypatch.setattr(selecting, "measure_pace", pace)
    first = choose(bert, threads=2)
    assert (first.facts["backend"], first.facts["dtype"]) == ("torch-packed", "float32")
    assert len({entry["candidate"] for entry in first.facts["measured"]}) >= 2
    measured.clear()
    second = choose(bert, threads=2)
    assert measured == []
    assert second.shape == first.shape
    assert second.facts == first.facts


def test_a_choice_made_on_a_busy_machine_is_not_remembered(bert: EncoderModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter(range(1000, 0, -200))  # slower at every look
    monkeypatch.setattr(selecting, "measure_pace", lambda *args, **settings: float(next(rates)))
    options = {"backend": "torch", "dtype": "float32", "threads": 1, "max_batch_tokens": 333, "streams": 1}
    first = choose(bert, **options, batch_invariant=True)
    assert any("not remembered" in note for note in first.notes)
    monkeypatch.setattr(selecting, "measure_pace", lambda *args, **settings: 500.0)
    second = choose(bert, **options, batch_invariant=True)  # measures again, and now agrees with itself
    assert not any("not remembered" in note for note in second.notes)
    assert all(entry.get("tokens_per_s", 500) == 500 for entry in second.facts["measured"])


def test_auto_never_takes_int8(bert: EncoderModel) -> None:
    chooser = selecting._Chooser(bert, EncoderOptions(model=bert.source, task="feature-extraction"), ())
    assert "int8" not in {candidate.dtype for candidate in chooser.candidates()}


def test_what_the_user_says_is_kept(bert: EncoderModel) -> None:
    chosen = choose(bert, backend="torch", dtype="float32", max_batch_tokens=777, batch_size=3, threads=1)
    assert chosen.facts["backend"] == "torch-packed"
    assert chosen.shape == BatchShape(max_batch_tokens=777, max_batch_size=3, cost=BatchCost.PACKED, num_streams=1)


def test_batch_invariant_computes_alone(bert: EncoderModel) -> None:
    chosen = choose(bert, batch_invariant=True, backend="torch", dtype="float32")
    assert chosen.shape.max_batch_size == 1
    again = choose(bert, batch_invariant=True, backend="torch", dtype="float32")
    for found in (chosen, again):  # the price is stated, also where the choice was remembered
        assert any("computed alone" in note and "in batches" in note for note in found.notes)


def test_combinations_that_cannot_be_are_refused(bert: EncoderModel) -> None:
    with pytest.raises(UsageError, match="openvino backend"):
        choose(bert, backend="torch", dtype="int8")
    with pytest.raises(UsageError, match="your own rows"):
        choose(bert, backend="openvino", dtype="int8", threads=1)
    with pytest.raises(UsageError, match="8 streams need"):
        choose(bert, backend="openvino", dtype="float32", streams=8, threads=2)


def test_a_backend_that_does_not_match_is_left_out(bert: EncoderModel, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    _break_openvino(monkeypatch)
    chosen = choose(bert, dtype="float32", threads=1)
    assert chosen.facts["backend"].startswith("torch")
    refused = [entry["refused"] for entry in chosen.facts["measured"] if "refused" in entry]
    assert len(refused) == 1
    assert "does not match the model in float32" in refused[0]


def test_a_backend_asked_for_by_name_falls_back_and_says_so(
    bert: EncoderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino", reason="needs the extra openvino")
    _break_openvino(monkeypatch)
    chosen = choose(bert, backend="openvino", dtype="float32", threads=1, batch_size=5)
    assert chosen.facts["backend"].startswith("torch")
    assert any(note.startswith("torch instead of openvino") for note in chosen.notes)


def test_nothing_that_works_is_an_error_with_the_reasons(bert: EncoderModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **settings: Any) -> Any:
        raise ModelError("numbers are wrong")

    monkeypatch.setattr(selecting, "pick_torch", refuse)
    monkeypatch.setattr(selecting._Chooser, "_backends", lambda self: ["torch"])
    with pytest.raises(ModelError, match="numbers are wrong"):
        choose(bert, threads=1, max_batch_tokens=99)


def _break_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    from setpoint.runners.encoder.openvino import OpenVINOExecutor

    forward = OpenVINOExecutor.forward
    monkeypatch.setattr(OpenVINOExecutor, "forward", lambda self, batch: [1 - array for array in forward(self, batch)])


def test_a_remembered_choice_that_is_damaged_or_gone_is_measured_again(tmp_path: Path) -> None:
    kept = RememberedChoice(
        candidate=Candidate(backend="torch", dtype="float32"), shape=BatchShape(max_batch_tokens=9), measured=[]
    )
    kept.write("some")
    assert RememberedChoice.read("some", [kept.candidate]) == kept
    assert RememberedChoice.read("some", [Candidate(backend="openvino", dtype="float32")]) is None
    assert RememberedChoice.read("other", [kept.candidate]) is None


@pytest.mark.slow
def test_int8_is_calibrated_audited_and_kept(bert: EncoderModel) -> None:
    pytest.importorskip("nncf", reason="needs the extra openvino")
    rng = np.random.default_rng(0)
    sample = [
        TokenSequence(rng.integers(10, len(bert.tokenizer), n).astype(np.int32), np.zeros(n, np.int32))
        for n in rng.integers(3, 60, 40)
    ]
    options = EncoderOptions(model=bert.source, task="feature-extraction", dtype="int8", threads=1)
    first = select_executor(bert, options, sample=sample)
    audit = first.facts["int8_audit"]
    assert audit["num_sequences"] == 20
    assert 0.9 < audit["min_cosine"] <= audit["mean_cosine"] <= 1.0
    assert any("int8 against float32" in note for note in first.notes)
    begin = time.perf_counter()
    second = select_executor(bert, options, sample=sample)
    assert time.perf_counter() - begin < 5  # from the cache
    assert second.facts["int8_audit"] == audit
