"""Devices and dtypes are offered where the hardware has them; threads are put back; memory errors are told apart."""

from __future__ import annotations

import pytest
import torch

from setpoint.errors import OutOfMemory, UsageError
from setpoint.runners.encoder import torch_device
from setpoint.runners.encoder.torch_device import (
    available_devices,
    choose_device,
    choose_dtype,
    computing,
    default_threads,
    supported_dtypes,
)

CPU = torch.device("cpu")


def test_auto_takes_the_best_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_devices()[-1] == "cpu"
    for here in (("cpu",), ("mps", "cpu"), ("cuda", "cpu")):
        monkeypatch.setattr(torch_device, "available_devices", lambda here=here: here)
        assert choose_device("auto").type == here[0]


def test_devices_that_are_not_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_device, "available_devices", lambda: ("cpu",))
    assert choose_device("cpu") == CPU
    with pytest.raises(UsageError, match=r"'cuda:1' is not available here; .* finds: cpu"):
        choose_device("cuda:1")
    with pytest.raises(UsageError, match=r"unknown device 'cdua' \(did you mean 'cuda'\?\)"):
        choose_device("cdua")
    monkeypatch.setattr(torch_device, "available_devices", lambda: ("cuda", "cpu"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1").index == 1
    with pytest.raises(UsageError, match="there are 2"):
        choose_device("cuda:2")
    with pytest.raises(UsageError, match="no index 'x'"):
        choose_device("cuda:x")


def test_dtypes_are_what_the_hardware_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_dtype("float32", CPU) == torch.float32
    monkeypatch.setattr(torch_device, "supported_dtypes", lambda device: ("float32", "bfloat16"))
    assert choose_dtype("bfloat16", CPU) == torch.bfloat16
    with pytest.raises(UsageError, match="does not compute in float16; it offers: float32, bfloat16"):
        choose_dtype("float16", CPU)
    with pytest.raises(UsageError, match=r"unknown dtype 'bfloat61' \(did you mean 'bfloat16'\?\)"):
        choose_dtype("bfloat61", CPU)


def test_float32_is_always_offered_first() -> None:
    assert supported_dtypes(CPU)[0] == "float32"


def test_streams_share_the_threads() -> None:
    assert default_threads(1) is None
    assert default_threads(1000) == 1


def test_threads_are_set_for_the_computation_and_put_back() -> None:
    before = torch.get_num_threads()
    with computing(CPU, before + 1):
        assert torch.get_num_threads() == before + 1
        assert torch.is_inference_mode_enabled()
    assert torch.get_num_threads() == before
    with pytest.raises(KeyError), computing(CPU, before + 1):
        raise KeyError("x")
    assert torch.get_num_threads() == before
    with computing(CPU, None):
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
    ],
)
def test_every_way_of_saying_out_of_memory(error: Exception) -> None:
    with pytest.raises(OutOfMemory, match="does not fit in the memory of cpu") as raised, computing(CPU, None):
        raise error
    assert raised.value.__cause__ is error


def test_a_real_allocation_that_fails() -> None:
    with pytest.raises(OutOfMemory), computing(CPU, None):
        torch.empty(1 << 50, dtype=torch.float32)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shapes") as raised, computing(CPU, None):
        raise RuntimeError("shapes cannot be multiplied")
    assert not isinstance(raised.value, OutOfMemory)
