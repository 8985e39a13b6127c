"""How much arithmetic a forward pass is: what MFU is counted in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What decides the work of a BERT-like encoder."""

    num_layers: int
    hidden: int
    intermediate: int

    @classmethod
    def read(cls, folder: Path) -> ModelSize:
        """From the model's config.json."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return cls(
            num_layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
        )

    @property
    def linear_parameters(self) -> int:
        """Weights of the linear layers: four of attention, two of the feed-forward block."""
        return self.num_layers * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)


def useful_flops(size: ModelSize, lengths: Sequence[int]) -> float:
    """Operations that the texts themselves need, padding excluded.

    Linears: 2 a weight and token. Attention: QK' and PV, each 2·L²·hidden a layer.
    """
    counts = np.asarray(lengths, dtype=np.float64)
    linears = 2.0 * size.linear_parameters * counts.sum()
    attention = 4.0 * size.num_layers * size.hidden * (counts**2).sum()
    return float(linears + attention)
