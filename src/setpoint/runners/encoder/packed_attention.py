"""Attention over a packed row: each sequence attends to itself alone. Registered with transformers under `PACKED`.

A model whose config names `PACKED` calls `packed_attention` in place of its own attention, with all tokens of a batch
in one row. Whatever a model asks of attention that is not known here is refused, never left out.

On CPUs, as measured on one with AVX-512-BF16 and head size 32 (docs/log.md):
- float32: torch's flash kernel, a call for each run of sequences of equal length;
- half precision, short sequences: one padded product over a group of neighbours, which saves the price of a call each
  (5 to 24 tokens: 1.6 times the tokens a second of the whole model);
- bfloat16, long sequences: two matrix products around a softmax, 1.6 times as fast as the flash kernel where the CPU
  multiplies bfloat16 in vectors (and not in AMX tiles).
On CUDA it is one call of torch's or flash-attn's variable-length kernel.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from setpoint.errors import ModelError
from setpoint.runners.encoder.packing import Group, Packing, band, current_packing

PACKED = "setpoint_packed"

# What models pass along that changes no number of a forward pass without dropout, caches or returned attentions.
_HARMLESS = frozenset({"position_ids", "deterministic", "use_cache", "cache_position", "layer_idx", "return_dict"})
_ABSENT_ONLY = frozenset({"output_attentions", "output_hidden_states"})  # accepted when false

_SHORT = 96  # tokens: up to here, in half precision, groups are faster than a call a sequence
_DENSE_ALIGN = 32  # tokens: few shapes, and whole vectors
_DENSE_SCORES = 1 << 22  # scores computed at once: 8 MiB of bfloat16
_BAND_QUERIES = 128  # queries a block where a window makes attention local


class UnsupportedAttention(ModelError):
    """The model asks something of attention that packed attention does not do."""


def register() -> None:
    """Make `PACKED` known to transformers. Calling it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, _no_mask)


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """Masks are not built: the packing says who sees whom."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function as transformers calls it: query [1, Hq, T, D], key and value [1, Hkv, T, D], to [1, T, Hq, D].

    Raises UnsupportedAttention for masks, dropout and arguments that are not known to leave the numbers alone.
    """
    name = type(module).__name__
    refuse_unknown(name, kwargs)
    if attention_mask is not None:
        raise UnsupportedAttention(f"{name} passes its own attention mask")
    if dropout:
        raise UnsupportedAttention(f"{name} asks for dropout {dropout}; the model is not in eval mode")
    causal = getattr(module, "is_causal", None) if is_causal is None else is_causal
    if causal is None:
        raise UnsupportedAttention(f"{name} does not say whether its attention is causal")
    return attend(query, key, value, scale=scaling, causal=bool(causal), window=sliding_window), None


def refuse_unknown(name: str, kwargs: dict[str, Any]) -> None:
    """Raise UnsupportedAttention for an argument of attention that may change numbers and is not known here."""
    for argument, given in kwargs.items():
        if given is None or argument in _HARMLESS or (argument in _ABSENT_ONLY and given is False):
            continue
        raise UnsupportedAttention(f"{name} passes {argument!r} to attention, which is not known here")


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None,
    causal: bool = False,
    window: int | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention within the sequences of the active packing. Shapes as in `packed_attention`; returns [1, T, Hq, Dv].

    A query sees keys at a distance below `window`. `bias` [1, Hq, longest, longest] is added to the scaled scores and
    must depend on the positions within a sequence only.
    """
    packing = current_packing()
    if query.shape[0] != 1 or query.shape[2] != packing.row_tokens or key.shape[2] != packing.row_tokens:
        raise UnsupportedAttention(
            f"attention over {tuple(query.shape)} x {tuple(key.shape)} in a packed row of {packing.row_tokens} tokens"
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if window is not None and window >= packing.longest:
        window = None  # no sequence is long enough to notice
    parts = query[0], key[0], value[0]
    if query.is_cuda and bias is None and query.dtype in (torch.float16, torch.bfloat16):
        out = _varlen(*parts, packing, scale, causal=causal, window=window)
        if out is not None:
            return out.unsqueeze(0)
    out = query.new_empty(packing.row_tokens, query.shape[1], value.shape[-1])
    out[packing.num_tokens :] = 0
    short = _short(query)
    for group in packing.groups(short):
        mask = packing.mask(group, causal=causal, window=window, dtype=query.dtype)
        _grouped(*parts, out, group, mask, scale, bias)
    dense = _dense_is_faster(query.dtype, query.device.type) and not causal and window is None
    for start, count, length in packing.runs(above=short):
        rows = slice(start, start + count * length)
        if dense:
            for begin in range(start, rows.stop, length):
                one = slice(begin, begin + length)
                q, k, v = (part[:, one] for part in parts)
                _dense(q, k, v, out[one], scale, bias)
        else:
            q, k, v = (torch.unflatten(part[:, rows], 1, (count, length)).transpose(0, 1) for part in parts)
            states = _flash(q, k, v, scale=scale, causal=causal, window=window, bias=bias)  # [count, H, length, Dv]
            out[rows] = states.transpose(1, 2).flatten(0, 1)
    return out.unsqueeze(0)


def _short(query: Tensor) -> int:
    """Up to how many tokens sequences are computed in groups."""
    return _SHORT if query.device.type == "cpu" and query.dtype != torch.float32 else 0


def _grouped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    group: Group,
    mask: Tensor,
    scale: float,
    bias: Tensor | None,
) -> None:
    """Short sequences as one padded batch. Parts [H, T, D]; writes the group's rows of `out` [T, H, Dv]."""
    heads, repeats = query.shape[0], query.shape[0] // key.shape[0]
    n, padded = group.count, group.padded

    def gathered(part: Tensor) -> Tensor:  # [Hq * n, padded, D]
        rows = part.index_select(1, group.gather)
        if part.shape[0] != heads:
            rows = rows.repeat_interleave(repeats, 0)
        return rows.view(heads * n, padded, part.shape[-1])

    scores = torch.bmm(gathered(query), gathered(key).transpose(1, 2))
    by_head = scores.view(heads, n, padded, padded)
    torch.add(mask, by_head, alpha=scale, out=by_head)
    if bias is not None:
        by_head += _bias_for(bias, padded)[0].unsqueeze(1)
    states = torch.bmm(torch.softmax(scores, -1), gathered(value)).view(heads, n * padded, -1)
    out[group.start : group.start + group.tokens] = states.index_select(1, group.scatter).transpose(0, 1)


def _bias_for(bias: Tensor, length: int) -> Tensor:
    """The bias of positions below `length`, with zeros for padding past the longest sequence."""
    missing = length - bias.shape[-1]
    return pad(bias, (0, missing, 0, missing)) if missing > 0 else bias[..., :length, :length]


def _dense(query: Tensor, key: Tensor, value: Tensor, out: Tensor, scale: float, bias: Tensor | None) -> None:
    """One sequence by two products. Parts [H, L, D]; writes `out` [L, H, Dv]. Scores are rounded to the dtype."""
    scratch = current_packing().scratch
    heads, length = query.shape[:2]
    repeats = heads // key.shape[0]
    padded = -(-length // _DENSE_ALIGN) * _DENSE_ALIGN

    def aligned(name: str, part: Tensor) -> Tensor:  # [Hq, padded, D], zeros past the end
        copy = scratch.get(name, (heads, padded, part.shape[-1]), part.dtype)
        copy[:, :length] = part if part.shape[0] == heads else part.repeat_interleave(repeats, 0)
        copy[:, length:] = 0
        return copy

    q, k, v = aligned("query", query), aligned("key", key).transpose(1, 2), aligned("value", value)
    at_once = max(1, min(heads, _DENSE_SCORES // padded**2))  # heads
    rows = min(padded, max(_DENSE_ALIGN, _DENSE_SCORES // padded // _DENSE_ALIGN * _DENSE_ALIGN))
    added = None if bias is None else _bias_for(bias, padded)[0]
    for h in range(0, heads, at_once):
        some = slice(h, min(h + at_once, heads))
        for begin in range(0, length, rows):
            end = min(begin + rows, padded)
            shape = (some.stop - h, end - begin, padded)
            scores = scratch.get("scores", shape, query.dtype)
            torch.baddbmm(scores, q[some, begin:end], k[some], beta=0, alpha=scale, out=scores)
            if added is not None:
                scores += added[some, begin:end]
            scores[..., length:] = float("-inf")
            torch.softmax(scores, -1, out=scores)
            states = torch.bmm(scores, v[some])
            out[begin : min(end, length), some] = states[:, : length - begin].transpose(0, 1)


@functools.cache
def _dense_is_faster(dtype: torch.dtype, device: str) -> bool:
    """bfloat16 with vector products. With AMX tiles torch's flash kernel has a path of its own, not measured here."""
    if device != "cpu" or dtype != torch.bfloat16:
        return False
    return bool(torch.cpu._is_avx512_bf16_supported()) and not torch.cpu._is_amx_tile_supported()


def _flash(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, causal: bool, window: int | None, bias: Tensor | None
) -> Tensor:
    """Sequences of equal length by torch's own kernel: [n, H, L, D] to [n, Hq, L, Dv]."""
    length = query.shape[2]
    if window is not None and window < length:
        if bias is not None:
            raise UnsupportedAttention("a position bias together with a sliding window")
        return _local(query, key, value, scale=scale, causal=causal, window=window)
    if bias is not None:
        if causal:
            raise UnsupportedAttention("a position bias together with causal attention")
        mask = bias[..., :length, :length].to(query.dtype)
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    grouped_queries = query.shape[1] != key.shape[1]
    return scaled_dot_product_attention(
        query, key, value, is_causal=causal and length > 1, scale=scale, enable_gqa=grouped_queries
    )


def _local(query: Tensor, key: Tensor, value: Tensor, *, scale: float, causal: bool, window: int) -> Tensor:
    """Attention within a window: blocks of queries, each with the keys that any of them can see."""
    n, heads, length, _ = query.shape
    repeats = heads // key.shape[1]
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    reach = window - 1  # keys seen before a block, and after it unless causal
    size = max(_BAND_QUERIES, reach)
    after = 0 if causal else reach
    span = reach + size + after
    if span >= length:
        mask = band(length, causal=causal, window=window, device=query.device)
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    blocks = -(-length // size)
    extra = blocks * size - length
    queries = torch.unflatten(pad(query, (0, 0, 0, extra)), 2, (blocks, size)).transpose(
        1, 2
    )  # [n, blocks, H, size, D]
    # Overlapping views: block b sees padded keys [b * size, b * size + span).
    keys, values = (
        pad(part, (0, 0, reach, extra + after)).unfold(2, span, size).permute(0, 2, 1, 4, 3) for part in (key, value)
    )
    index = torch.arange(span, device=query.device)
    distance = torch.arange(size, device=query.device)[:, None] + reach - index[None, :]  # query minus key
    seen = (distance.abs() < window) & ((distance >= 0) | (not causal))
    position = index + torch.arange(blocks, device=query.device)[:, None] * size - reach  # [blocks, span]
    real = (position >= 0) & (position < length)
    mask = seen & real[:, None, :]
    mask |= ~mask.any(-1, keepdim=True)  # padding queries see something, so that no row is empty
    states = scaled_dot_product_attention(
        queries.flatten(0, 1),
        keys.flatten(0, 1),
        values.flatten(0, 1),
        attn_mask=mask.repeat(n, 1, 1)[:, None],
        scale=scale,
    )
    return torch.unflatten(states, 0, (n, blocks)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _varlen(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, scale: float, *, causal: bool, window: int | None
) -> Tensor | None:
    """One variable-length kernel on CUDA: [H, T, D] to [T, Hq, Dv]. None where no such kernel is installed."""
    call = _varlen_kernel()
    if call is None:
        return None
    reach = -1 if window is None else window - 1
    bounds = packing.bounds()
    longest = max(packing.longest, packing.row_tokens - packing.num_tokens)
    parts = [part.transpose(0, 1).contiguous() for part in (query, key, value)]
    out: Tensor = call(*parts, bounds, longest, scale, (reach, 0 if causal else reach), causal)
    return out


@functools.cache
def _varlen_kernel() -> Any:
    """torch's variable-length attention if it knows windows and grouped queries, else flash-attn's, else None."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        known: set[str] = set()
    else:
        known = set(inspect.signature(varlen_attn).parameters)
    if {"scale", "window_size", "enable_gqa"} <= known:

        def of_torch(
            q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, scale: float, reach: Any, _: bool
        ) -> Any:
            gqa = q.shape[1] != k.shape[1]
            return varlen_attn(
                q, k, v, bounds, bounds, longest, longest, scale=scale, window_size=reach, enable_gqa=gqa
            )

        return of_torch
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        return None

    def of_flash_attn(
        q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int, scale: float, reach: Any, causal: bool
    ) -> Any:
        window = reach if reach[0] >= 0 else (-1, -1)
        return flash_attn_varlen_func(
            q, k, v, bounds, bounds, longest, longest, softmax_scale=scale, causal=causal, window_size=window
        )

    return of_flash_attn
