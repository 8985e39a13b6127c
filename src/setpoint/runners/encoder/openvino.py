"""The OpenVINO executor for CPUs: batches of like lengths, padded to their longest, on one or more streams."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from setpoint.domain.batch import BatchCost
from setpoint.errors import OutOfMemory, UsageError
from setpoint.runners.base import TokenSequence
from setpoint.runners.encoder.graph import import_openvino, input_names, load_graph
from setpoint.runners.encoder.model import EncoderModel, OutputKind
from setpoint.runners.encoder.padded_batch import pad_batch

# What the CPU device must list among its capabilities, and the precision to ask for. int8 lies in the graph itself;
# what is left of it (attention, norms) runs in the fastest precision that the CPU has.
_PRECISIONS = {"float32": ("FP32", "f32"), "bfloat16": ("BF16", "bf16"), "float16": ("FP16", "f16")}
_MEMORY_WORDS = ("bad_alloc", "allocate", "out of memory", "not enough memory")


def supported_dtypes() -> tuple[str, ...]:
    """The dtypes that this CPU computes in, by name, float32 first; int8 where it has instructions for it."""
    capabilities = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    found = [dtype for dtype, (capability, _) in _PRECISIONS.items() if capability in capabilities]
    return (*found, "int8") if "INT8" in capabilities else tuple(found)


class OpenVINOExecutor:
    """One compiled graph; up to `num_streams` callers compute at once, each on `num_threads / num_streams` threads.

    `graph` is the float32 graph, or the quantised one for dtype int8. Raises UsageError for a dtype that the CPU does
    not have.
    """

    name = "openvino"
    cost = BatchCost.PADDED

    def __init__(self, model: EncoderModel, graph: Any, *, dtype: str, num_threads: int, num_streams: int) -> None:
        dtypes = supported_dtypes()
        if dtype not in dtypes:
            raise UsageError(f"this CPU does not compute in {dtype} with OpenVINO; it has {', '.join(dtypes)}")
        self.dtype = dtype
        self.num_streams = num_streams
        self.num_threads = num_threads
        self._pad_id = model.tokenizer.pad_token_id or 0
        self._names = input_names(model)
        self._per_token = model.output in (OutputKind.TOKEN_LOGITS, OutputKind.TOKEN_STATES)
        options = {
            "INFERENCE_PRECISION_HINT": _precision(dtype, dtypes),
            "INFERENCE_NUM_THREADS": num_threads,
            "NUM_STREAMS": num_streams,
        }
        compiled = import_openvino().Core().compile_model(graph, "CPU", options)
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(num_streams):
            self._requests.put(compiled.create_infer_request())

    def forward(self, batch: Sequence[TokenSequence]) -> list[npt.NDArray[Any]]:
        """Compute a batch: float32 arrays shaped by the model's OutputKind."""
        inputs = self._pad(batch)
        request = self._requests.get()
        try:
            output = request.infer(inputs, share_inputs=True, share_outputs=True)[0]
            if self._per_token:
                return [np.array(output[i, : len(sequence)], np.float32) for i, sequence in enumerate(batch)]
            return list(np.array(output, np.float32))
        except RuntimeError as error:
            if any(word in str(error).lower() for word in _MEMORY_WORDS):
                raise OutOfMemory(f"a batch of {len(batch)} sequences did not fit in memory") from error
            raise
        finally:
            self._requests.put(request)

    def close(self) -> None:
        """Drop the compiled graph."""
        while not self._requests.empty():
            self._requests.get()

    def _pad(self, batch: Sequence[TokenSequence]) -> dict[str, npt.NDArray[np.int64]]:
        ids, mask, types = pad_batch(batch, self._pad_id)
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return {name: arrays[name] for name in self._names}


def make_executor(model: EncoderModel, *, dtype: str, num_threads: int, num_streams: int) -> OpenVINOExecutor:
    """An executor over the model's float32 graph (every dtype but int8)."""
    return OpenVINOExecutor(model, load_graph(model), dtype=dtype, num_threads=num_threads, num_streams=num_streams)


def _precision(dtype: str, dtypes: Sequence[str]) -> str:
    if dtype != "int8":
        return _PRECISIONS[dtype][1]
    return next(_PRECISIONS[wide][1] for wide in ("bfloat16", "float16", "float32") if wide in dtypes)
