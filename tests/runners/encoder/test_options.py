from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from setpoint.domain.task import Task
from setpoint.domain.truncation import Truncation
from setpoint.errors import UsageError
from setpoint.runners.encoder.options import EncoderOptions

BASE = {"model": "m", "task": "feature-extraction"}


def test_aliases_and_texts_become_what_they_mean() -> None:
    options = EncoderOptions(
        model=Path("models") / "m", task="embed", dtype="BF16", truncation="window", backend="Torch"
    )
    assert options.model == "models/m"
    assert options.task is Task.FEATURE_EXTRACTION
    assert options.dtype == "bfloat16"
    assert options.truncation is Truncation.WINDOW
    assert options.backend == "torch"
    assert EncoderOptions(model="m", task="zero-shot-classification", labels="a, b ,c").labels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dtyp": "bf16"}, "did you mean 'dtype'"),
        ({"dtype": "bfloat61"}, "did you mean 'bfloat16'"),
        ({"backend": "openvin"}, "did you mean 'openvino'"),
        ({"pooling": "clss"}, "did you mean 'cls'"),
        ({"truncation": "windows"}, "did you mean 'window'"),
        ({"task": "text-clasification"}, "did you mean 'text-classification'"),
        ({"task": 3}, "task must be text, not 3"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cpu:1"}, "write for example cuda:1"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"max_batch_tokens": -5}, "max_batch_tokens must be at least 1, not -5"),
        ({"max_length": "512"}, "max_length must be a whole number, not '512'"),
        ({"threads": True}, "threads must be a whole number, not True"),
        ({"window_overlap": -1}, "window_overlap must be at least 0"),
        ({"normalize": "yes"}, "normalize must be true or false, not 'yes'"),
        ({"trust_remote_code": 1}, "trust_remote_code must be true or false"),
        ({"model": ""}, "model must be a folder or a hub id"),
        ({"model": None}, "model must be a folder or a hub id"),
        ({"prompt": "a", "prompt_name": "b"}, "not both"),
        ({"prompt": 3}, "prompt must be text, not 3"),
        ({"labels": ["a"]}, "means nothing to feature-extraction; it is for zero-shot-classification"),
        ({"top_k": 2}, "it is for text-classification"),
        ({"task": "ner", "aggregation": "avg"}, "did you mean 'average'"),
        ({"task": "text-classification", "top_k": 0}, "top_k must be at least 1"),
        ({"task": "text-classification", "top_k": "some"}, "a positive number or 'all'"),
        ({"task": "text-classification", "function_to_apply": "relu"}, "unknown function_to_apply 'relu'"),
        ({"task": "zero-shot-classification", "labels": []}, "at least one candidate label"),
        ({"task": "zero-shot-classification", "labels": ["a", " "]}, "blank entry"),
        ({"task": "zero-shot-classification", "labels": ["a", "b", "a"]}, "repeats 'a'"),
        ({"task": "zero-shot-classification", "labels": ["a", 3]}, "3 is not one"),
        ({"task": "zero-shot-classification", "labels": 3}, "must be a list of texts"),
        ({"task": "zero-shot-classification", "hypothesis_template": "It is so."}, "no place for the label"),
        ({"task": "zero-shot-classification", "hypothesis_template": "It is {} {}."}, "cannot be filled in"),
        ({"task": "zero-shot-classification", "hypothesis_template": "It is {"}, "cannot be filled in"),
    ],
)
def test_wrong_values_are_named(values: dict, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        EncoderOptions.from_keywords({**BASE, **values})
    assert said in str(caught.value)


def test_model_and_task_are_required() -> None:
    with pytest.raises(UsageError, match="'task' is required"):
        EncoderOptions.from_keywords({"model": "m"})


def test_options_load_nothing_heavy() -> None:
    code = (
        "import sys, setpoint.runners.encoder.options; "
        "print([name for name in ('torch', 'transformers', 'tokenizers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
