"""`setpoint.json`: the operating point that was chosen, with its reason and what it holds for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setpoint.artifacts.document import adapter, parse, read_document, to_document, write_document
from setpoint.domain.profile import OperatingPoint
from setpoint.errors import InputError, OutputError

KIND = "operating-point"
_PROFILES = adapter(OperatingPoint)


def profile_to_json(profile: OperatingPoint) -> dict[str, Any]:
    """The document of an operating point."""
    return to_document(KIND, _PROFILES, profile)


def write_profile(path: Path, profile: OperatingPoint) -> None:
    """Write an operating point; replaces an earlier one, and raises OutputError for any other file."""
    if path.exists():
        try:
            read_document(path, kind=KIND)
        except InputError as error:
            raise OutputError(f"{path} exists and is no operating point of setpoint: choose another file") from error
    write_document(path, profile_to_json(profile))


def read_profile(path: Path) -> OperatingPoint:
    """Read an operating point. Raises InputError that says what is wrong and where."""
    return parse(path, _PROFILES, read_document(path, kind=KIND))
