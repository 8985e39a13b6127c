"""What a job's numbers depend on, and how two such descriptions differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def as_json(value: Any) -> Any:
    """The value as it comes back from JSON: tuples become lists, enums their text. Raises TypeError if it can't."""
    return json.loads(json.dumps(value))


def flatten(fingerprint: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and their values; lists stay whole, as a difference in them is read best whole."""
    flat: dict[str, Any] = {}
    for key, value in fingerprint.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def differences(saved: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (saved value, present value) for all that differs; None where one of them lacks the key."""
    old, new = flatten(as_json(saved)), flatten(as_json(present))
    keys = [*old, *(key for key in new if key not in old)]
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}
