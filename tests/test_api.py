"""Setpoint from Python, held to transformers' pipelines and to sentence-transformers."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.base.modules import Transformer as TheirTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import pipeline

import setpoint
from setpoint.api import RowsFailedWarning, Scorer, stream
from setpoint.domain.batch import BatchShape
from setpoint.errors import InputError, ModelError, UsageError
from setpoint.runners.encoder.runner import EncoderRunner
from tests.runners.encoder.plain import PlainExecutor, plain_runner
from tests.runners.encoder.tiny import HIDDEN, WORDS, tiny_model_folder

TEXTS = [" ".join(np.random.default_rng(seed).choice(WORDS, 1 + seed * 3)) for seed in range(20)]
LABELS = ["refund", "printer crash", "good movie"]


def scorer(folder: Path, task: str, *, errors: str = "null", **options: Any) -> Scorer:
    return Scorer(plain_runner(folder, task, **options), errors=errors)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    tasks = ("text-classification", "zero-shot-classification", "token-classification", "text-ranking")
    found = {task: tiny_model_folder(place, "bert", task) for task in tasks}
    bare = tiny_model_folder(place, "bert")
    prompts = {"query": "help with ", "passage": "the price of "}
    SentenceTransformer(
        modules=[TheirTransformer(str(bare)), Pooling(HIDDEN), Normalize()], device="cpu", prompts=prompts
    ).save_pretrained(str(place / "sentence"), create_model_card=False)
    return {**found, "bare": bare, "feature-extraction": place / "sentence"}


def close_to(found: Any, wanted: Any) -> None:
    """The same structure, numbers within 1e-5."""
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            close_to(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert isinstance(found, list)
        assert len(found) == len(wanted)
        for left, right in zip(found, wanted, strict=True):
            close_to(left, right)
    elif isinstance(wanted, str | int):
        assert found == wanted
    else:
        assert found == pytest.approx(float(wanted), abs=1e-5)


# Shapes of the pipelines


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("text-classification", {}),
        ("text-classification", {"top_k": 2}),
        ("text-classification", {"top_k": None}),
        ("text-classification", {"top_k": 1, "function_to_apply": "sigmoid"}),
        ("zero-shot-classification", {"candidate_labels": LABELS}),
        ("zero-shot-classification", {"candidate_labels": "refund, late", "multi_label": True}),
        ("zero-shot-classification", {"candidate_labels": LABELS, "hypothesis_template": "the order is {}"}),
        ("token-classification", {}),
        ("token-classification", {"aggregation_strategy": "first"}),
    ],
)
def test_answers_have_the_pipelines_shapes(folders: dict[str, Path], task: str, arguments: dict[str, Any]) -> None:
    ours = scorer(folders[task], task)
    theirs = pipeline(task, model=str(folders[task]), device="cpu")
    close_to(ours(TEXTS, **arguments), theirs(TEXTS, **arguments))
    close_to(ours(TEXTS[3], **arguments), theirs(TEXTS[3], **arguments))
    close_to(list(ours(iter(TEXTS), **arguments)), theirs(TEXTS, **arguments))


def test_options_of_the_load_hold_for_calls(folders: dict[str, Path]) -> None:
    task = "zero-shot-classification"
    ours = scorer(folders[task], task, labels=LABELS, multi_label=True)
    theirs = pipeline(task, model=str(folders[task]), device="cpu")
    close_to(ours(TEXTS[:4]), theirs(TEXTS[:4], LABELS, multi_label=True))
    close_to(ours(TEXTS[:4], ["late", "help"], multi_label=False), theirs(TEXTS[:4], ["late", "help"]))
    close_to(ours(TEXTS[:4]), theirs(TEXTS[:4], LABELS, multi_label=True))


def test_labels_may_differ_by_row(folders: dict[str, Path]) -> None:
    task = "zero-shot-classification"
    ours = scorer(folders[task], task)
    theirs = pipeline(task, model=str(folders[task]), device="cpu")
    rows = [{"sequence": TEXTS[1], "labels": LABELS}, {"text": TEXTS[2], "candidate_labels": "late, help"}]
    close_to(ours(rows), [theirs(TEXTS[1], LABELS), theirs(TEXTS[2], ["late", "help"])])


def test_a_model_of_several_labels_answers_as_the_pipeline(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert", "text-classification", problem_type="multi_label_classification")
    ours = scorer(folder, "text-classification")
    theirs = pipeline("text-classification", model=str(folder), device="cpu")
    close_to(ours(TEXTS[:3]), theirs(TEXTS[:3]))
    close_to(ours(TEXTS[:3], multi_label=True), theirs(TEXTS[:3], top_k=None))


def test_pairs(folders: dict[str, Path]) -> None:
    task = "text-classification"
    ours = scorer(folders[task], task)
    theirs = pipeline(task, model=str(folders[task]), device="cpu")
    pairs = [(TEXTS[i], TEXTS[-i]) for i in range(1, 6)]
    as_dicts = [{"text": first, "text_pair": second} for first, second in pairs]
    wanted = theirs(as_dicts)
    for form in (as_dicts, pairs, [list(pair) for pair in pairs]):
        close_to(ours(form), wanted)
    close_to(ours(as_dicts[0]), theirs(as_dicts[0]))
    close_to(ours(pairs[0]), theirs(as_dicts[0]))


def test_feature_extraction_gives_vectors_or_nested_states(folders: dict[str, Path]) -> None:
    vectors = scorer(folders["feature-extraction"], "feature-extraction")(TEXTS[:3])
    assert [(type(vector), vector.shape, vector.dtype) for vector in vectors] == [
        (np.ndarray, (HIDDEN,), np.dtype("float32"))
    ] * 3
    states = scorer(folders["bare"], "feature-extraction", pooling="none")
    theirs = pipeline("feature-extraction", model=str(folders["bare"]), device="cpu")
    close_to(states(TEXTS[:3]), theirs(TEXTS[:3]))
    close_to(states(TEXTS[0]), theirs(TEXTS[0]))


# Inputs


def test_lists_give_lists_and_iterables_iterators(folders: dict[str, Path]) -> None:
    ours = scorer(folders["text-classification"], "text-classification")
    wanted = ours(TEXTS)
    table = datasets.Dataset.from_dict({"text": TEXTS, "other": list(range(len(TEXTS)))})
    for listed in (tuple(TEXTS), np.array(TEXTS, dtype=object), table["text"]):
        close_to(ours(listed), wanted)
    for streamed in (iter(TEXTS), (text for text in TEXTS), table, dict.fromkeys(TEXTS).keys()):
        answers = ours(streamed)
        assert isinstance(answers, Iterator)
        close_to(list(answers), wanted)


@pytest.mark.parametrize("task", ["text-classification", "zero-shot-classification", "token-classification"])
def test_nothing_gives_nothing(folders: dict[str, Path], task: str) -> None:
    ours = scorer(folders[task], task, **({"labels": LABELS} if task.startswith("zero") else {}))
    assert ours([]) == []
    assert list(ours(iter([]))) == []


@pytest.mark.parametrize("data", [3, 2.5, object()])
def test_what_is_no_text_is_named(folders: dict[str, Path], data: Any) -> None:
    ours = scorer(folders["text-classification"], "text-classification")
    with pytest.raises(UsageError, match=f"not {type(data).__name__}"):
        ours(data)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "order", "text_par": "late"}, "did you mean 'text_pair'"),
        ({"label": 3}, "unknown key 'label'"),
        ({}, "missing_column: no 'text'"),
    ],
)
def test_dictionaries_with_other_keys_fail_their_row(folders: dict[str, Path], row: dict[str, Any], said: str) -> None:
    ours = scorer(folders["text-classification"], "text-classification")
    with pytest.raises(InputError, match=said):
        ours([row], errors="raise")
    with pytest.warns(RowsFailedWarning):
        assert ours([row, "order"])[0] is None


def test_a_generator_is_read_ahead_by_a_bounded_number_of_rows(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_STREAM_ROWS", 10)
    monkeypatch.setattr(stream, "_BLOCK_ROWS", 5)
    ours = scorer(folders["text-classification"], "text-classification")
    num_read = 0
    me = threading.get_ident()

    def endless() -> Iterator[str]:
        nonlocal num_read
        for text in itertools.cycle(TEXTS):
            assert threading.get_ident() == me
            num_read += 1
            yield text

    answers = ours(endless())
    assert num_read == 0
    wanted = ours(TEXTS)
    for number, answer in enumerate(itertools.islice(answers, 60)):
        close_to(answer, wanted[number % len(TEXTS)])
        assert num_read <= number + 1 + 2 * 10 + 5
    answers.close()


def test_an_error_of_the_users_generator_comes_through(folders: dict[str, Path]) -> None:
    ours = scorer(folders["text-classification"], "text-classification")

    def broken() -> Iterator[str]:
        yield "order"
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        list(ours(broken()))
    assert len(ours(TEXTS)) == len(TEXTS)


def test_several_threads_may_call(folders: dict[str, Path]) -> None:
    ours = scorer(folders["text-classification"], "text-classification")
    wanted = ours(TEXTS)
    found: list[Any] = [None] * 4

    def call(number: int) -> None:
        found[number] = ours(TEXTS)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for answers in found:
        close_to(answers, wanted)


# Failures


def test_a_failed_row_is_none_in_place_with_one_warning(folders: dict[str, Path]) -> None:
    ours = scorer(folders["text-classification"], "text-classification")
    rows: list[Any] = ["order", None, "late", "", "help", float("nan"), 7]
    with pytest.warns(RowsFailedWarning) as caught:
        answers = ours(rows)
    assert [answer is None for answer in answers] == [False, True, False, True, False, True, True]
    assert len(caught) == 1
    assert "4 of 7 rows have no answer (positions from 0): 2 missing_text (1, 5: text is missing)" in str(
        caught[0].message
    )
    assert caught[0].filename == __file__
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        iterator = ours(iter(rows))
        answers = [next(iterator)]
        assert told == []
        answers += iterator
    assert [answer is None for answer in answers] == [False, True, False, True, False, True, True]
    assert [warning.category for warning in told] == [RowsFailedWarning]
    with pytest.warns(RowsFailedWarning):
        assert ours(None) is None


def test_errors_may_be_raised(folders: dict[str, Path]) -> None:
    ours = scorer(folders["text-classification"], "text-classification", errors="raise")
    with pytest.raises(InputError, match=r"row 1 \(from 0\) has no answer: empty_text"):
        ours(["order", " ", "late"])
    with pytest.raises(UsageError, match="did you mean 'raise'"):
        ours(["order"], errors="raises")


class Failing(PlainExecutor):
    """Fails on a token, and answers another with NaN."""

    def __init__(self, model: Any, *, poison: int, nan: int) -> None:
        super().__init__(model)
        self.poison, self.nan = poison, nan

    def forward(self, batch: Any) -> list[np.ndarray]:
        if any(self.poison in sequence.ids for sequence in batch):
            raise RuntimeError("cannot")
        return [
            np.full_like(output, np.nan) if self.nan in sequence.ids else output
            for output, sequence in zip(super().forward(batch), batch, strict=True)
        ]


def test_what_the_model_cannot_do_stays_with_its_row(folders: dict[str, Path]) -> None:
    plain = plain_runner(folders["text-classification"], "text-classification")
    vocabulary = plain.model.tokenizer.get_vocab()
    executor = Failing(plain.model, poison=vocabulary["berlin"], nan=vocabulary["acme"])
    shape = BatchShape(max_batch_tokens=1_000, num_streams=2)
    ours = Scorer(EncoderRunner(plain.model, plain.options, executor=executor, shape=shape))
    rows = ["order late", "berlin", "help", "acme", "good movie"]
    with pytest.warns(RowsFailedWarning, match=r"1 model_failed \(1: RuntimeError: cannot\); 1 not_finite \(3"):
        answers = ours(rows)
    with warnings.catch_warnings():
        close_to([answers[0], answers[2], answers[4]], Scorer(plain)(["order late", "help", "good movie"]))
    with pytest.raises(ModelError, match="model_failed"):
        ours(rows, errors="raise")


# Keywords


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"top_kk": 2}, "did you mean 'top_k'"),
        ({"max_length": 20}, "give it to setpoint.load"),
        ({"candidate_labels": ["a"]}, "labels can't be changed by a call of text-classification"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"top_k": 0}, "top_k must be at least 1"),
    ],
)
def test_keywords_of_calls_are_checked(folders: dict[str, Path], arguments: dict[str, Any], said: str) -> None:
    ours = scorer(folders["text-classification"], "text-classification")
    with pytest.raises(UsageError, match=said):
        ours(TEXTS[:2], **arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dtyp": "float32"}, "did you mean 'dtype'"),
        ({"errors": "ignore"}, "unknown errors 'ignore'"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"dtype": "float99"}, "unknown dtype"),
        ({"torch_dtype": "float32", "dtype": "float32"}, "the same"),
        ({"device": "gpu"}, "unknown device"),
    ],
)
def test_keywords_of_loads_are_checked(folders: dict[str, Path], arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        setpoint.load("text-classification", folders["text-classification"], **arguments)
    with pytest.raises(UsageError, match="did you mean 'text-classification'"):
        setpoint.load("text-clasification", folders["text-classification"])


def test_batch_size_bounds_the_batches(folders: dict[str, Path]) -> None:
    plain = plain_runner(folders["text-classification"], "text-classification")
    sizes: list[int] = []

    class Recording(PlainExecutor):
        def forward(self, batch: Any) -> list[np.ndarray]:
            sizes.append(len(batch))
            return super().forward(batch)

    ours = Scorer(
        EncoderRunner(
            plain.model,
            plain.options,
            executor=Recording(plain.model),
            shape=BatchShape(max_batch_tokens=10_000),
        )
    )
    ours(TEXTS)
    assert max(sizes) == len(TEXTS)
    sizes.clear()
    ours(TEXTS, batch_size=3)
    assert max(sizes) == 3


# As sentence-transformers


@pytest.fixture(scope="module")
def embedder(folders: dict[str, Path]) -> tuple[Scorer, SentenceTransformer]:
    folder = folders["feature-extraction"]
    return scorer(folder, "feature-extraction"), SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"prompt_name": "query"},
        {"prompt": "a b c "},
        {"prompt": "a b c ", "prompt_name": "query"},
        {"truncate_dim": 8},
        {"truncate_dim": 8, "normalize_embeddings": True},
        {"batch_size": 2},
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
    ],
)
def test_encode(embedder: tuple[Scorer, SentenceTransformer], arguments: dict[str, Any]) -> None:
    ours, theirs = embedder
    for sentences in (TEXTS, TEXTS[2]):
        found, wanted = ours.encode(sentences, **arguments), theirs.encode(sentences, **arguments)
        assert type(found) is type(wanted)
        if isinstance(wanted, list):
            assert all(isinstance(vector, torch.Tensor) for vector in found)
            found, wanted = torch.stack(found), torch.stack(wanted)
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), atol=1e-5)


def test_encode_queries_and_documents(embedder: tuple[Scorer, SentenceTransformer]) -> None:
    ours, theirs = embedder
    np.testing.assert_allclose(ours.encode_query(TEXTS), theirs.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(ours.encode_document(TEXTS), theirs.encode_document(TEXTS), atol=1e-5)


def test_encode_nothing(embedder: tuple[Scorer, SentenceTransformer]) -> None:
    ours, theirs = embedder
    assert ours.encode([]).shape == theirs.encode([]).shape == (0,)
    assert ours.encode([], convert_to_tensor=True).shape == (0,)
    assert ours.encode([], convert_to_numpy=False) == []


def test_encode_marks_failed_rows_with_nan(embedder: tuple[Scorer, SentenceTransformer]) -> None:
    ours, theirs = embedder
    with pytest.warns(RowsFailedWarning, match="1 of 3 rows"):
        found = ours.encode(["order", "", "late"])
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[[0, 2]], theirs.encode(["order", "late"]), atol=1e-5)


def test_encode_shows_progress_on_stderr(
    embedder: tuple[Scorer, SentenceTransformer], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, _ = embedder
    ours.encode(TEXTS)
    assert capsys.readouterr() == ("", "")
    ours.encode(TEXTS, show_progress_bar=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "20 rows" in shown.err


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarity(embedder: tuple[Scorer, SentenceTransformer], tmp_path: Path, name: str) -> None:
    _, theirs = embedder
    theirs.similarity_fn_name = name
    theirs.save_pretrained(str(tmp_path), create_model_card=False)
    ours = scorer(tmp_path, "feature-extraction")
    vectors = theirs.encode(TEXTS, normalize_embeddings=False) * 3
    found = ours.similarity(vectors[:5], vectors)
    torch.testing.assert_close(found, theirs.similarity(vectors[:5], vectors), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        ours.similarity(vectors[0], list(vectors)), theirs.similarity(vectors[0], list(vectors)), atol=1e-5, rtol=1e-5
    )


def test_methods_of_other_tasks_say_so(folders: dict[str, Path]) -> None:
    classifier = scorer(folders["text-classification"], "text-classification")
    with pytest.raises(UsageError, match="encode is for feature-extraction"):
        classifier.encode(TEXTS)
    with pytest.raises(UsageError, match="rank is for text-ranking"):
        classifier.rank("order", TEXTS)
    with pytest.raises(UsageError, match="without pooling='none'"):
        scorer(folders["bare"], "feature-extraction", pooling="none").encode(TEXTS)


def test_a_prompt_that_is_left_out_of_the_pooling_belongs_to_the_load(folders: dict[str, Path], tmp_path: Path) -> None:
    SentenceTransformer(
        modules=[TheirTransformer(str(folders["bare"])), Pooling(HIDDEN, include_prompt=False)], device="cpu"
    ).save_pretrained(str(tmp_path), create_model_card=False)
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS, prompt="help with ")
    ours = scorer(tmp_path, "feature-extraction")
    with pytest.raises(UsageError, match="give the prompt when loading it"):
        ours.encode(TEXTS, prompt="help with ")
    loaded = scorer(tmp_path, "feature-extraction", prompt="help with ")
    np.testing.assert_allclose(loaded.encode(TEXTS), theirs, atol=1e-5)


@pytest.mark.parametrize("arguments", [{}, {"top_k": 3}, {"return_documents": True}, {"batch_size": 2}])
def test_rank(folders: dict[str, Path], arguments: dict[str, Any]) -> None:
    ours = scorer(folders["text-ranking"], "text-ranking")
    theirs = CrossEncoder(str(folders["text-ranking"]), device="cpu")
    close_to(ours.rank("order late", TEXTS, **arguments), theirs.rank("order late", TEXTS, **arguments))
    assert ours.rank("order", []) == []
    with pytest.raises(InputError, match="row 1"):
        ours.rank("order", ["late", ""])
    with pytest.raises(UsageError, match="top_k"):
        ours.rank("order", TEXTS, top_k=0)


def test_ranking_rows(folders: dict[str, Path]) -> None:
    ours = scorer(folders["text-ranking"], "text-ranking")
    scores = CrossEncoder(str(folders["text-ranking"]), device="cpu").predict([("order", text) for text in TEXTS])
    close_to(ours({"query": "order", "documents": TEXTS}), {"scores": list(scores)})
    close_to(ours([("order", text) for text in TEXTS]), [{"score": score} for score in scores])
    close_to(ours({"query": "order", "document": TEXTS[1]}), {"score": scores[1]})


# The whole way


def test_load_chooses_and_runs(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = folders["text-classification"]
    with setpoint.load("sentiment-analysis", folder, backend="torch", dtype=torch.float32, device=-1) as ours:
        close_to(ours(TEXTS), pipeline("text-classification", model=str(folder), device="cpu")(TEXTS))
        assert ours.runner.fingerprint["dtype"] == "float32"
        assert ours.task == "text-classification"


def test_importing_setpoint_loads_nothing_heavy() -> None:
    code = (
        "import sys, setpoint; "
        "heavy = ('torch', 'transformers', 'numpy', 'pyarrow', 'openvino', 'scipy', 'rich'); "
        "print([name for name in heavy if name in sys.modules], setpoint.load.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[] setpoint.api.scorer"
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = setpoint.lode
