import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.domain.row import Reason, RowFailure, RowInput
from setpoint.domain.task import Task
from setpoint.domain.truncation import Truncation
from setpoint.errors import OutOfMemory, UsageError
from setpoint.measure.clock import FakeClock
from setpoint.runners.base import EncodedRow, Runner
from setpoint.runners.fake import LABELS, UNK_ID, FakeCost, FakeFaults, FakeRunner, token_id


def encode(runner: FakeRunner, text, **others) -> EncodedRow:
    (encoded,) = runner.encode([RowInput(text=text, **others)])
    assert isinstance(encoded, EncodedRow), encoded
    return encoded


def failure(runner: FakeRunner, text, **others) -> RowFailure:
    (encoded,) = runner.encode([RowInput(text=text, **others)])
    assert isinstance(encoded, RowFailure), encoded
    return encoded


def result(runner: FakeRunner, text, **others):
    encoded = encode(runner, text, **others)
    return runner.decode(encoded, runner.forward(encoded.sequences))


def test_it_is_a_runner():
    assert isinstance(FakeRunner(), Runner)


def test_a_word_is_a_token_and_two_are_special():
    encoded = encode(FakeRunner(), "  the quick\tbrown fox ")
    assert encoded.num_tokens == len(encoded.sequences[0]) == 6
    assert encoded.sequences[0].ids[1] == token_id("the")
    assert encoded.truncated_tokens == 0


def test_token_ids_are_the_same_in_another_process():
    program = "from setpoint.runners.fake import token_id; print(token_id('fox'))"
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert int(there.stdout) == token_id("fox")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, Reason.MISSING_TEXT),
        (float("nan"), Reason.MISSING_TEXT),
        (np.float32("nan"), Reason.MISSING_TEXT),
        ("", Reason.EMPTY_TEXT),
        (" \t\n", Reason.EMPTY_TEXT),
        (3.5, Reason.NOT_TEXT),
        (["a"], Reason.NOT_TEXT),
        (b"a", Reason.NOT_TEXT),
        ("half a pair \ud800", Reason.INVALID_UNICODE),
        ("😀 😀", Reason.UNKNOWN_TOKENS),
    ],
)
def test_a_bad_row_gets_its_reason_and_the_rest_go_on(text, reason):
    before, bad, after = FakeRunner().encode([RowInput(text="a"), RowInput(text=text), RowInput(text="b")])
    assert isinstance(bad, RowFailure)
    assert bad.reason is reason
    assert isinstance(before, EncodedRow)
    assert isinstance(after, EncodedRow)


def test_a_bad_second_text_or_candidate_is_a_failure_that_says_which():
    assert failure(FakeRunner(), "a", pair=None, has_pair=True).reason is Reason.MISSING_TEXT
    bad = failure(FakeRunner(), "a", candidates=("fine", 7))
    assert bad.reason is Reason.NOT_TEXT
    assert "second text 1" in bad.detail


def test_one_known_word_makes_a_text_readable():
    assert list(encode(FakeRunner(), "😀 yes").sequences[0].ids[1:-1]) == [UNK_ID, token_id("yes")]


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), min_size=1, max_size=8), st.data())
def test_results_do_not_depend_on_the_batch(texts, data):
    runner = FakeRunner()
    sequences = [encode(runner, text).sequences[0] for text in texts]
    order = data.draw(st.permutations(range(len(texts))))
    together = runner.forward([sequences[i] for i in order])
    for i, output in zip(order, together):
        np.testing.assert_array_equal(output, runner.forward([sequences[i]])[0])


def test_another_model_seed_gives_other_numbers_and_another_fingerprint():
    one, other = FakeRunner(), FakeRunner(model_seed=1)
    assert not np.array_equal(result(one, "a b").values["embedding"], result(other, "a b").values["embedding"])
    assert one.fingerprint != other.fingerprint
    assert json.loads(json.dumps(one.fingerprint)) == one.fingerprint


def test_different_texts_get_different_results():
    runner = FakeRunner()
    assert not np.array_equal(result(runner, "a b").values["embedding"], result(runner, "a c").values["embedding"])


@pytest.mark.parametrize(
    ("cost", "expected_s"), [(BatchCost.PACKED, 1 + 9 * 0.1 + 41 * 0.01), (BatchCost.PADDED, 1 + 1.0 + 0.5)]
)
def test_it_spends_what_its_cost_says(cost, expected_s):
    clock = FakeClock()
    shape = BatchShape(max_batch_tokens=100, cost=cost)
    price = FakeCost(a_s=1, b_s_per_token=0.1, c_s_per_token2=0.01)
    runner = FakeRunner(shape=shape, cost=price, spend=clock.advance)
    runner.forward([encode(runner, "a b").sequences[0], encode(runner, "a b c").sequences[0]])
    assert clock.now_ns() == pytest.approx(expected_s * 1e9)
    assert runner.spent_s == pytest.approx(expected_s)
    assert runner.batches == [(4, 5)]


def test_a_slow_first_call_and_a_stall_are_added_where_they_belong():
    spent: list[float] = []
    runner = FakeRunner(cost=FakeCost(a_s=1, first_call_s=10, stalls_s={2: 5}), spend=spent.append)
    for _ in range(4):
        runner.forward(encode(runner, "a").sequences)
    assert spent == [11, 1, 6, 1]


def test_noise_is_seeded_and_of_the_stated_size():
    def spend(seed: int) -> list[float]:
        spent: list[float] = []
        runner = FakeRunner(cost=FakeCost(a_s=1, noise=0.1, seed=seed), spend=spent.append)
        for _ in range(400):
            runner.forward(encode(runner, "a").sequences)
        return spent

    assert spend(3) == spend(3) != spend(4)
    assert np.std(spend(3)) == pytest.approx(0.1, rel=0.15)
    assert np.mean(spend(3)) == pytest.approx(1, abs=0.02)


def test_a_poisoned_token_fails_the_whole_batch_and_only_such_batches():
    runner = FakeRunner(faults=FakeFaults(raises_on=[token_id("poison")]))
    good, bad = encode(runner, "good").sequences[0], encode(runner, "a poison pill").sequences[0]
    with pytest.raises(RuntimeError, match=str(token_id("poison"))):
        runner.forward([good, bad])
    assert len(runner.forward([good, good])) == 2
    assert runner.num_calls == 2
    assert runner.batches == [(3, 3)]


def test_a_nan_token_spoils_its_own_sequence_alone():
    runner = FakeRunner(faults=FakeFaults(nan_on=[token_id("nan")]))
    good, bad = runner.forward([encode(runner, "good").sequences[0], encode(runner, "a nan").sequences[0]])
    assert np.isfinite(good).all()
    assert np.isnan(bad).all()


@pytest.mark.parametrize(("cost", "fits"), [(BatchCost.PACKED, True), (BatchCost.PADDED, False)])
def test_it_runs_out_of_memory_by_tokens_as_its_shape_counts_them(cost, fits):
    shape = BatchShape(max_batch_tokens=100, cost=cost)
    runner = FakeRunner(shape=shape, faults=FakeFaults(memory_tokens=9))
    batch = [encode(runner, "a").sequences[0], encode(runner, "a b c d").sequences[0]]
    if fits:
        assert len(runner.forward(batch)) == 2
    else:
        with pytest.raises(OutOfMemory, match="12 tokens exceeds 9"):
            runner.forward(batch)


def test_truncation_cuts_and_counts():
    runner = FakeRunner(max_length=5)
    encoded = encode(runner, "a b c d e")
    assert encoded.num_tokens == 5
    assert encoded.truncated_tokens == 2
    assert runner.decode(encoded, runner.forward(encoded.sequences)).truncated_tokens == 2
    np.testing.assert_array_equal(
        result(runner, "a b c d e").values["embedding"], result(runner, "a b c").values["embedding"]
    )


@pytest.mark.parametrize("policy", [Truncation.SKIP, Truncation.ERROR])
def test_a_row_that_is_too_long_is_reported_when_it_may_not_be_cut(policy):
    runner = FakeRunner(max_length=5, truncation=policy)
    encode(runner, "a b c")
    bad = failure(runner, "a b c d")
    assert bad.reason is Reason.TOO_LONG
    assert bad.detail == "6 tokens, the limit is 5"


@pytest.mark.parametrize("num_words", range(1, 20))
def test_windows_cover_every_word_and_fit(num_words):
    runner = FakeRunner(max_length=6, truncation=Truncation.WINDOW)
    words = [f"w{i}" for i in range(num_words)]
    encoded = encode(runner, " ".join(words))
    assert {int(i) for s in encoded.sequences for i in s.ids[1:-1]} == {token_id(word) for word in words}
    assert all(len(sequence) <= 6 for sequence in encoded.sequences)
    assert encoded.num_tokens == sum(map(len, encoded.sequences))
    assert encoded.truncated_tokens == 0
    assert np.isfinite(result(runner, " ".join(words)).values["embedding"]).all()


def test_a_second_text_that_leaves_no_room_is_too_long():
    runner = FakeRunner(max_length=6)
    assert failure(runner, "a", pair="b c d", has_pair=True).reason is Reason.TOO_LONG
    assert encode(runner, "a z", pair="b c", has_pair=True).truncated_tokens == 1


def test_a_pair_is_one_sequence_of_two_segments():
    (sequence,) = encode(FakeRunner(), "a b", pair="c", has_pair=True).sequences
    assert len(sequence) == 6
    assert list(sequence.type_ids) == [0, 0, 0, 0, 1, 1]


def test_a_classifier_answers_with_a_label_and_its_probability():
    values = result(FakeRunner(task=Task.TEXT_CLASSIFICATION), "a b").values
    assert values["label"] in LABELS
    assert 1 / 3 <= values["score"] <= 1


def test_candidates_become_a_sequence_each_and_are_ranked():
    runner = FakeRunner(task=Task.ZERO_SHOT_CLASSIFICATION)
    encoded = encode(runner, "a b", candidates=("x", "y z", "q"))
    assert [len(sequence) for sequence in encoded.sequences] == [6, 7, 6]
    values = runner.decode(encoded, runner.forward(encoded.sequences)).values
    assert sorted(values["labels"]) == ["q", "x", "y z"]
    assert values["scores"] == sorted(values["scores"], reverse=True)


def test_no_candidates_make_an_empty_ranking():
    runner = FakeRunner(task=Task.TEXT_RANKING)
    assert result(runner, "a", candidates=()).values == {"scores": []}


@pytest.mark.parametrize("max_length", [None, 6])
def test_entities_point_into_the_text(max_length):
    runner = FakeRunner(task=Task.TOKEN_CLASSIFICATION, max_length=max_length, truncation=Truncation.WINDOW)
    text = "one two one  three two four one five six seven eight"
    entities = result(runner, text).values["entities"]
    assert entities
    assert all(text[e["start"] : e["end"]] == e["word"] for e in entities)
    assert [e["start"] for e in entities] == sorted({e["start"] for e in entities})
    assert entities == result(FakeRunner(task=Task.TOKEN_CLASSIFICATION), text).values["entities"]


@pytest.mark.parametrize("task", list(Task))
def test_every_task_fills_the_fields_that_it_announces(task):
    runner = FakeRunner(task=task)
    others = {"candidates": ("x",)} if task is Task.ZERO_SHOT_CLASSIFICATION else {}
    row = result(runner, "a b c", **others)
    assert list(row.values) == [field.name for field in runner.fields]


def test_it_counts_the_callers_inside():
    barrier = threading.Barrier(2)
    runner = FakeRunner(on_forward=lambda batch: barrier.wait(timeout=10))
    sequences = encode(runner, "a").sequences
    threads = [threading.Thread(target=runner.forward, args=(sequences,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert runner.max_concurrency == 2


def test_the_hook_can_stop_a_batch():
    def stop(batch):
        raise KeyboardInterrupt

    runner = FakeRunner(on_forward=stop)
    with pytest.raises(KeyboardInterrupt):
        runner.forward(encode(runner, "a").sequences)
    assert runner.batches == []


def test_an_impossible_limit_is_a_usage_error():
    with pytest.raises(UsageError, match="max_length"):
        FakeRunner(max_length=3)
