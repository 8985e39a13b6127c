"""transformers' `pipeline`, as people use it: one at a time, in batches as the texts come, in sorted batches.

Its feature extraction returns the states of all tokens; pooling them is left to the user. Here a pipeline class pools
and normalises right after the model, on the batch and with its mask: the cheapest way there is.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contenders.base import (
    AS_GIVEN,
    LONGEST_FIRST,
    FastTokenizer,
    Outcome,
    PlainScorer,
    PrepareOptions,
    Setting,
    cut,
    padded_tokens,
)

DTYPES = ("float32", "bfloat16")


class TransformersPipeline:
    """Pipelines by model and dtype."""

    def __init__(self) -> None:
        self._pipelines: dict[tuple[str, str], Any] = {}
        self.calls: Mapping[str, Any] = {"make_model": make_model}

    def versions(self) -> Mapping[str, str]:
        """Of transformers and torch."""
        return {name: importlib.metadata.version(name) for name in ("transformers", "torch")}

    def dtypes(self) -> Sequence[str]:
        """Both."""
        return DTYPES

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """The sorted ones; how people use it is asked for by name, not tuned."""
        return [{"order": LONGEST_FIRST, "batch": batch} for batch in (1, 4, 8, 32)]

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> PlainScorer:
        """A pipeline that truncates at the limit."""
        pipe = self._pipeline(model, dtype, options)
        tokenizer = FastTokenizer(model, max_length=options.max_length)

        def score(texts: Sequence[str]) -> Outcome:
            if setting["order"] == AS_GIVEN:
                order = np.arange(len(texts))
            else:
                order = np.argsort([-len(ids) for ids in tokenizer.encode(texts)], kind="stable")
            out: np.ndarray | None = None
            found = pipe([texts[i] for i in order], batch_size=setting["batch"])
            for position, vector in zip(order, found, strict=True):
                if out is None:
                    out = np.empty((len(texts), len(vector)), np.float32)
                out[position] = vector
            assert out is not None
            return Outcome(vectors=out)

        def count(texts: Sequence[str]) -> int:
            lengths = [len(ids) for ids in tokenizer.encode(texts)]
            return padded_tokens(lengths, cut(lengths, order=setting["order"], batch=setting["batch"]))

        return _Counted(score, count)

    def release(self) -> None:
        """Drop the models."""
        self._pipelines.clear()

    def _pipeline(self, model: Path, dtype: str, options: PrepareOptions) -> Any:
        key = (str(model), dtype)
        if key not in self._pipelines:
            import torch
            from transformers import pipeline

            torch.set_num_threads(options.cores)
            self._pipelines[key] = pipeline(
                "feature-extraction",
                model=str(model),
                dtype=getattr(torch, dtype),
                device="cpu",
                pipeline_class=_pooling_class(),
                tokenize_kwargs={"truncation": True, "max_length": options.max_length},
            )
        return self._pipelines[key]


class _Counted(PlainScorer):
    """Counts the padding after the timed part, where the pipeline does not tell."""

    def __init__(self, function: Any, count: Any) -> None:
        super().__init__(function)
        self._count = count
        self._texts: Sequence[str] = ()

    def stage(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def collect(self, result: Outcome) -> Outcome:
        return Outcome(vectors=result.vectors, processed_tokens=self._count(self._texts))


def _pooling_class() -> Any:
    import torch
    from transformers import FeatureExtractionPipeline

    class MeanPooled(FeatureExtractionPipeline):
        def _forward(self, model_inputs: Any) -> Any:
            states = self.model(**model_inputs)[0]
            weights = model_inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
            return {"pooled": torch.nn.functional.normalize(pooled.float(), dim=1)}

        def postprocess(self, model_outputs: Any, **parameters: Any) -> Any:
            return model_outputs["pooled"][0].numpy()

    return MeanPooled


def make_model(source: str, target: str, seed: int) -> dict[str, Any]:
    """Save a BERT of base size with random weights beside the source's tokenizer and pooling, once."""
    import json
    import shutil

    import torch
    from transformers import BertConfig, BertModel

    folder, origin = Path(target), Path(source)
    if (folder / "model.safetensors").exists():
        return {"made": False}
    vocabulary = json.loads((origin / "config.json").read_text())["vocab_size"]
    config = BertConfig(vocab_size=vocabulary)  # its defaults are bert-base
    torch.manual_seed(seed)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    BertModel(config).save_pretrained(part)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(origin / name, part / name)
    shutil.copy(origin / "modules.json", part / "modules.json")
    shutil.copy(origin / "config_sentence_transformers.json", part / "config_sentence_transformers.json")
    (part / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))
    pooling = json.loads((origin / "1_Pooling" / "config.json").read_text())
    (part / "1_Pooling").mkdir()
    (part / "1_Pooling" / "config.json").write_text(
        json.dumps({**pooling, "word_embedding_dimension": config.hidden_size})
    )
    part.rename(folder)
    return {"made": True}


def make(name: str) -> TransformersPipeline:
    """The contender."""
    return TransformersPipeline()
