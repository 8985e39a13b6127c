"""Where converted models and measured choices are kept between runs: SETPOINT_CACHE, else the user's cache folder.

Everything in it can be made again, so it may be deleted at any time; a damaged or unreadable entry counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def cache_folder(kind: str) -> Path:
    """The folder for one kind of entry, not necessarily there yet."""
    base = os.environ.get("SETPOINT_CACHE")
    if base:
        return Path(base).expanduser() / kind
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "setpoint" / kind


def cache_key(parts: Mapping[str, Any]) -> str:
    """A short name for what an entry depends on; `parts` must be JSON."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_json(kind: str, key: str) -> Any:
    """A saved entry, or None."""
    try:
        return json.loads((cache_folder(kind) / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(kind: str, key: str, value: Any) -> None:
    """Save an entry, atomically. A cache that cannot be written costs time, not the job, so that is not an error."""
    folder = cache_folder(kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{key}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(value, stream, indent=1)
            Path(name).replace(folder / f"{key}.json")
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError:
        return
