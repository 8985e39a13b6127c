"""OpenVINO by hand: pooling and normalising in the graph, batches longest first through an asynchronous queue."""

from __future__ import annotations

import importlib.metadata
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
    stream_settings,
)

HINTS = {"float32": ("FP32", "f32"), "bfloat16": ("BF16", "bf16")}
SMOOTHING = (0.5, 0.65, 0.35)  # tried until every held-out text is as close to float32 as `GOOD_COSINE` says
GOOD_COSINE = 0.99
CALIBRATION_TEXTS = 96  # at most, and at most half of those that there are


class OpenVINOLoop:
    """Compiled graphs by setting; converted ones are kept on disk."""

    calls: Mapping[str, Any] = {}

    def __init__(self) -> None:
        import openvino

        self._ov = openvino
        self._core = openvino.Core()
        self._graphs: dict[tuple[str, bool], Any] = {}

    def versions(self) -> Mapping[str, str]:
        """Of OpenVINO and the quantiser."""
        return {name: importlib.metadata.version(name) for name in ("openvino", "nncf")}

    def dtypes(self) -> Sequence[str]:
        """What the CPU device says that it has."""
        capabilities = self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        found = [dtype for dtype, (capability, _) in HINTS.items() if capability in capabilities]
        return [*found, "int8"] if "INT8" in capabilities else found

    def settings(self, dtype: str, cores: int) -> Sequence[Setting]:
        """One stream over all cores, or one-thread streams."""
        return stream_settings(cores, (2, 4, 8))

    def prepare(self, model: Path, dtype: str, setting: Setting, options: PrepareOptions) -> PlainScorer:
        """Compile for this setting."""
        graph = self._graph(model, dtype == "int8", options)
        wide = "bfloat16" if dtype == "int8" and "bfloat16" in self.dtypes() else dtype
        compiled = self._core.compile_model(
            graph,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": HINTS[wide if wide in HINTS else "float32"][1],
                "INFERENCE_NUM_THREADS": options.cores,
                "NUM_STREAMS": setting["streams"],
            },
        )
        queue = self._ov.AsyncInferQueue(compiled, setting["streams"] + 1)  # one waits, so that no stream idles
        tokenizer = FastTokenizer(model, max_length=options.max_length)
        size = compiled.output(0).partial_shape[1].get_length()

        def score(texts: Sequence[str]) -> Outcome:
            ids = tokenizer.encode(texts)
            lengths = [len(item) for item in ids]
            batches = cut(lengths, order=setting["order"], batch=setting["batch"])
            out = np.empty((len(texts), size), np.float32)

            def keep(request: Any, userdata: tuple[np.ndarray, Any]) -> None:
                out[userdata[0]] = request.get_output_tensor(0).data

            queue.set_callback(keep)
            for batch in batches:
                inputs = pad([ids[i] for i in batch])
                queue.start_async(list(inputs), (batch, inputs), share_inputs=True)
            queue.wait_all()
            return Outcome(vectors=out, processed_tokens=padded_tokens(lengths, batches))

        return PlainScorer(score)

    def release(self) -> None:
        """Drop the graphs."""
        self._graphs.clear()

    def _graph(self, model: Path, quantized: bool, options: PrepareOptions) -> Any:
        key = (str(model), quantized)
        if key not in self._graphs:
            self._graphs[key] = self._quantized(model, options) if quantized else self._converted(model, options)
        return self._graphs[key]

    def _converted(self, model: Path, options: PrepareOptions) -> Any:
        path = options.cache / f"{cache_name(model, 'openvino', self._ov.__version__)}.xml"
        if not path.exists():
            import torch

            example = {name: torch.ones(2, 8, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
            with torch.no_grad():
                graph = self._ov.convert_model(network(model), example_input=example, input=[[-1, -1], [-1, -1]])
            self._ov.save_model(graph, path, compress_to_fp16=False)
        return self._core.read_model(path)

    def _quantized(self, model: Path, options: PrepareOptions) -> Any:
        """Calibrated on such texts; half of them calibrate, the others say which smoothing is close enough."""
        import hashlib

        digest = hashlib.blake2b("\0".join(options.calibration).encode(), digest_size=8).hexdigest()
        versions = tuple(self.versions().values())
        path = options.cache / f"{cache_name(model, 'int8', digest, *versions, SMOOTHING, CALIBRATION_TEXTS)}.xml"
        if not path.exists():
            self._ov.save_model(self._quantize(model, options), path, compress_to_fp16=False)
        return self._core.read_model(path)

    def _quantize(self, model: Path, options: PrepareOptions) -> Any:
        import nncf

        graph = self._graph(model, False, options)
        ids = FastTokenizer(model, max_length=options.max_length).encode(options.calibration)
        items = [list(pad([item])) for item in ids]
        count = min(CALIBRATION_TEXTS, len(items) // 2)
        calibration, held_out = items[:count], items[count : 2 * count]
        expected = self._vectors(graph, held_out)
        best: tuple[float, Any] | None = None
        for alpha in SMOOTHING:
            found = nncf.quantize(
                graph.clone(),
                nncf.Dataset(calibration),
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(calibration),
                advanced_parameters=nncf.AdvancedQuantizationParameters(
                    smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=alpha)
                ),
            )
            worst = float((self._vectors(found, held_out) * expected).sum(1).min())
            if best is None or worst > best[0]:
                best = (worst, found)
            if worst >= GOOD_COSINE:
                break
        assert best is not None
        return best[1]

    def _vectors(self, graph: Any, items: Sequence[Any]) -> np.ndarray:
        compiled = self._core.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()
        return np.concatenate([np.array(request.infer(item)[0]) for item in items])


def make(name: str) -> OpenVINOLoop:
    """The contender."""
    return OpenVINOLoop()
