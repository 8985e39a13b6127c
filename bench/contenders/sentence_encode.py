"""sentence-transformers' `encode` on its three backends: torch, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contenders.base import FastTokenizer, Outcome, PlainScorer, PrepareOptions, Setting, cache_name, padded_tokens

PACKAGES = (
    "sentence-transformers",
    "transformers",
    "torch",
    "optimum-intel",
    "optimum-onnx",
    "openvino",
    "onnxruntime",
)
DTYPES = {"torch": ("float32", "bfloat16"), "openvino": ("float32", "bfloat16"), "onnx": ("float32", "int8")}


class SentenceEncode:
    """Models by folder and dtype; `encode` sorts by itself, so only the batch size is to be tuned."""

    calls: Mapping[str, Any] = {}

    def __init__(self, backend: str) -> None:
        # A model of text needs no torchvision, and where torch is a CPU build the index's torchvision does not load.
        sys.modules["torchvision"] = None  # type: ignore[assignment]
        self._backend = backend
        self._models: dict[tuple[str, str], Any] = {}

    def versions(self) -> Mapping[str, str]:
        """Of what is installed of the packages that matter."""
        found = {}
        for name in PACKAGES:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return found

    def dtypes(self) -> Sequence[str]:
        """By backend."""
        return DTYPES[self._backend]

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """Batch sizes below and at the default."""
        return [{"batch": batch} for batch in (4, 8, 16, 32)]

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> PlainScorer:
        """`encode` with this batch size."""
        loaded = self._model(model, dtype, options)
        tokenizer = FastTokenizer(model, max_length=options.max_length)
        batch = setting["batch"]

        def score(texts: Sequence[str]) -> np.ndarray:
            return loaded.encode(
                list(texts), batch_size=batch, show_progress_bar=False, convert_to_numpy=True, normalize_embeddings=True
            )

        return _Encoded(score, tokenizer, batch)

    def release(self) -> None:
        """Drop the models."""
        self._models.clear()

    def _model(self, model: Path, dtype: str, options: PrepareOptions) -> Any:
        key = (str(model), dtype)
        if key not in self._models:
            import torch

            torch.set_num_threads(options.cores)
            loaded = getattr(self, f"_load_{self._backend}")(model, dtype, options)
            loaded.max_seq_length = options.max_length
            self._models[key] = loaded
        return self._models[key]

    def _load_torch(self, model: Path, dtype: str, options: PrepareOptions) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(model), device="cpu", model_kwargs={"dtype": getattr(torch, dtype)})

    def _load_openvino(self, model: Path, dtype: str, options: PrepareOptions) -> Any:
        from sentence_transformers import SentenceTransformer

        hint = {"float32": "f32", "bfloat16": "bf16"}[dtype]
        kwargs = {"ov_config": {"INFERENCE_PRECISION_HINT": hint}, "device": "CPU"}
        folder = _exported(model, "openvino", options, backend="openvino")
        return SentenceTransformer(str(folder), backend="openvino", model_kwargs={**kwargs, "export": False})

    def _load_onnx(self, model: Path, dtype: str, options: PrepareOptions) -> Any:
        from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

        folder = _exported(model, "onnx", options, backend="onnx", model_kwargs={"provider": "CPUExecutionProvider"})
        kwargs = {"provider": "CPUExecutionProvider", "export": False, "file_name": "onnx/model.onnx"}
        if dtype == "int8":
            kwargs["file_name"] = "onnx/model_qint8_avx512_vnni.onnx"
            if not (folder / kwargs["file_name"]).exists():
                whole = {**kwargs, "file_name": "onnx/model.onnx"}
                plain = SentenceTransformer(str(folder), backend="onnx", model_kwargs=whole)
                export_dynamic_quantized_onnx_model(plain, "avx512_vnni", str(folder))
        return SentenceTransformer(str(folder), backend="onnx", model_kwargs=kwargs)


def _exported(model: Path, kind: str, options: PrepareOptions, **keywords: Any) -> Path:
    """The folder of the model exported for a backend, made once."""
    from sentence_transformers import SentenceTransformer

    folder = options.cache / f"{cache_name(model, 'sentence', kind)}-{kind}"
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        SentenceTransformer(str(model), **keywords).save_pretrained(str(part))
        part.rename(folder)
    return folder


class _Encoded(PlainScorer):
    """Vectors as they come; the padding is counted afterwards, in the order that `encode` uses (characters)."""

    def __init__(self, function: Any, tokenizer: FastTokenizer, batch: int) -> None:
        super().__init__(function)
        self._tokenizer = tokenizer
        self._batch = batch
        self._texts: Sequence[str] = ()

    def stage(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def collect(self, result: Any) -> Outcome:
        lengths = [len(ids) for ids in self._tokenizer.encode(self._texts)]
        order = np.argsort([-len(text) for text in self._texts], kind="stable")
        batches = [order[start : start + self._batch] for start in range(0, len(order), self._batch)]
        return Outcome(vectors=np.asarray(result), processed_tokens=padded_tokens(lengths, batches))


def make(name: str) -> SentenceEncode:
    """The contender for a name such as sentence-transformers-onnx."""
    backend = name.removeprefix("sentence-transformers").lstrip("-") or "torch"
    return SentenceEncode(backend)
