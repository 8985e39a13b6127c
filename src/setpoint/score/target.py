"""Where a job's output goes, and the files that stand beside it while the job runs and afterwards.

labels.parquet               the output
labels.parquet.parts/        the state of an unfinished job (see manifest.py)
labels.parquet.ledger.json   what became of every row, once the job is finished
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from setpoint.errors import UsageError

PARTS_SUFFIX = ".parts"
LEDGER_SUFFIX = ".ledger.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An output file, or a folder of files where the user's path ends in a slash."""

    path: Path
    is_folder: bool
    output_format: str  # `parquet`, `csv.gz`: see formats.py

    @property
    def parts(self) -> Path:
        """The folder of an unfinished job's state."""
        return self.path.with_name(self.path.name + PARTS_SUFFIX)

    @property
    def ledger(self) -> Path:
        """The ledger of a finished job."""
        return self.path.with_name(self.path.name + LEDGER_SUFFIX)


def make_target(output: str | os.PathLike[str], *, format_name: str | None = None) -> Target:
    """The target of an output that a person named; the format is told by the ending where it is not given.

    Raises UsageError for what cannot be an output and for an unknown format.
    """
    from setpoint.score.formats import output_format

    path, is_folder = split_output(output)
    name = "parquet" if is_folder and format_name is None else format_name
    return Target(path=path, is_folder=is_folder, output_format=str(output_format(path, name=name)))


def split_output(output: str | os.PathLike[str]) -> tuple[Path, bool]:
    """The path, and whether it is to be a folder. Raises UsageError for what cannot be an output."""
    text = os.fspath(output)
    if not text.strip():
        raise UsageError("the output's name is empty; write for example: -o labels.parquet")
    if "://" in text:
        raise UsageError(f"the output must be on a local disk, not {text!r}: resuming needs locks and atomic renames")
    is_folder = text.endswith(("/", os.sep))
    path = Path(text)
    if not path.name or path.name == "..":
        raise UsageError(f"the output {text!r} has no name; write for example: -o labels.parquet, or -o labels/")
    if path.is_dir() and not is_folder:
        raise UsageError(f"the output {text!r} is a folder; write {text + '/'!r} to fill it with files of rows")
    return path, is_folder
