"""The machine's limits: rates that are plausible on any machine, and options that are refused."""

from __future__ import annotations

import time

import pytest
import torch

from setpoint.errors import UsageError
from setpoint.runners import probe


@pytest.fixture
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_CPU_SHAPES", ((64, 128, 256),))
    monkeypatch.setattr(probe, "_OPENVINO_SHAPES", ((64, 128, 256),))
    monkeypatch.setattr(probe, "_READ_BYTES", 2**22)


@pytest.mark.usefixtures("small_shapes")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_gemm_peak_is_the_best_of_the_libraries(dtype: str) -> None:
    peaks = probe.gemm_peaks(dtype, seconds=0.05)
    assert "torch" in peaks
    # Any machine since 2010 does more than 10 million operations a second, none does 10^18.
    assert all(1e7 < rate < 1e18 for rate in peaks.values())


@pytest.mark.usefixtures("small_shapes")
def test_measure_gemm_peak_returns_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "gemm_peaks", lambda *args, **kwargs: {"torch": 2.0, "openvino": 3.0})
    assert probe.measure_gemm_peak("float32") == 3.0
    monkeypatch.setattr(probe, "gemm_peaks", lambda *args, **kwargs: {})
    assert probe.measure_gemm_peak("float32") is None


def test_operations_are_counted_from_a_known_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The ruler itself: a "product" that takes a known time, so that the rate is known.
    monkeypatch.setattr(probe, "_torch_gemms", lambda dtype, device: [(lambda: time.sleep(0.01), 5e6)])
    monkeypatch.setattr(probe, "_openvino_gemms", lambda dtype, threads: [])
    rate = probe.measure_gemm_peak("float32", seconds=0.1)
    assert rate is not None
    assert 2.5e8 < rate <= 5e8


def test_openvino_layers_compute_what_is_counted() -> None:
    ov = pytest.importorskip("openvino")
    model = probe._openvino_layers(8, 16, 32, quantized=False)
    products = [node for node in model.get_ops() if node.get_type_name() == "MatMul"]
    operations = 0
    for node in products:
        (tokens, width_in), (width_out, _) = (tuple(node.input(side).get_shape()) for side in (0, 1))
        operations += 2 * tokens * width_in * width_out
    assert operations == 2 * 8 * 16 * 32 * probe._OPENVINO_LAYERS
    assert tuple(ov.Core().compile_model(model, "CPU").output(0).shape) == (8, 16)


@pytest.mark.usefixtures("small_shapes")
def test_the_thread_setting_is_used_and_put_back() -> None:
    before = torch.get_num_threads()
    seen = []
    with probe._torch_threads(1):
        seen.append(torch.get_num_threads())
    assert seen == [1]
    assert torch.get_num_threads() == before
    probe.measure_bandwidth(seconds=0.02, num_threads=1)
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("small_shapes")
def test_bandwidth_is_bytes_per_second() -> None:
    assert 1e8 < probe.measure_bandwidth(seconds=0.05) < 1e14


def test_an_emulated_dtype_does_not_take_longer_than_one_call() -> None:
    calls = []

    def slow() -> None:
        calls.append(1)
        time.sleep(0.02)

    assert probe._fastest(slow, 0.001, "cpu") >= 0.02
    assert len(calls) == 1


def test_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'bfloat16'"):
        probe.gemm_peaks("bflot16")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_that_is_not_positive_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="seconds must be above 0"):
        probe.gemm_peaks("float32", seconds=seconds)
    with pytest.raises(UsageError, match="seconds must be above 0"):
        probe.measure_bandwidth(seconds=seconds)


def test_no_threads_is_refused() -> None:
    with pytest.raises(UsageError, match="num_threads must be at least 1"):
        probe.measure_bandwidth(seconds=0.01, num_threads=0)


def test_accelerators_are_those_torch_has() -> None:
    found = probe.accelerators()
    assert len([a for a in found if a.device.startswith("cuda")]) == (
        torch.cuda.device_count() if torch.cuda.is_available() else 0
    )


@pytest.mark.gpu
def test_gemm_peak_on_an_accelerator() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    rate = probe.measure_gemm_peak("bfloat16", device="cuda:0", seconds=0.5)
    assert rate is not None
    assert rate > 1e12
