"""What stands at an output's place, and whether a job may begin there. Looks, and changes nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setpoint.errors import FingerprintMismatch, OutputError
from setpoint.score.fingerprint import differences
from setpoint.score.manifest import Manifest, has_begun_merging, read_manifest
from setpoint.score.target import Target

LEDGER_KIND = "setpoint-score-ledger"
LEDGER_SCHEMA = 1
_PART_NAME = re.compile(r"part-[0-9]{5,}\.[a-z0-9.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """The same job was finished before: its saved ledger."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """What stands there: an unfinished job, or a finished one, or a file of somebody else's, or nothing."""

    unfinished: Manifest | None
    finished: FinishedJob | None
    output_exists: bool
    is_merging: bool = False  # the unfinished job may have put its output in place already

    @property
    def may_replace(self) -> bool:
        """Whether what stands there is nobody else's, or was given up when the unfinished job was begun."""
        if not self.output_exists:
            return True
        if self.unfinished is not None:
            return self.unfinished.may_overwrite or self.is_merging
        return self.finished is not None


def inspect(target: Target) -> SavedState:
    """Look at what is there. Raises OutputError for state that can't be read."""
    unfinished = read_manifest(target.parts)
    output_exists = _output_exists(target)
    return SavedState(
        unfinished=unfinished,
        finished=_read_ledger(target.ledger) if unfinished is None and output_exists else None,
        output_exists=output_exists,
        is_merging=unfinished is not None and has_begun_merging(target.parts),
    )


def check_may_begin(target: Target, *, restart: bool, overwrite: bool) -> SavedState:
    """Refuse early, before a model is loaded, what would be refused whatever the job is; return what is there.

    Raises OutputError for a folder that can't be written; for an output that no job of ours made, unless it may be
    overwritten; and for saved state that can't be read, unless it is to be dropped.
    """
    _check_writable(target)
    try:
        state = inspect(target)
    except OutputError:
        if not restart:
            raise
        # Unreadable state is dropped; a folder with foreign files is refused again right below.
        state = SavedState(unfinished=None, finished=None, output_exists=_output_exists(target))
    if not state.may_replace and not overwrite:
        raise OutputError(f"{target.path} exists already; pass --overwrite to replace it, or choose another output")
    return state


def same_job_finished(target: Target, state: SavedState, fingerprint: Mapping[str, Any]) -> FinishedJob | None:
    """The finished job if it is this very one, None if there is none; raises FingerprintMismatch for another one."""
    if state.finished is None:
        return None
    found = differences(state.finished.document.get("fingerprint", {}), fingerprint)
    if found:
        raise FingerprintMismatch(
            f"{target.path} was made under other settings:",
            found,
            advice="Pass --overwrite to replace it, or choose another output.",
        )
    return state.finished


def refuse_other_job(target: Target, manifest: Manifest, fingerprint: Mapping[str, Any]) -> None:
    """Raise FingerprintMismatch where the unfinished job is not this one."""
    found = differences(manifest.fingerprint, fingerprint)
    if found:
        raise FingerprintMismatch(
            f"the unfinished job in {target.parts} was begun under other settings:",
            found,
            advice="Give the same settings to go on, or --restart to start over.",
        )


def _output_exists(target: Target) -> bool:
    """Whether there is something to lose. Raises OutputError for a folder that holds what no job puts there."""
    if not (target.is_folder and target.path.is_dir()):
        return os.path.lexists(target.path)
    names = os.listdir(target.path)
    foreign = sorted(name for name in names if not _PART_NAME.fullmatch(name))
    if foreign:
        raise OutputError(
            f"the folder {target.path} holds {foreign[0]!r}, which is no output of a job; choose a folder of its own"
        )
    return bool(names)


def _read_ledger(path: Path) -> FinishedJob | None:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise OutputError(f"cannot read {path}: {error}; pass --restart to replace the output") from error
    is_ours = isinstance(document, dict) and document.get("kind") == LEDGER_KIND
    return FinishedJob(document=document) if is_ours and document.get("schema") == LEDGER_SCHEMA else None


def _check_writable(target: Target) -> None:
    folder = target.path.parent
    if not folder.is_dir():
        raise OutputError(f"there is no folder {folder}; make it first, or choose another output")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"not allowed to write in {folder.resolve()}; choose an output in a folder you can write")
