"""Probes of the machine: how fast it multiplies matrices and reads memory, and which accelerators it has.

The rates are the limits that every other figure is compared with (MFU, MBU), so each is the best that any installed
library reaches here: the fastest of many short calls, over shapes that an encoder's linear layers have. A limit that
was taken too low would make the product look better than it is.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import psutil
import torch

from setpoint.domain.environment import Accelerator
from setpoint.errors import UsageError, unknown

Call: TypeAlias = Callable[[], Any]
Gemm: TypeAlias = tuple[Call, float]  # one call, and the operations that it does

TORCH_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}

# What OpenVINO's CPU device must list among its capabilities, and the precision to ask for.
_OPENVINO_PRECISIONS = {
    "float32": ("FP32", "f32"),
    "bfloat16": ("BF16", "bf16"),
    "float16": ("FP16", "f16"),
    "int8": ("INT8", "f32"),
}

# (tokens, in, out): layers of small and base encoders; on an accelerator, large enough to fill it.
_CPU_SHAPES = ((512, 384, 1536), (1024, 768, 3072), (4096, 768, 768))
_ACCELERATOR_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 4096, 4096))
_OPENVINO_SHAPES = ((256, 384, 1536), (1024, 768, 3072))
_OPENVINO_LAYERS = 4  # in one graph, so that int8 is quantised between layers as in a model

_READ_BYTES = 512 * 2**20  # well past any cache
_MIN_CALLS = 3


def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator that this build of torch can use, in torch's order."""
    found = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found.append(
                Accelerator(
                    device=f"cuda:{index}",
                    name=properties.name,
                    memory_bytes=properties.total_memory,
                    capability=f"{properties.major}.{properties.minor}",
                )
            )
    if torch.backends.mps.is_available():
        found.append(Accelerator(device="mps", name="Apple GPU (MPS)", memory_bytes=torch.mps.recommended_max_memory()))
    if torch.xpu.is_available():
        for index in range(torch.xpu.device_count()):
            device = torch.xpu.get_device_properties(index)
            found.append(Accelerator(device=f"xpu:{index}", name=device.name, memory_bytes=device.total_memory))
    return tuple(found)


def num_threads() -> int:
    """How many threads torch computes with on the CPU."""
    return torch.get_num_threads()


def synchronize(device: str | torch.device) -> None:
    """Wait until everything queued on the device is done; returns at once on the CPU."""
    kind = torch.device(device).type
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()
    elif kind == "xpu":
        torch.xpu.synchronize(device)


def measure_gemm_peak(
    dtype: str, *, seconds: float = 1.0, num_threads: int | None = None, device: str = "cpu"
) -> float | None:
    """Operations per second (2·M·N·K each product) of the fastest matrix product in `dtype`; see `gemm_peaks`.

    None where no installed library has such a product on this device.
    """
    return max(gemm_peaks(dtype, seconds=seconds, num_threads=num_threads, device=device).values(), default=None)


def gemm_peaks(
    dtype: str, *, seconds: float = 1.0, num_threads: int | None = None, device: str = "cpu"
) -> Mapping[str, float]:
    """Best operations per second by library (`torch`, and `openvino` on CPUs where it is installed).

    `dtype` is float32, bfloat16, float16 or int8 (products of int8 accumulated in int32). `seconds` is divided among
    the libraries and shapes, set-up not counted. `num_threads` is for the CPU; None takes torch's present setting.
    Raises UsageError for another dtype or a time that is not positive.
    """
    if dtype not in TORCH_DTYPES:
        raise UsageError(unknown("dtype", dtype, TORCH_DTYPES))
    _check_seconds(seconds)
    with _torch_threads(num_threads), torch.inference_mode():
        candidates = {"torch": _torch_gemms(dtype, device)}
        if torch.device(device).type == "cpu" and importlib.util.find_spec("openvino"):
            candidates["openvino"] = _openvino_gemms(dtype, torch.get_num_threads())
        share = seconds / max(1, sum(len(gemms) for gemms in candidates.values()))
        return {
            library: max(operations / _fastest(call, share, device) for call, operations in gemms)
            for library, gemms in candidates.items()
            if gemms
        }


def measure_bandwidth(*, seconds: float = 1.0, num_threads: int | None = None, device: str = "cpu") -> float:
    """Bytes per second that `device` reads from its memory: the fastest of two reductions over 512 MiB.

    On a machine with little memory to spare the array is smaller (an eighth of what is available).
    """
    _check_seconds(seconds)
    size = _READ_BYTES
    if torch.device(device).type == "cpu":
        size = min(size, psutil.virtual_memory().available // 8)
    with _torch_threads(num_threads), torch.inference_mode():
        data = torch.ones(size // 4, dtype=torch.float32, device=device)
        times = [_fastest(call, seconds / 2, device) for call in (data.sum, data.max)]
    return data.nbytes / min(times)


def _check_seconds(seconds: float) -> None:
    if not seconds > 0:
        raise UsageError(f"seconds must be above 0, not {seconds!r}")


@contextmanager
def _torch_threads(num_threads: int | None) -> Iterator[None]:
    if num_threads is not None and num_threads < 1:
        raise UsageError(f"num_threads must be at least 1, not {num_threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fastest(call: Call, seconds: float, device: str) -> float:
    # Seconds of the fastest call, each synchronised. The first call is warm-up and not counted, unless it alone takes
    # longer than all were given (a dtype that this machine only emulates).
    first = _seconds_of(call, device)
    if first > seconds:
        return first
    best, calls, end = float("inf"), 0, time.perf_counter() + seconds
    while calls < _MIN_CALLS or time.perf_counter() < end:
        best = min(best, _seconds_of(call, device))
        calls += 1
    return best


def _seconds_of(call: Call, device: str) -> float:
    begin = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - begin


def _torch_gemms(dtype: str, device: str) -> list[Gemm]:
    kind = torch.device(device).type
    if dtype == "int8" and kind not in ("cpu", "cuda"):
        return []  # torch has no int8 product there
    shapes = _CPU_SHAPES if kind == "cpu" else _ACCELERATOR_SHAPES
    return [(_torch_product(dtype, device, tokens, k, n), 2.0 * tokens * k * n) for tokens, k, n in shapes]


def _torch_product(dtype: str, device: str, tokens: int, k: int, n: int) -> Call:
    generator = torch.Generator().manual_seed(0)
    if dtype == "int8":
        a = torch.randint(-127, 127, (tokens, k), dtype=torch.int8, generator=generator).to(device)
        b = torch.randint(-127, 127, (n, k), dtype=torch.int8, generator=generator).to(device).t()
        return lambda: torch._int_mm(a, b)
    x = torch.randn(tokens, k, generator=generator).to(device, TORCH_DTYPES[dtype])
    w = torch.randn(k, n, generator=generator).to(device, TORCH_DTYPES[dtype])
    return lambda: torch.mm(x, w)


def _openvino_gemms(dtype: str, threads: int) -> list[Gemm]:
    import openvino as ov

    core = ov.Core()
    capability, precision = _OPENVINO_PRECISIONS[dtype]
    if capability not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return []
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }
    gemms: list[Gemm] = []
    for tokens, k, n in _OPENVINO_SHAPES:
        compiled = core.compile_model(_openvino_layers(tokens, k, n, quantized=dtype == "int8"), "CPU", options)
        request = compiled.create_infer_request()
        request.set_input_tensor(ov.Tensor(np.random.default_rng(0).standard_normal((tokens, k), dtype=np.float32)))
        gemms.append((request.infer, 2.0 * tokens * k * n * _OPENVINO_LAYERS))
    return gemms


def _openvino_layers(tokens: int, k: int, n: int, *, quantized: bool) -> Any:
    # k -> n -> k -> ...: a feed-forward block over and over; int8 as quantisation tools write it, so that it fuses.
    import openvino as ov
    from openvino import opset13 as op

    rng = np.random.default_rng(0)
    hidden = inputs = op.parameter([tokens, k], ov.Type.f32)
    for layer in range(_OPENVINO_LAYERS):
        width_in, width_out = (k, n) if layer % 2 == 0 else (n, k)
        if quantized:
            low, high = op.constant(np.float32(-2)), op.constant(np.float32(2))
            hidden = op.fake_quantize(hidden, low, high, low, high, 256)
            steps = op.constant(rng.integers(-127, 127, (width_out, width_in), dtype=np.int8))
            scale = op.constant(np.full((width_out, 1), 0.001, np.float32))
            weight = op.multiply(op.convert(steps, ov.Type.f32), scale)
        else:
            weight = op.constant(0.02 * rng.standard_normal((width_out, width_in), dtype=np.float32))
        hidden = op.matmul(hidden, weight, False, True)
    return ov.Model([op.result(hidden)], [inputs])
