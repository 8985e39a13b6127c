"""How the sequences of a batch lie in one packed row, and what attention needs to know about it.

    row      | a a a a | b b b b b b | c c c c c c | · · |     ascending lengths, then the tail
    starts     0         4             10             16        row_tokens = 18

Sequences lie in ascending length, so those of one length are neighbours and can be computed as one batch without being
copied. The tail belongs to nobody: it rounds the row up, because oneDNN builds a kernel for every new number of rows
(about a millisecond each), and rounded rows repeat from batch to batch.

A forward pass announces its packing with `Packing.active()`; attention finds it with `current_packing()`. The
announcement is a context variable, so threads that compute at once never see each other's.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from setpoint.errors import SetpointError

ALIGN = 16  # tokens; short sequences are padded to a multiple of it while they are in attention
GROUP_TOKENS = 2048  # tokens of a group of short sequences, padding included

_active: contextvars.ContextVar[Packing] = contextvars.ContextVar("setpoint_packing")


class NotPacked(SetpointError):
    """A packed model was called outside of its executor, so nobody said where its sequences begin."""


class Scratch(threading.local):
    """Buffers that one thread uses again and again; fresh large ones would cost page faults in every layer."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised CPU tensor that is valid until the next `get` of that name in this thread."""
        size = 1
        for length in shape:
            size *= length
        buffer = self._buffers.get((name, dtype))
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name, dtype] = torch.empty(size, dtype=dtype)
        return buffer[:size].view(shape)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Short neighbours that attention computes as one padded batch of `count` sequences of `padded` tokens.

    `gather` [count * padded] says which row each slot reads (padding reads a neighbour, and is masked), `scatter`
    [tokens] which slots are real. A few whole sequences of padding round `count` up.
    """

    start: int
    tokens: int
    count: int
    padded: int
    gather: Tensor
    scatter: Tensor
    lengths: Tensor  # [count]

    def allowed(self, *, causal: bool, window: int | None) -> Tensor:
        """Which keys a query may see: bool [count, 1 or padded, padded]."""
        positions = torch.arange(self.padded, device=self.gather.device)
        keys = positions < self.lengths[:, None]
        if not causal and window is None:
            return keys[:, None, :]
        seen = keys[:, None, :] & band(self.padded, causal=causal, window=window, device=self.gather.device)
        return seen | (positions[:, None] >= self.lengths[:, None, None])  # a padding query must see something


def band(length: int, *, causal: bool, window: int | None, device: torch.device) -> Tensor:
    """Which keys a query may see by distance alone, bool [length, length]: `window` is the first distance too far."""
    positions = torch.arange(length, device=device)
    behind = positions[:, None] - positions[None, :]  # query minus key
    seen = torch.ones_like(behind, dtype=torch.bool)
    if causal:
        seen &= behind >= 0
    if window is not None:
        seen &= behind.abs() < window
    return seen


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where the sequences of a packed row are. `lengths` ascend and are at least 1."""

    lengths: tuple[int, ...]
    row_tokens: int
    device: torch.device
    scratch: Scratch
    _memo: dict[object, object] = field(default_factory=dict)

    @staticmethod
    def of(lengths: Sequence[int], *, device: torch.device, scratch: Scratch, round_up: bool) -> Packing:
        """Pack sequences of ascending lengths; `round_up` adds the tail."""
        total = sum(lengths)
        rows = rounded(total) if round_up else total
        return Packing(tuple(lengths), rows, device, scratch)

    @property
    def num_tokens(self) -> int:
        """Tokens that belong to sequences."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.lengths[-1]

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each sequence begins in the row."""
        return tuple(itertools.accumulate(self.lengths, initial=0))[:-1]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let attention find this packing, in this thread, for the duration."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    def runs(self, above: int = 0) -> Iterator[tuple[int, int, int]]:
        """(start, count, length) of the neighbours of equal length, for lengths greater than `above`."""
        start = 0
        for length, same in itertools.groupby(self.lengths):
            count = len(list(same))
            if length > above:
                yield start, count, length
            start += count * length

    def groups(self, limit: int) -> tuple[Group, ...]:
        """Groups that cover the sequences of at most `limit` tokens. Computed once a batch, not once a layer."""
        key = ("groups", limit)
        if key not in self._memo:
            self._memo[key] = tuple(self._groups(limit))
        groups = self._memo[key]
        assert isinstance(groups, tuple)
        return groups

    def _groups(self, limit: int) -> Iterator[Group]:
        short = [length for length in self.lengths if length <= limit]
        first = start = 0
        while first < len(short):
            padded = -(-short[first] // ALIGN) * ALIGN
            last = first
            while last < len(short) and short[last] <= padded and (last - first) * padded < GROUP_TOKENS:
                last += 1
            group = _group(short[first:last], start, padded, self.device)
            yield group
            start += group.tokens
            first = last

    def mask(self, group: Group, *, causal: bool, window: int | None, dtype: torch.dtype) -> Tensor:
        """0 where a query of the group may see a key, minus infinity elsewhere: [count, 1 or padded, padded]."""
        key = ("mask", group.start, group.padded, causal, window, dtype)
        found = self._memo.get(key)
        if found is None:
            allowed = group.allowed(causal=causal, window=window)
            found = torch.zeros(allowed.shape, dtype=dtype, device=self.device).masked_fill_(~allowed, float("-inf"))
            self._memo[key] = found
        assert isinstance(found, Tensor)
        return found

    def bounds(self) -> Tensor:
        """Begin of each sequence, and of the tail if there is one, and the end: int32, for variable-length kernels."""
        found = self._memo.get("bounds")
        if found is None:
            ends = list(itertools.accumulate(self.lengths, initial=0))
            if self.row_tokens > ends[-1]:
                ends.append(self.row_tokens)
            found = self._memo["bounds"] = torch.tensor(ends, dtype=torch.int32, device=self.device)
        assert isinstance(found, Tensor)
        return found


def current_packing() -> Packing:
    """The packing of the forward pass that this thread is in."""
    try:
        return _active.get()
    except LookupError:
        raise NotPacked(
            "a model prepared for packed rows was called directly; call the executor that prepared it instead"
        ) from None


def rounded(tokens: int) -> int:
    """Rows for so many tokens: the next multiple of 8 to 64, so that beyond the shortest rows at most 6% are added."""
    step = 8 if tokens < 256 else 16 if tokens < 512 else 32 if tokens < 2048 else 64
    return -(-tokens // step) * step


def _group(lengths: Sequence[int], start: int, padded: int, device: torch.device) -> Group:
    count = len(lengths)
    if count > 4:  # fewer different shapes
        count = -(-count // 4) * 4
    real = torch.tensor(lengths)
    all_lengths = torch.cat([real, real.new_full((count - len(lengths),), padded)])
    begins = torch.cumsum(real, 0) - real + start
    positions = torch.arange(padded)
    inside = positions < real[:, None]
    gather = torch.full((count, padded), start)
    gather[: len(lengths)] = torch.where(inside, begins[:, None] + positions, start)
    scatter = inside.flatten().nonzero().squeeze(1)
    return Group(
        start=start,
        tokens=sum(lengths),
        count=count,
        padded=padded,
        gather=gather.flatten().to(device),
        scatter=scatter.to(device),
        lengths=all_lengths.to(device),
    )
