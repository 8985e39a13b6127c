"""A way to compute a model, and the memory of which way was chosen before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.domain.batch import BatchCost, BatchShape
from setpoint.runners.cache import read_json, write_json

_KIND = "choices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to compute the model."""

    backend: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.backend} {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedChoice:
    """A choice made earlier."""

    candidate: Candidate
    shape: BatchShape
    measured: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, key: str, candidates: Sequence[Candidate]) -> RememberedChoice | None:
        """The choice kept under `key`, if it is readable and still among what is possible."""
        saved = read_json(_KIND, key)
        try:
            candidate = Candidate(backend=saved["backend"], dtype=saved["dtype"])
            shape = saved["shape"]
            found = cls(
                candidate=candidate,
                shape=BatchShape(
                    max_batch_tokens=int(shape["max_batch_tokens"]),
                    max_batch_size=shape["max_batch_size"],
                    cost=BatchCost(shape["cost"]),
                    num_streams=int(shape["num_streams"]),
                ),
                measured=saved["measured"],
            )
        except (TypeError, KeyError, ValueError):
            return None
        return found if candidate in candidates else None

    def write(self, key: str) -> None:
        """Keep the choice."""
        shape = {
            "max_batch_tokens": self.shape.max_batch_tokens,
            "max_batch_size": self.shape.max_batch_size,
            "cost": self.shape.cost,
            "num_streams": self.shape.num_streams,
        }
        write_json(
            _KIND,
            key,
            {
                "backend": self.candidate.backend,
                "dtype": self.candidate.dtype,
                "shape": shape,
                "measured": list(self.measured),
            },
        )
