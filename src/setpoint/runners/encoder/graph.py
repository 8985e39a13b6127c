"""An encoder as an OpenVINO graph: converted in process from the unmodified model, head included, kept on disk.

The graph has int64 inputs `input_ids`, `attention_mask` and, for models with segments, `token_type_ids`, all [B, L]
with both sizes free, and one float32 output shaped as `OutputKind` says.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging as transformers_logging

from setpoint.errors import MissingDependency, ModelError
from setpoint.runners.cache import cache_folder, cache_key
from setpoint.runners.encoder.graph_attention import traceable
from setpoint.runners.encoder.model import EncoderModel

_VERSION = 2  # of what this module makes; a new number leaves older graphs in the cache unused
_GRAPH = "graph.xml"


def import_openvino() -> Any:
    """The openvino package; raises MissingDependency with the install line."""
    try:
        import openvino
    except ImportError as error:
        raise MissingDependency("openvino", extra="openvino", purpose="--backend openvino") from error
    return openvino


def load_graph(model: EncoderModel) -> Any:
    """The model's float32 graph, from the cache or converted now. Raises ModelError where it cannot be converted."""
    return _cached(graph_key(model, kind="float32"), lambda: convert(model))


def graph_key(model: EncoderModel, *, kind: str, **more: Any) -> str:
    """Cache key of a graph: everything that its numbers depend on. `kind` names the precision."""
    import transformers

    openvino = import_openvino()
    return cache_key(
        {
            "version": _VERSION,
            "kind": kind,
            "model": model.digest,
            "class": type(model.network.model).__name__,
            "output": model.output,
            "head": describe_head(model.network.pool),
            "type_ids": model.uses_type_ids,
            "openvino": openvino.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            **more,
        }
    )


def describe_head(head: nn.Module | None) -> list[Any]:
    """What a head does, as JSON: the type and plain attributes of every module in it (weights are the folder's)."""
    if head is None:
        return []
    plain = (str, int, float, bool, tuple)
    return [
        [name, type(module).__name__, {k: v for k, v in vars(module).items() if k[0] != "_" and isinstance(v, plain)}]
        for name, module in head.named_modules()
    ]


def convert(model: EncoderModel) -> Any:
    """Trace the model into a graph. Raises ModelError with the converter's reason."""
    openvino = import_openvino()
    names = input_names(model)
    example = {name: tensor for name, tensor in _example(model).items() if name in names}
    shapes = [(name, openvino.PartialShape([-1, -1])) for name in names]
    try:
        with quiet_tracing(), traceable(model.network.model), torch.no_grad():
            graph = openvino.convert_model(model.network, example_input=example, input=shapes)
    except Exception as error:  # the converter raises whatever tracing met, of any type
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"model {model.source!r} cannot be converted for OpenVINO: {reason}") from error
    for port, name in zip(graph.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    return graph


def _example(model: EncoderModel) -> dict[str, torch.Tensor]:
    """Inputs to trace with: padded, and longer than any attention window, or masks would be left out of the graph."""
    config = model.config
    windows = (getattr(config, name, None) for name in ("sliding_window", "local_attention"))
    length = min(model.max_length, 8 + max((window for window in windows if window), default=0))
    ids = torch.ones(2, length, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def input_names(model: EncoderModel) -> tuple[str, ...]:
    """The graph's inputs, in order."""
    names = ("input_ids", "attention_mask")
    return (*names, "token_type_ids") if model.uses_type_ids else names


@contextlib.contextmanager
def quiet_tracing() -> Iterator[None]:
    """Tracing warns of every constant it bakes in; whether one matters is what the check at load finds out.

    It also reads every property of a model, some of which have something to say.
    """
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)


def cached_graph(key: str) -> Any:
    """A graph from the cache, or None where it is not there or not readable."""
    folder = cache_folder("graphs") / key
    if not (folder / _GRAPH).exists():
        return None
    try:
        return import_openvino().Core().read_model(folder / _GRAPH)
    except RuntimeError:
        shutil.rmtree(folder, ignore_errors=True)
        return None


def save_graph(graph: Any, key: str) -> None:
    """Keep a graph, atomically. A cache that cannot be written costs time next time, so that is not an error."""
    root = cache_folder("graphs")
    made: Path | None = None
    try:
        root.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
        import_openvino().save_model(graph, made / _GRAPH, compress_to_fp16=False)
        made.rename(root / key)
    except (OSError, RuntimeError):  # OpenVINO reports a full disk as RuntimeError
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def _cached(key: str, make: Any) -> Any:
    found = cached_graph(key)
    if found is not None:
        return found
    graph = make()
    save_graph(graph, key)
    return graph
