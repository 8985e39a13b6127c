"""The life of a job's output: begun, resumed, finished; never lost, never mixed with another job's.

    open_store()     begin, or go on where the last run stopped; refuses other settings
    verify(), add()  rows that were done before; rows that are done now
    begin_merge()    all rows are done
    complete()       the ledger is saved, the state removed

The order of writes in `add` is digests, shard, journal line: a shard exists once its journal line does.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from setpoint.errors import FingerprintMismatch, OutputError
from setpoint.score.durable import append_durable, explain, write_atomic
from setpoint.score.ledger import Ledger, total
from setpoint.score.lock import FolderLock
from setpoint.score.manifest import (
    DIGESTS_NAME,
    JOURNAL_NAME,
    LOCK_NAME,
    MANIFEST_NAME,
    Hang,
    Journal,
    Manifest,
    ShardRecord,
    write_manifest,
)
from setpoint.score.shards import read_shard, read_shard_schema, write_shard
from setpoint.score.state import (
    LEDGER_KIND,
    LEDGER_SCHEMA,
    FinishedJob,
    check_may_begin,
    refuse_other_job,
    same_job_finished,
)
from setpoint.score.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

RowDigests = npt.NDArray[np.uint64]

_DIGEST_BYTES = 8
_DIGEST_ROWS = 1_000_000  # read at once
_STATE_FILES = frozenset({MANIFEST_NAME, JOURNAL_NAME, DIGESTS_NAME, LOCK_NAME})


def open_store(
    target: Target,
    *,
    fingerprint: Mapping[str, Any],
    choices: Mapping[str, Any],
    restart: bool = False,
    overwrite: bool = False,
) -> JobStore | FinishedJob:
    """Begin a job, go on with an unfinished one, or find that it was finished. `fingerprint` and `choices` are JSON.

    Raises FingerprintMismatch that names each difference to a job begun or finished before, and OutputError where
    another job is writing, where a file is in the way, and where the folder can't be written.
    """
    state = check_may_begin(target, restart=restart, overwrite=overwrite)
    if not restart and not overwrite:
        finished = same_job_finished(target, state, fingerprint)
        if finished is not None:
            _sweep(target)
            return finished
    try:
        lock = FolderLock.acquire(target.parts / LOCK_NAME, purpose=str(target.path))
    except OSError as error:
        raise OutputError(f"{explain(error, target.parts)}; choose an output in a folder you can write") from error
    with contextlib.ExitStack() as undo:
        undo.callback(lock.release)
        try:
            # Another run of the same job may have finished between the first look and the lock: look again.
            state = check_may_begin(target, restart=restart, overwrite=overwrite)
            if not restart and not overwrite and state.finished is not None:
                finished = same_job_finished(target, state, fingerprint)
                if finished is not None:
                    return finished
            manifest = None if restart else state.unfinished
            if manifest is None:
                manifest = Manifest(fingerprint=fingerprint, choices=choices, may_overwrite=state.output_exists)
                _clear(target.parts)
                write_manifest(target.parts, manifest)
            else:
                refuse_other_job(target, manifest, fingerprint)
            store = JobStore(target, manifest, lock)
        except OSError as error:
            raise OutputError(explain(error, target.parts)) from error
        undo.pop_all()
        return store


class JobStore:
    """The open state of one job; holds its lock until `close`. Made by `open_store`."""

    def __init__(self, target: Target, manifest: Manifest, lock: FolderLock) -> None:
        self.target = target
        self.manifest = manifest
        self.notes: list[str] = []  # what was repaired, for a person
        self._lock = lock
        with contextlib.ExitStack() as undo:
            self._journal, self._state = Journal.open(target.parts)
            undo.callback(self._journal.close)
            self._digests: BinaryIO = open(target.parts / DIGESTS_NAME, "a+b", buffering=0)  # noqa: SIM115
            undo.callback(self._digests.close)
            self._repair()
            undo.pop_all()
        self.num_rows_resumed = self.num_rows_done  # rows that earlier runs have finished

    @property
    def num_rows_done(self) -> int:
        """Rows in finished shards: always the first ones of the input."""
        shards = self._state.shards
        return shards[-1].first_row + shards[-1].num_rows if shards else 0

    @property
    def shards(self) -> tuple[ShardRecord, ...]:
        """The finished shards in input order."""
        return tuple(self._state.shards)

    @property
    def ledger(self) -> Ledger:
        """Counts over all finished shards."""
        return total(shard.ledger for shard in self._state.shards)

    @property
    def max_batch_tokens(self) -> int | None:
        """The limit that running out of memory taught an earlier run."""
        return self._state.max_batch_tokens

    @property
    def hangs(self) -> tuple[Hang, ...]:
        """Batches that never came back in earlier runs."""
        return tuple(self._state.hangs)

    def verify(self, first_row: int, digests: RowDigests, where: Callable[[int], str]) -> None:
        """Check rows that were done before against the present input. `where` names the row at an offset.

        Raises FingerprintMismatch that names the first row that differs. Rows beyond the finished ones pass.
        """
        count = max(0, min(len(digests), self.num_rows_resumed - first_row))
        saved = self._read_digests(first_row, count)
        different = np.flatnonzero(saved != digests[:count])
        if len(different):
            offset = int(different[0])
            row = first_row + offset + 1
            raise FingerprintMismatch(
                f"the input has changed since the unfinished job in {self.target.parts} was begun: "
                f"row {row} ({where(offset)}) differs from what was scored.",
                {f"digest of row {row}": (f"{saved[offset]:016x}", f"{digests[offset]:016x}")},
                advice="Bring the input back to go on, or --restart to start over.",
            )

    def verify_length(self, num_rows: int) -> None:
        """Raise FingerprintMismatch where the input ended before the rows that were done before."""
        if num_rows < self.num_rows_resumed:
            raise FingerprintMismatch(
                f"the input has changed since the unfinished job in {self.target.parts} was begun: it ends early.",
                {"input rows": (f"at least {self.num_rows_resumed}", num_rows)},
                advice="Bring the input back to go on, or --restart to start over.",
            )

    def add(self, table: pa.Table, *, first_row: int, digests: RowDigests, ledger: Ledger) -> ShardRecord:
        """Write the next rows as a shard. Raises OSError; what was finished before stays as it is."""
        if first_row != self.num_rows_done or table.num_rows != len(digests):
            raise ValueError(f"rows {first_row}+{table.num_rows} do not follow the {self.num_rows_done} that are done")
        append_durable(self._digests, digests.astype("<u8", copy=False).tobytes())
        index = len(self._state.shards)
        record = ShardRecord(
            index=index,
            first_row=first_row,
            num_rows=table.num_rows,
            size_bytes=write_shard(self.target.parts / ShardRecord.name_of(index), table),
            ledger=ledger,
        )
        self._journal.add_shard(record)
        self._state.shards.append(record)
        return record

    def remember_limit(self, max_batch_tokens: int) -> None:
        """Keep what running out of memory taught."""
        self._journal.add_limit(max_batch_tokens)
        self._state.max_batch_tokens = max_batch_tokens

    def remember_hang(self, rows: tuple[int, ...]) -> None:
        """Keep which rows' batch never came back, so that the next run can find the guilty one."""
        self._journal.add_hang(Hang(rows=rows))

    def begin_merge(self) -> None:
        """Say that from now on this job's own output may stand in the output's place."""
        if not self._state.is_merging:
            self._journal.add_merging()
            self._state.is_merging = True

    def input_digest(self) -> str:
        """One digest over all finished rows, as hex."""
        whole = InputDigest()
        for first_row in range(0, self.num_rows_done, _DIGEST_ROWS):
            whole.add(self._read_digests(first_row, min(_DIGEST_ROWS, self.num_rows_done - first_row)))
        return whole.hex()

    def tables(self) -> Iterator[pa.Table]:
        """The finished shards' tables in input order, read one at a time."""
        for shard in self._state.shards:
            yield read_shard(self.target.parts / shard.file_name)

    def schemas(self) -> Iterator[pa.Schema]:
        """The finished shards' schemas; inferred types may differ from shard to shard."""
        for shard in self._state.shards:
            yield read_shard_schema(self.target.parts / shard.file_name)

    def complete(self, document: Mapping[str, Any]) -> None:
        """Save the ledger of a job whose output is in place, then remove the state and close. Raises OSError."""
        whole = {"kind": LEDGER_KIND, "schema": LEDGER_SCHEMA, "fingerprint": self.manifest.fingerprint, **document}
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        write_atomic(self.target.ledger, lambda file: file.write(text.encode()))
        self._journal.close()
        self._digests.close()
        _dismantle(self.target.parts)
        self._lock.release()

    def close(self) -> None:
        """Close the files and let go of the lock; harmless when done twice."""
        self._journal.close()
        self._digests.close()
        self._lock.release()

    def _repair(self) -> None:
        """Bring the folder to what the journal says: drop what a crash left, and what lacks its file."""
        state = self._state
        num_whole = self._count_whole_shards(os.fstat(self._digests.fileno()).st_size // _DIGEST_BYTES)
        if num_whole < len(state.shards):
            self.notes.append(
                f"shard {num_whole + 1} of {len(state.shards)} in {self.target.parts} is missing or damaged; "
                "going on from there"
            )
            self._journal.keep_shards(num_whole, state)
        os.ftruncate(self._digests.fileno(), self.num_rows_done * _DIGEST_BYTES)
        _clear(self.target.parts, keep=_STATE_FILES | {shard.file_name for shard in state.shards})

    def _count_whole_shards(self, num_digests: int) -> int:
        for shard in self._state.shards:
            try:
                is_whole = (self.target.parts / shard.file_name).stat().st_size == shard.size_bytes
            except FileNotFoundError:
                is_whole = False
            if not is_whole or shard.first_row + shard.num_rows > num_digests:
                return shard.index
        return len(self._state.shards)

    def _read_digests(self, first_row: int, count: int) -> RowDigests:
        if not count:
            return np.empty(0, dtype=np.uint64)
        data = os.pread(self._digests.fileno(), count * _DIGEST_BYTES, first_row * _DIGEST_BYTES)
        return np.frombuffer(data, dtype="<u8").astype(np.uint64)


class InputDigest:
    """One digest over the digests of an input's rows, whatever portions they come in."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.num_rows = 0

    def add(self, digests: RowDigests) -> None:
        """Add the rows that follow."""
        self._hash.update(digests.astype("<u8", copy=False).tobytes())
        self.num_rows += len(digests)

    def hex(self) -> str:
        """The digest as text."""
        return self._hash.hexdigest()


def _clear(folder: Path, keep: frozenset[str] = frozenset({LOCK_NAME})) -> None:
    """Remove all but some names: what a crash, a finished job or a job to be dropped left.

    The manifest goes first: without it the rest means nothing, so a crash half way leaves no half of a job.
    """
    for name in sorted(os.listdir(folder), key=lambda name: name != MANIFEST_NAME):
        if name not in keep:
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                os.unlink(path)


def _dismantle(folder: Path) -> None:
    _clear(folder)
    os.unlink(folder / LOCK_NAME)
    with contextlib.suppress(OSError):  # another job is just taking the lock: the folder is its own now
        os.rmdir(folder)


def _sweep(target: Target) -> None:
    """Remove what a job that was killed just after it had finished left of its state."""
    if not target.parts.is_dir():
        return
    try:
        lock = FolderLock.acquire(target.parts / LOCK_NAME, purpose=str(target.path))
    except (OSError, OutputError):
        return  # somebody else's now, or nothing we may change: the output is complete all the same
    try:
        if not (target.parts / MANIFEST_NAME).exists():
            _dismantle(target.parts)
    finally:
        lock.release()
