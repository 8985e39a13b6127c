"""ONNX Runtime by hand: pooling in the graph, attention fused by its transformer optimiser, dynamic int8."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contenders.base import (
    FastTokenizer,
    Outcome,
    PlainScorer,
    PrepareOptions,
    Setting,
    cache_name,
    cut,
    network,
    pad,
    padded_tokens,
    run_batches,
    stream_settings,
)


class OnnxRuntimeLoop:
    """Sessions by setting; exported and optimised graphs are kept on disk."""

    calls: Mapping[str, Any] = {}

    def versions(self) -> Mapping[str, str]:
        """Of ONNX Runtime."""
        return {"onnxruntime": importlib.metadata.version("onnxruntime")}

    def dtypes(self) -> Sequence[str]:
        """Its CPU kernels know no bfloat16."""
        return ("float32", "int8")

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """One session over all cores, or as many callers as cores."""
        return stream_settings(cores, (4, 8))

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> PlainScorer:
        """A session with the setting's threads, shared by the setting's streams."""
        import onnxruntime

        told = onnxruntime.SessionOptions()
        told.intra_op_num_threads = setting["threads"]
        told.inter_op_num_threads = 1
        told.add_session_config_entry("session.force_spinning_stop", "1")  # nothing spins while others are timed
        path = _graph(model, dtype, options)
        session = onnxruntime.InferenceSession(str(path), told, providers=["CPUExecutionProvider"])
        tokenizer = FastTokenizer(model, max_length=options.max_length)
        kinds = {item.name: np.int32 if "int32" in item.type else np.int64 for item in session.get_inputs()}

        def score(texts: Sequence[str]) -> Outcome:
            ids = tokenizer.encode(texts)
            lengths = [len(item) for item in ids]
            batches = cut(lengths, order=setting["order"], batch=setting["batch"])
            out: list[Any] = [None] * len(texts)

            def compute(batch: np.ndarray) -> None:
                tokens, mask = pad([ids[i] for i in batch])
                arrays = {"input_ids": tokens, "attention_mask": mask}
                vectors = session.run(None, {name: arrays[name].astype(kind) for name, kind in kinds.items()})[0]
                for position, vector in zip(batch, vectors):
                    out[position] = vector

            run_batches(compute, batches, streams=setting["streams"])
            return Outcome(vectors=np.stack(out), processed_tokens=padded_tokens(lengths, batches))

        return PlainScorer(score)

    def release(self) -> None:
        """Sessions go with their scorers."""


def _graph(model: Path, dtype: str, options: PrepareOptions) -> Path:
    stem = cache_name(model, "onnxruntime", importlib.metadata.version("onnxruntime"))
    plain = options.cache / f"{stem}.onnx"
    if not plain.exists():
        _export(model, plain)
    if dtype == "float32":
        return plain
    quantized = options.cache / f"{stem}-int8.onnx"
    if not quantized.exists():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # shape inference does not know the types that fused nodes give
        told = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(plain, quantized, per_channel=True, weight_type=QuantType.QInt8, extra_options=told)
    return quantized


def _export(model: Path, target: Path) -> None:
    import torch
    from onnxruntime.transformers.optimizer import optimize_model

    config = json.loads((model / "config.json").read_text())
    raw = target.with_name(target.stem + "-raw.onnx")
    example = (torch.ones(2, 8, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64))
    axes = {0: "batch", 1: "length"}
    with torch.no_grad():
        torch.onnx.export(
            network(model),
            example,
            str(raw),
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes, "vectors": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
    fused = optimize_model(
        str(raw),
        model_type="bert",
        num_heads=config["num_attention_heads"],
        hidden_size=config["hidden_size"],
        opt_level=1,
    )
    fused.save_model_to_file(str(target))
    raw.unlink()


def make(name: str) -> OnnxRuntimeLoop:
    """The contender."""
    return OnnxRuntimeLoop()
