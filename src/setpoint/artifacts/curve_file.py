"""`curve.json`: a curve with everything that is needed to read it, repeat it, or refuse a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setpoint.artifacts.document import adapter, parse, read_document, to_document, write_document
from setpoint.domain.curve import Curve
from setpoint.errors import InputError

KIND = "curve"
_CURVES = adapter(Curve)


def curve_to_json(curve: Curve) -> dict[str, Any]:
    """The document of a curve; each point has its verdict written out."""
    document = to_document(KIND, _CURVES, curve)
    for point, written in zip(curve.points, document["points"]):
        written["verdict"] = str(point.verdict)
    return document


def write_curve(path: Path, curve: Curve) -> None:
    """Write a curve, or leave the file as it was. Raises OutputError."""
    write_document(path, curve_to_json(curve))


def read_curve(path: Path) -> Curve:
    """Read a curve. Raises InputError that says what is wrong and where."""
    document = read_document(path, kind=KIND)
    found = document.get("points")
    points = found if isinstance(found, list) else []
    written = [point.pop("verdict", None) if isinstance(point, dict) else None for point in points]
    curve = parse(path, _CURVES, document)
    for number, (verdict, point) in enumerate(zip(written, curve.points)):
        if verdict is not None and verdict != point.verdict:
            raise InputError(f"{path}: points[{number}].verdict: its findings say {point.verdict}, not {verdict!r}")
    return curve
