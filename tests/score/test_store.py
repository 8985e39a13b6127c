"""Whatever happens to the process or the disk: finished shards stay, and going on gives what one clean run gives."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.domain.row import Reason, RowFailure, RowResult
from setpoint.errors import FingerprintMismatch, OutputError
from setpoint.score.durable import write_atomic
from setpoint.score.ledger import Ledger
from setpoint.score.manifest import JOURNAL_NAME, MANIFEST_NAME
from setpoint.score.state import FinishedJob, check_may_begin, inspect
from setpoint.score.store import InputDigest, JobStore, open_store
from setpoint.score.target import Target, split_output
from tests.score.crash import Crash, failing_disk

FINGERPRINT = {"model": {"digest": "abc"}, "options": {"dtype": "float32"}, "labels": ["a", "b"]}
SHARD_ROWS = 4


def make_target(folder: Path) -> Target:
    return Target(path=folder / "out.txt", is_folder=False, output_format="text")


def digests_of(rows: range) -> np.ndarray:
    return np.array([row * 7 + 1 for row in rows], dtype=np.uint64)


def ledger_of(rows: range) -> Ledger:
    ledger = Ledger()
    for row in rows:
        if row % 5 == 0:
            ledger.count_failure(RowFailure(reason=Reason.EMPTY_TEXT, detail="empty"), row=row, where=f"line {row}")
        else:
            ledger.count_result(RowResult(values={}, num_tokens=3, truncated_tokens=row % 2), is_windowed=False)
    return ledger


def begin(target: Target, **options: bool) -> JobStore:
    store = open_store(target, fingerprint=FINGERPRINT, choices={"dtype": "float32"}, **options)
    assert isinstance(store, JobStore)
    return store


def run(target: Target, num_rows: int) -> dict[str, object] | None:
    """A whole job over `num_rows` numbers; returns the ledger of a job that was finished before."""
    store = open_store(target, fingerprint=FINGERPRINT, choices={})
    if isinstance(store, FinishedJob):
        return dict(store.document)
    try:
        done = store.num_rows_done
        store.verify(0, digests_of(range(done)), lambda offset: f"line {offset + 1}")
        for first in range(done, num_rows, SHARD_ROWS):
            rows = range(first, min(first + SHARD_ROWS, num_rows))
            store.add(pa.table({"n": list(rows)}), first_row=first, digests=digests_of(rows), ledger=ledger_of(rows))
        store.begin_merge()
        text = "".join(f"{value}\n" for table in store.tables() for value in table["n"].to_pylist())
        write_atomic(target.path, lambda file: file.write(text.encode()))
        store.complete({"ledger": store.ledger.to_json(), "input_digest": store.input_digest()})
    finally:
        store.close()
    return None


def expected_text(num_rows: int) -> str:
    return "".join(f"{row}\n" for row in range(num_rows))


def test_a_clean_run_leaves_the_output_and_its_ledger_alone(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    run(target, 10)
    assert sorted(os.listdir(tmp_path)) == ["out.txt", "out.txt.ledger.json"]
    assert target.path.read_text() == expected_text(10)
    saved = json.loads(target.ledger.read_text())
    assert saved["fingerprint"] == FINGERPRINT
    assert Ledger.from_json(saved["ledger"]) == ledger_of(range(10))


@settings(max_examples=60, deadline=None)
@given(
    crashes=st.lists(st.integers(min_value=0, max_value=60), max_size=6),
    torn=st.integers(min_value=0, max_value=40),
    num_rows=st.integers(min_value=0, max_value=14),
)
def test_crashes_at_any_step_end_in_the_same_output(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[int], torn: int, num_rows: int
) -> None:
    target = make_target(tmp_path_factory.mktemp("crash"))
    for step in crashes:
        with failing_disk(step) as calls:
            try:
                run(target, num_rows)
            except Crash:
                if calls[step] == f"fsync {JOURNAL_NAME}":
                    _tear(target.parts / JOURNAL_NAME, torn)
    run(target, num_rows)
    assert target.path.read_text() == expected_text(num_rows)
    assert Ledger.from_json(json.loads(target.ledger.read_text())["ledger"]) == ledger_of(range(num_rows))
    run(target, num_rows)  # sweeps what a crash in the very last steps left
    assert not target.parts.exists()


def _tear(journal: Path, num_bytes: int) -> None:
    """Cut the end of the last line: it had not reached the disk, or in part."""
    if journal.exists():
        content = journal.read_bytes()
        last_line = len(content) - (content[:-1].rfind(b"\n") + 1) if content else 0
        with open(journal, "r+b") as file:
            file.truncate(len(content) - min(num_bytes, last_line))


def test_a_crash_at_every_single_step_loses_no_finished_shard(tmp_path: Path) -> None:
    with failing_disk(None) as calls:
        run(make_target(tmp_path), 10)
    num_steps = len(calls)
    assert num_steps > 30
    for step in range(num_steps):
        folder = tmp_path / str(step)
        folder.mkdir()
        target = make_target(folder)
        with failing_disk(step), pytest.raises(Crash):
            run(target, 10)
        before = inspect(target)
        assert before.output_exists or before.finished is None
        run(target, 10)
        assert target.path.read_text() == expected_text(10)


def test_a_full_disk_at_every_single_step_is_an_os_error_and_can_be_resumed(tmp_path: Path) -> None:
    def full() -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with failing_disk(None) as calls:
        run(make_target(tmp_path), 10)
    messages: list[str] = []
    for step in range(len(calls)):
        folder = tmp_path / str(step)
        folder.mkdir()
        target = make_target(folder)
        with failing_disk(step, full):
            try:
                run(target, 10)
                assert target.path.exists()  # only the removal of the state was left
            except (OutputError, OSError) as error:
                messages.append(str(error))
        assert not list(folder.rglob("*.tmp"))
        run(target, 10)
        assert target.path.read_text() == expected_text(10)
    assert len(messages) > 20
    assert all("space left" in message for message in messages)


def test_other_settings_are_refused_with_each_difference_named(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    begin(target).close()
    other = {"model": {"digest": "abc", "revision": "r2"}, "options": {"dtype": "bfloat16"}, "labels": ["a", "b"]}
    with pytest.raises(FingerprintMismatch) as caught:
        open_store(target, fingerprint=other, choices={})
    assert caught.value.differences == {
        "options.dtype": ("float32", "bfloat16"),
        "model.revision": (None, "r2"),
    }
    assert "options.dtype: was 'float32', now 'bfloat16'" in str(caught.value)
    assert "--restart" in str(caught.value)


def test_restart_drops_the_work_of_other_settings(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    store = begin(target)
    store.add(pa.table({"n": [0]}), first_row=0, digests=digests_of(range(1)), ledger=ledger_of(range(1)))
    store.close()
    store = open_store(target, fingerprint={"model": "other"}, choices={}, restart=True)
    assert isinstance(store, JobStore)
    assert store.num_rows_done == 0
    store.close()


def test_the_first_choices_are_kept(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    begin(target).close()
    store = open_store(target, fingerprint=FINGERPRINT, choices={"dtype": "bfloat16"})
    assert isinstance(store, JobStore)
    assert store.manifest.choices == {"dtype": "float32"}
    store.close()


def test_two_jobs_cannot_share_an_output(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    store = begin(target)
    with pytest.raises(OutputError, match=f"another job .process {os.getpid()}."):
        begin(target)
    store.close()
    begin(target).close()


def test_a_changed_row_is_named(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    store = begin(target)
    store.add(pa.table({"n": list(range(6))}), first_row=0, digests=digests_of(range(6)), ledger=ledger_of(range(6)))
    store.close()
    store = begin(target)
    changed = digests_of(range(3, 6))
    changed[1] += 1
    store.verify(0, digests_of(range(3)), lambda offset: f"in.csv:{offset + 2}")
    with pytest.raises(FingerprintMismatch, match=r"row 5 \(in.csv:6\) differs"):
        store.verify(3, changed, lambda offset: f"in.csv:{offset + 5}")
    store.verify(6, changed, lambda offset: "beyond what is done")
    store.verify_length(6)
    with pytest.raises(FingerprintMismatch, match="ends early"):
        store.verify_length(5)
    store.close()


def test_a_missing_shard_is_done_again(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    with failing_disk(None) as calls:
        run(make_target(tmp_path), 12)
    merge_step = len(calls)
    target.path.unlink()
    with failing_disk(merge_step - 12), pytest.raises(Crash):
        run(target, 12)
    (target.parts / "part-00001.arrow").write_bytes(b"short")
    store = begin(target)
    assert store.num_rows_done == SHARD_ROWS
    assert "shard 2 of 3" in store.notes[0]
    store.close()
    run(target, 12)
    assert target.path.read_text() == expected_text(12)


def test_a_damaged_journal_is_said_and_restart_helps(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    begin(target).close()
    (target.parts / JOURNAL_NAME).write_bytes(b"{nonsense}\n" * 3)
    with pytest.raises(OutputError, match=r"journal.jsonl is damaged at line 1"):
        begin(target)
    begin(target, restart=True).close()


def test_a_damaged_manifest_is_said_and_restart_helps(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    begin(target).close()
    (target.parts / MANIFEST_NAME).write_bytes(b"{")
    with pytest.raises(OutputError, match=r"manifest.json"):
        begin(target)
    begin(target, restart=True).close()


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    begin(target).close()
    path = target.parts / MANIFEST_NAME
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(OutputError, match="schema 2"):
        begin(target)


def test_somebody_elses_file_is_never_replaced_unasked(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    target.path.write_text("precious")
    for options in ({}, {"restart": True}):
        with pytest.raises(OutputError, match="exists already"):
            begin(target, **options)
    assert target.path.read_text() == "precious"
    assert not target.parts.exists()
    begin(target, overwrite=True).close()
    begin(target).close()  # that it may be replaced was said when the job was begun


def test_a_file_that_appears_while_the_job_is_unfinished_is_not_replaced(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    begin(target).close()
    target.path.write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        begin(target)
    with pytest.raises(OutputError, match="exists already"):
        begin(target, restart=True)
    begin(target, overwrite=True).close()


def test_a_finished_job_is_found_again_and_another_one_refused(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    run(target, 5)
    document = run(target, 5)
    assert document is not None
    assert document["input_digest"] == open_digest(range(5))
    with pytest.raises(FingerprintMismatch, match="--overwrite"):
        open_store(target, fingerprint={"model": "other"}, choices={})
    begin(target, overwrite=True).close()


def open_digest(rows: range) -> str:
    digest = InputDigest()
    for row in rows:
        digest.add(digests_of(range(row, row + 1)))
    return digest.hex()


def test_a_finished_job_can_be_started_over(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    run(target, 5)
    store = begin(target, restart=True)
    assert store.num_rows_done == 0
    assert target.path.exists()
    store.close()


def test_the_state_outlives_the_loss_of_the_output(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    run(target, 5)
    target.path.unlink()
    run(target, 5)
    assert target.path.read_text() == expected_text(5)


def test_folders_that_cannot_be_written_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutputError, match="no folder"):
        check_may_begin(make_target(tmp_path / "missing"), restart=False, overwrite=False)
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(OutputError, match="not allowed to write"):
        check_may_begin(make_target(tmp_path), restart=False, overwrite=False)


def test_a_read_only_disk_is_said(tmp_path: Path) -> None:
    def read_only() -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS))

    with failing_disk(0, read_only), pytest.raises(OutputError, match=r"not allowed to write|cannot lock"):
        begin(make_target(tmp_path))


def test_limits_and_hangs_are_remembered(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    store = begin(target)
    store.remember_limit(512)
    store.remember_hang((3, 4))
    store.close()
    store = begin(target)
    assert store.max_batch_tokens == 512
    assert [hang.rows for hang in store.hangs] == [(3, 4)]
    store.close()


@pytest.mark.parametrize("output", ["", " ", "s3://bucket/x.parquet", "..", "/"])
def test_impossible_outputs_are_usage_errors(output: str) -> None:
    with pytest.raises(Exception, match="output") as caught:
        split_output(output)
    assert getattr(caught.value, "exit_code", None) == 2


def test_a_folder_is_asked_for_with_a_slash(tmp_path: Path) -> None:
    assert split_output(str(tmp_path) + "/new/") == (tmp_path / "new", True)
    with pytest.raises(Exception, match="is a folder; write"):
        split_output(str(tmp_path))
