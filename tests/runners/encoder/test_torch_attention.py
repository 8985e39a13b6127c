"""Attention within sequences of a packed row, by every way there is, against plain attention in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from setpoint.runners.encoder import packed_attention as ways
from setpoint.runners.encoder.packed_attention import UnsupportedAttention, attend, packed_attention
from setpoint.runners.encoder.packing import Packing, Scratch

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS, SIZE = 4, 8
CPU = torch.device("cpu")


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: list[int],
    *,
    scale: float,
    causal: bool = False,
    window: int | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """[1, H, T, D] to [1, T, H, D], one sequence, one head and one query at a time."""
    query, key, value = (part[0].double() for part in (query, key, value))
    out = torch.zeros(query.shape[1], query.shape[0], value.shape[-1], dtype=torch.float64)
    per_key = query.shape[0] // key.shape[0]
    for start, length in zip(itertools.accumulate(lengths, initial=0), lengths, strict=False):
        for head, position in itertools.product(range(query.shape[0]), range(length)):
            seen = [
                other
                for other in range(length)
                if not (causal and other > position) and not (window is not None and abs(position - other) >= window)
            ]
            rows = torch.tensor(seen) + start
            scores = key[head // per_key, rows] @ query[head, start + position] * scale
            if bias is not None:
                scores = scores + bias[0, head, position, seen].double()
            out[start + position, head] = torch.softmax(scores, 0) @ value[head // per_key, rows]
    return out[None]


def parts(
    tokens: int, *, heads_of_keys: int = HEADS, dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[Tensor]:
    """Query, key, value as models give them: views of [1, T, H, D]."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, tokens, heads, SIZE, generator=generator).to(dtype).transpose(1, 2)
        for heads in (HEADS, heads_of_keys, heads_of_keys)
    ]


def packed(lengths: list[int], *, round_up: bool = False) -> Packing:
    return Packing.of(lengths, device=CPU, scratch=Scratch(), round_up=round_up)


def error(got: Tensor, wanted: Tensor, tokens: int) -> float:
    return float((got.double() - wanted)[:, :tokens].abs().max())


LENGTHS = [1, 3, 3, 17, 60, 64, 65, 97, 97, 150]


@pytest.fixture(params=["as it is", "groups in float32 too"])
def grouping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are for half precision, where small mistakes don't show: tried in float32 as well."""
    if request.param != "as it is":
        monkeypatch.setattr(ways, "_short", lambda query: 96)


@pytest.mark.usefixtures("grouping")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads_of_keys", [HEADS, 2])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 5), (True, 5), (False, 1)])
def test_full_causal_and_windowed(dtype: torch.dtype, heads_of_keys: int, causal: bool, window: int | None) -> None:
    packing = packed(LENGTHS, round_up=True)
    q, k, v = parts(packing.row_tokens, heads_of_keys=heads_of_keys, dtype=dtype)
    with packing.active():
        got = attend(q, k, v, scale=0.3, causal=causal, window=window)
    wanted = plain(q, k, v, LENGTHS, scale=0.3, causal=causal, window=window)
    assert got.shape == (1, packing.row_tokens, HEADS, SIZE)
    assert error(got, wanted, sum(LENGTHS)) < (1e-5 if dtype == torch.float32 else 0.05)
    assert not got[:, sum(LENGTHS) :].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [3, 65, 140, 299, 300])
def test_windows_over_a_long_sequence_are_computed_in_blocks(causal: bool, window: int) -> None:
    lengths = [300, 300, 401]
    packing = packed(lengths)
    q, k, v = parts(sum(lengths), heads_of_keys=1)
    with packing.active():
        got = attend(q, k, v, scale=None, causal=causal, window=window)
    wanted = plain(q, k, v, lengths, scale=SIZE**-0.5, causal=causal, window=window)
    assert error(got, wanted, sum(lengths)) < 1e-5


@pytest.mark.usefixtures("grouping")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_position_bias_is_added_to_the_scaled_scores(dtype: torch.dtype) -> None:
    packing = packed(LENGTHS)
    q, k, v = parts(sum(LENGTHS), dtype=dtype)
    bias = torch.randn(1, HEADS, LENGTHS[-1], LENGTHS[-1], generator=torch.Generator().manual_seed(1)).to(dtype)
    with packing.active():
        got = attend(q, k, v, scale=None, bias=bias)
    wanted = plain(q, k, v, LENGTHS, scale=SIZE**-0.5, bias=bias)
    assert error(got, wanted, sum(LENGTHS)) < (1e-5 if dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("with_bias", [False, True])
def test_two_products_in_blocks_of_heads_and_rows(monkeypatch: pytest.MonkeyPatch, with_bias: bool) -> None:
    """As for sequences of thousands of tokens, whose scores do not fit at once; in float32 so that mistakes show."""
    monkeypatch.setattr(ways, "_dense_is_faster", lambda dtype, device: True)
    lengths = [70, 70, 131]
    bias = torch.randn(1, HEADS, 131, 131) if with_bias else None
    q, k, v = parts(sum(lengths), heads_of_keys=2)
    wanted = plain(q, k, v, lengths, scale=0.2, bias=bias)
    for scores in (1, 64 * 160, 3 * 160 * 160, 1 << 22):
        monkeypatch.setattr(ways, "_DENSE_SCORES", scores)
        packing = packed(lengths)
        with packing.active():
            assert error(attend(q, k, v, scale=0.2, bias=bias), wanted, sum(lengths)) < 1e-5


@given(
    lengths=st.lists(st.integers(1, 100), min_size=1, max_size=8),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 40),
)
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("short", [0, 96])
def test_other_sequences_are_never_seen(short: int, lengths: list[int], causal: bool, window: int | None) -> None:
    """Changing one sequence changes nothing but its own rows."""
    lengths = sorted(lengths)
    packing = packed(lengths, round_up=True)
    q, k, v = parts(packing.row_tokens)
    changed = len(lengths) // 2
    start = packing.starts[changed]
    own = torch.zeros(packing.row_tokens, dtype=torch.bool)
    own[start : start + lengths[changed]] = True
    with packing.active(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "_short", lambda query: short)
        before = attend(q, k, v, scale=None, causal=causal, window=window)
        k, v = k.clone(), v.clone()
        k[:, :, own] += 3
        v[:, :, own] -= 3
        after = attend(q, k, v, scale=None, causal=causal, window=window)
    assert torch.equal(before[:, ~own], after[:, ~own])
    assert not torch.equal(before[:, own], after[:, own])


class _Attention(nn.Module):
    def __init__(self, is_causal: bool | None) -> None:
        super().__init__()
        if is_causal is not None:
            self.is_causal = is_causal


def _call(module: nn.Module, **kwargs: Any) -> Tensor:
    packing = packed([4, 9])
    q, k, v = parts(13)
    with packing.active():
        out, weights = packed_attention(module, q, k, v, kwargs.pop("attention_mask", None), scaling=0.5, **kwargs)
    assert weights is None
    return out


def test_what_a_model_asks_of_attention_is_honoured() -> None:
    q, k, v = parts(13)
    for causal, window in itertools.product((False, True), (None, 3)):
        got = _call(_Attention(causal), sliding_window=window, deterministic=True, position_ids=torch.arange(13))
        assert error(got, plain(q, k, v, [4, 9], scale=0.5, causal=causal, window=window), 13) < 1e-6
    assert torch.equal(_call(_Attention(False), is_causal=True), _call(_Attention(True)))


@pytest.mark.parametrize(
    ("argument", "given_value"),
    [
        ("softcap", 30.0),
        ("s_aux", torch.zeros(4)),
        ("position_bias", torch.zeros(1)),
        ("output_attentions", True),
        ("new_in_version_9", 1),
    ],
)
def test_what_is_not_known_is_refused_by_name(argument: str, given_value: object) -> None:
    with pytest.raises(UnsupportedAttention, match=f"_Attention passes '{argument}'"):
        _call(_Attention(False), **{argument: given_value})
    _call(_Attention(False), **{argument: None})


def test_masks_dropout_and_silence_about_causality_are_refused() -> None:
    with pytest.raises(UnsupportedAttention, match="mask"):
        _call(_Attention(False), attention_mask=torch.zeros(1, 1, 13, 13))
    with pytest.raises(UnsupportedAttention, match="dropout"):
        _call(_Attention(False), dropout=0.1)
    with pytest.raises(UnsupportedAttention, match="causal"):
        _call(_Attention(None))


def test_bias_with_a_window_or_causality_is_refused_for_long_sequences() -> None:
    packing = packed([200])
    q, k, v = parts(200)
    bias = torch.zeros(1, HEADS, 200, 200)
    with packing.active():
        for options in ({"causal": True}, {"window": 7}):
            with pytest.raises(UnsupportedAttention, match="bias"):
                attend(q, k, v, scale=None, bias=bias, **options)


def test_a_row_that_is_not_the_announced_one_is_refused() -> None:
    packing = packed([4, 9])
    q, k, v = parts(12)
    with packing.active(), pytest.raises(UnsupportedAttention, match="packed row of 13"):
        attend(q, k, v, scale=None)


def test_scratch_of_one_thread_is_reused_and_grows() -> None:
    scratch = Scratch()
    small = scratch.get("a", (2, 3), torch.float32)
    assert scratch.get("a", (3, 2), torch.float32).data_ptr() == small.data_ptr()
    assert scratch.get("b", (2, 3), torch.float32).data_ptr() != small.data_ptr()
    assert scratch.get("a", (50, 3), torch.float32).shape == (50, 3)
    np.testing.assert_array_equal(scratch.get("a", (0,), torch.float32).shape, (0,))
