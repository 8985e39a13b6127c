"""Where torch computes and how: devices, the dtypes that their hardware has, threads, running out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from setpoint.errors import OutOfMemory, UsageError, unknown

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_KINDS = ("cpu", "cuda", "mps", "xpu")

# How the CPU, MPS and oneDNN allocators say it; torch.OutOfMemoryError is for the others.
_MEMORY_MESSAGES = ("can't allocate memory", "defaultcpuallocator", "out of memory", "could not create a memory object")


def available_devices() -> tuple[str, ...]:
    """Kinds of devices that this torch can use here, best first."""
    found = []
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    if torch.xpu.is_available():
        found.append("xpu")
    return (*found, "cpu")


def choose_device(name: str) -> torch.device:
    """`auto` is the best of `available_devices`. Raises UsageError for a device that is not here."""
    here = available_devices()
    if name == "auto":
        return torch.device(here[0])
    kind, _, index = name.partition(":")
    if kind not in _KINDS:
        raise UsageError(unknown("device", name, ("auto", *_KINDS)))
    if kind not in here:
        raise UsageError(f"device {name!r} is not available here; torch {torch.__version__} finds: {', '.join(here)}")
    if index and not index.isdecimal():
        raise UsageError(f"device {name!r} has no index {index!r}; write for example cuda:1")
    count = {"cuda": torch.cuda.device_count, "xpu": torch.xpu.device_count}.get(kind, lambda: 1)()
    if index and int(index) >= count:
        raise UsageError(f"device {name!r} is not available here; there are {count} of kind {kind}")
    return torch.device(name)


def supported_dtypes(device: torch.device) -> tuple[str, ...]:
    """The dtypes that the hardware itself computes in, float32 first."""
    if device.type == "cpu":
        found = {
            "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported(),
            "float16": torch.ops.mkldnn._is_mkldnn_fp16_supported(),
        }
    elif device.type == "cuda":
        found = {"bfloat16": torch.cuda.is_bf16_supported(including_emulation=False), "float16": True}
    elif device.type == "mps":
        found = {"bfloat16": torch.backends.mps.is_macos_or_newer(14, 0), "float16": True}
    else:
        found = {"bfloat16": torch.xpu.is_bf16_supported(), "float16": True}
    return ("float32", *(name for name, supported in found.items() if supported))


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Raises UsageError for a dtype that is unknown, or that this hardware could only imitate."""
    if name not in DTYPES:
        raise UsageError(unknown("dtype", name, DTYPES))
    offered = supported_dtypes(device)
    if name not in offered:
        raise UsageError(f"this {device.type} does not compute in {name}; it offers: {', '.join(offered)}")
    return DTYPES[name]


def default_threads(num_streams: int) -> int | None:
    """Threads of each of several streams that share the CPU; None leaves torch's setting for a single one."""
    return None if num_streams == 1 else max(1, torch.get_num_threads() // num_streams)


@contextmanager
def computing(device: torch.device, num_threads: int | None) -> Iterator[None]:
    """Inference mode with so many CPU threads (None: as they are); raises OutOfMemory where torch runs out.

    torch's setting is per calling thread and is put back, so that several streams may compute at once.
    """
    before = torch.get_num_threads()
    changed = num_threads is not None and num_threads != before
    if changed and num_threads is not None:
        torch.set_num_threads(num_threads)
    try:
        with torch.inference_mode():
            yield
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        if device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfMemory(f"the batch does not fit in the memory of {device}: {_first_line(error)}") from error
    finally:
        if changed:
            torch.set_num_threads(before)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return any(message in text for message in _MEMORY_MESSAGES)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
