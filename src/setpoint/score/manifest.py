"""The saved state of an unfinished job, in a folder beside its output.

    OUT.parts/
      manifest.json     what the job is: its fingerprint and the choices made for it; written once, atomically
      journal.jsonl     one line a finished shard, appended and synced; a line that a crash tore is dropped
      digests.bin       8 bytes a row, at 8 x row: tells which row of a changed input differs
      part-00000.arrow  the shards: consecutive rows, in input order, each complete
      lock              held while a job runs

A journal instead of a manifest that is rewritten: the state of a job with n shards costs n lines, not n^2.
A folder without manifest.json holds nothing worth keeping.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from setpoint.errors import OutputError
from setpoint.score.durable import append_durable, write_atomic
from setpoint.score.ledger import Ledger

SCHEMA = 1
MANIFEST_NAME = "manifest.json"
JOURNAL_NAME = "journal.jsonl"
DIGESTS_NAME = "digests.bin"
LOCK_NAME = "lock"
_KIND = "setpoint-score-job"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an unfinished job is. `choices` holds what `auto` became, to be used again when the job goes on."""

    fingerprint: Mapping[str, Any]
    choices: Mapping[str, Any] = field(default_factory=dict)
    may_overwrite: bool = False  # a file at the output's place was there before and is to be replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """One finished shard: rows [first_row, first_row + num_rows) of the input."""

    index: int
    first_row: int
    num_rows: int
    size_bytes: int
    ledger: Ledger

    @property
    def file_name(self) -> str:
        """Its file in the state folder."""
        return self.name_of(self.index)

    @staticmethod
    def name_of(index: int) -> str:
        """The file of the shard with this number."""
        return f"part-{index:05d}.arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Rows, from 0, whose batch never came back."""

    rows: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class JournalState:
    """What the lines of a journal say together."""

    shards: list[ShardRecord] = field(default_factory=list)
    max_batch_tokens: int | None = None  # batches above it ran out of memory
    hangs: list[Hang] = field(default_factory=list)
    is_merging: bool = False  # the output's place may hold this job's own output already
    valid_bytes: int = 0
    shard_ends: list[int] = field(default_factory=list)  # size of the journal in bytes up to and with each shard


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest in one step."""
    document = {
        "kind": _KIND,
        "schema": SCHEMA,
        "fingerprint": dict(manifest.fingerprint),
        "choices": dict(manifest.choices),
        "may_overwrite": manifest.may_overwrite,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write_atomic(folder / MANIFEST_NAME, lambda file: file.write(text.encode()))


def read_manifest(folder: Path) -> Manifest | None:
    """Read it, or None where there is no unfinished job. Raises OutputError for one that can't be understood."""
    path = folder / MANIFEST_NAME
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        raise OutputError(f"cannot read {path}: {error}; --restart drops it and starts over") from error
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        raise OutputError(f"{path} is not the state of a scoring job; move it away, or choose another output")
    if document.get("schema") != SCHEMA:
        raise OutputError(
            f"{path} has schema {document.get('schema')!r}, this version of setpoint reads {SCHEMA}; "
            "finish it with the version that began it, or start over with --restart"
        )
    try:
        return Manifest(
            fingerprint=dict(document["fingerprint"]),
            choices=dict(document["choices"]),
            may_overwrite=bool(document["may_overwrite"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(f"{path} is damaged ({error!r}); --restart drops it and starts over") from error


def has_begun_merging(folder: Path) -> bool:
    """Whether the journal says that the output was about to be put in place. Changes nothing."""
    path = folder / JOURNAL_NAME
    try:
        return _parse(path.read_bytes(), path).is_merging
    except FileNotFoundError:
        return False


class Journal:
    """The append-only log of a job. Reading repairs: a torn last line is cut off before anything is appended."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file

    @classmethod
    def open(cls, folder: Path) -> tuple[Journal, JournalState]:
        """Open for appending and return what it says so far. Raises OutputError where it is damaged inside."""
        path = folder / JOURNAL_NAME
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 - lives as long as the journal
        try:
            file.seek(0)
            state = _parse(file.read(), path)
            _cut(file, state.valid_bytes)
        except BaseException:
            file.close()
            raise
        return cls(path, file), state

    def keep_shards(self, num_shards: int, state: JournalState) -> None:
        """Forget what was said after the first shards: the files of later ones turned out to be missing."""
        del state.shards[num_shards:], state.shard_ends[num_shards:]
        _cut(self._file, state.shard_ends[-1] if num_shards else 0)
        if state.is_merging:  # still true: what stands in the output's place is this job's own
            self.add_merging()

    def add_shard(self, shard: ShardRecord) -> None:
        """A shard's file is in place."""
        self._append(
            {
                "shard": shard.index,
                "first_row": shard.first_row,
                "rows": shard.num_rows,
                "bytes": shard.size_bytes,
                "ledger": shard.ledger.to_json(),
            }
        )

    def add_limit(self, max_batch_tokens: int) -> None:
        """Batches above this many tokens ran out of memory."""
        self._append({"max_batch_tokens": max_batch_tokens})

    def add_hang(self, hang: Hang) -> None:
        """A batch never came back."""
        self._append({"hung_rows": list(hang.rows)})

    def add_merging(self) -> None:
        """All rows are done; the output is about to be put in place."""
        self._append({"merging": True})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, entry: Mapping[str, Any]) -> None:
        append_durable(self._file, json.dumps(entry, ensure_ascii=False).encode() + b"\n")


def _cut(file: BinaryIO, size_bytes: int) -> None:
    if os.fstat(file.fileno()).st_size != size_bytes:
        os.ftruncate(file.fileno(), size_bytes)
        os.fsync(file.fileno())


def _parse(content: bytes, path: Path) -> JournalState:
    state = JournalState()
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline was torn by a crash
        try:
            entry = json.loads(line)
            _apply(entry, state)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) - 1:
                break  # the last line's pages reached the disk in part
            raise OutputError(
                f"{path} is damaged at line {number} ({error!r}); --restart drops the state and starts over"
            ) from error
        state.valid_bytes += len(line) + 1
        if len(state.shard_ends) < len(state.shards):
            state.shard_ends.append(state.valid_bytes)
    return state


def _apply(entry: Mapping[str, Any], state: JournalState) -> None:
    if "shard" in entry:
        expected = state.shards[-1].first_row + state.shards[-1].num_rows if state.shards else 0
        shard = ShardRecord(
            index=int(entry["shard"]),
            first_row=int(entry["first_row"]),
            num_rows=int(entry["rows"]),
            size_bytes=int(entry["bytes"]),
            ledger=Ledger.from_json(entry["ledger"]),
        )
        if shard.first_row != expected or shard.index != len(state.shards):
            raise ValueError(f"shard {shard.index} begins at row {shard.first_row}, expected {expected}")
        state.shards.append(shard)
    elif "max_batch_tokens" in entry:
        state.max_batch_tokens = int(entry["max_batch_tokens"])
    elif "hung_rows" in entry:
        state.hangs.append(Hang(rows=tuple(int(row) for row in entry["hung_rows"])))
    elif "merging" in entry:
        state.is_merging = True
    else:
        raise ValueError(f"unknown entry {sorted(entry)}")
