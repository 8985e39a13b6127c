"""Token sequences side by side, padded on the right to the longest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from setpoint.runners.base import TokenSequence

Int64Array = npt.NDArray[np.int64]


def pad_batch(batch: Sequence[TokenSequence], pad_id: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Ids, mask (1 for tokens, 0 for padding) and segment ids (0 where there are none), each int64 [B, L]."""
    shape = (len(batch), max(map(len, batch)))
    ids = np.full(shape, pad_id, np.int64)
    mask = np.zeros(shape, np.int64)
    types = np.zeros(shape, np.int64)
    for row, sequence in enumerate(batch):
        ids[row, : len(sequence)] = sequence.ids
        mask[row, : len(sequence)] = 1
        if sequence.type_ids is not None:
            types[row, : len(sequence)] = sequence.type_ids
    return ids, mask, types
