"""Whole jobs, from a source to a file: what goes in comes out, in order, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.domain.batch import BatchShape
from setpoint.domain.row import Reason, RowInput
from setpoint.domain.task import Task
from setpoint.domain.truncation import Truncation
from setpoint.errors import FingerprintMismatch, InputError, Interrupted, JobStopped, OutputError, UsageError
from setpoint.measure.clock import FakeClock
from setpoint.runners.base import EncodedRow, TokenSequence
from setpoint.runners.fake import FakeCost, FakeFaults, FakeRunner, token_id
from setpoint.score import pipeline as pipeline_module
from setpoint.score.control import StopToken
from setpoint.score.inputs import InputPlan
from setpoint.score.job import run_job
from setpoint.score.ledger import Ledger
from setpoint.score.plan import JobPlan
from setpoint.score.progress import Snapshot
from setpoint.score.sources import from_iterable, open_source
from setpoint.score.summary import JobReport, render
from setpoint.score.target import make_target
from setpoint.score.window import WindowLimits
from tests.score.crash import Crash, failing_disk

SHAPE = BatchShape(max_batch_tokens=32, num_streams=2)
SMALL = WindowLimits(max_rows=8, max_tokens=200, max_bytes=100_000)


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.snapshots: list[Snapshot] = []
        self.is_closed = False

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def close(self) -> None:
        self.is_closed = True


def plan_for(output: Path | str, **options: Any) -> JobPlan:
    return JobPlan(**{"target": make_target(output), "window": SMALL, **options})


def rows_of(count: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "text": f"row {i} " + "word " * (i % 7), "when": f"2024-01-{i % 28 + 1:02}"} for i in range(count)
    ]


def run(
    items: Any, output: Path | str, runner: FakeRunner | None = None, *, stop: StopToken | None = None, **options: Any
) -> JobReport:
    return run_job(from_iterable(items), runner or FakeRunner(shape=SHAPE), plan_for(output, **options), stop=stop)


def embedding_of(text: str) -> list[float]:
    runner = FakeRunner()
    row = runner.encode([RowInput(text=text)])[0]
    assert isinstance(row, EncodedRow)
    return list(runner.decode(row, runner.forward(list(row.sequences))).values["embedding"])


# What comes out -------------------------------------------------------------------------------------------------------


def test_rows_come_out_in_order_with_their_columns_and_results(tmp_path: Path) -> None:
    items = rows_of(50)
    items[7]["text"] = None
    items[20]["text"] = "  "
    report = run(items, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "text", "when", "embedding", "num_tokens", "truncated_tokens", "error"]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 8)
    assert table.schema.field("num_tokens").type == pa.int32()
    assert table["id"].to_pylist() == list(range(50))
    for item, row in zip(items, table.to_pylist()):
        assert row["text"] == item["text"]
        if item["id"] in (7, 20):
            assert row["embedding"] is None
            assert row["num_tokens"] is None
            assert row["error"].startswith("missing_text" if item["id"] == 7 else "empty_text")
        else:
            assert row["error"] is None
            assert row["num_tokens"] == len(item["text"].split()) + 2
            np.testing.assert_array_equal(row["embedding"], embedding_of(item["text"]))
    assert report.ledger.num_rows == 50
    assert report.ledger.failures == {Reason.MISSING_TEXT: 1, Reason.EMPTY_TEXT: 1}
    assert sorted(os.listdir(tmp_path)) == ["out.parquet", "out.parquet.ledger.json"]


def test_the_ledger_is_saved_beside_the_output(tmp_path: Path) -> None:
    run([{"text": "a"}, {"text": None}, {"text": 3}], tmp_path / "out.jsonl")
    saved = json.loads((tmp_path / "out.jsonl.ledger.json").read_text())
    assert Ledger.from_json(saved["ledger"]).num_failed == 2
    assert saved["ledger"]["failures"]["not_text"]["examples"][0]["row"] == 3
    assert saved["columns"]["embedding"] == "embedding"
    assert saved["performance"]["rows"] == 3


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "csv", "csv.gz"])
def test_every_format_has_all_rows(tmp_path: Path, ending: str) -> None:
    run(rows_of(30), tmp_path / f"out.{ending}")
    chunks = list(open_source(tmp_path / f"out.{ending}").chunks())
    assert [int(value) for chunk in chunks for value in chunk.values("id")] == list(range(30))


def test_a_folder_of_files_is_one_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.score.merge.FILE_ROWS", 20)
    report = run(rows_of(50), f"{tmp_path}/out/")
    assert report.output.endswith("out/")
    assert sorted(os.listdir(tmp_path / "out")) == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == list(range(50))
    assert run(rows_of(50), f"{tmp_path}/out/").already_complete
    run(rows_of(10), f"{tmp_path}/out/", overwrite=True)
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == list(range(10))
    assert sorted(os.listdir(tmp_path)) == ["out", "out.ledger.json"]


def test_a_folder_with_other_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    for options in ({}, {"overwrite": True}, {"restart": True}):
        with pytest.raises(OutputError, match=r"thesis.tex"):
            run(rows_of(3), f"{tmp_path}/out/", **options)


def test_no_rows_make_an_output_with_columns(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n")
    run_job(open_source(tmp_path / "in.csv"), FakeRunner(), plan_for(tmp_path / "out.parquet"))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 0
    assert table.column_names == ["id", "text", "embedding", "num_tokens", "truncated_tokens", "error"]
    assert run([], tmp_path / "empty.parquet").ledger.num_rows == 0


def test_names_that_are_taken_are_not_overwritten(tmp_path: Path) -> None:
    items = [{"text": "some text", "label": "gold", "score": 7, "error": "mine"}] * 3
    runner = FakeRunner(task=Task.TEXT_CLASSIFICATION)
    report = run(items, tmp_path / "out.parquet", runner)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names[:4] == ["text", "label", "score", "error"]
    assert table.column_names[4:] == ["label_out", "score_out", "num_tokens", "truncated_tokens", "error_out"]
    assert table["label"].to_pylist() == ["gold"] * 3
    assert report.columns["label"] == "label_out"
    assert "label is in label_out" in render(report)
    run(items, tmp_path / "prefixed.parquet", runner, prefix="pred_")
    assert pq.read_table(tmp_path / "prefixed.parquet").column_names[4:6] == ["pred_label", "pred_score"]


def test_a_column_that_comes_late_keeps_its_name(tmp_path: Path) -> None:
    lines = [{"text": f"text {i}"} for i in range(3_000)]
    lines[2_500]["embedding"] = "mine"
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run_job(
        open_source(tmp_path / "in.jsonl"), FakeRunner(shape=SHAPE), JobPlan(target=make_target(tmp_path / "o.parquet"))
    )
    table = pq.read_table(tmp_path / "o.parquet")
    assert table["embedding"].to_pylist()[2_500] == "mine"
    assert table["embedding_out"].null_count == 0


@pytest.mark.parametrize(("keep", "expected"), [(("id",), ["id"]), ((), []), (("when", "id"), ["when", "id"])])
def test_only_the_columns_asked_for_are_kept(tmp_path: Path, keep: tuple[str, ...], expected: list[str]) -> None:
    run(rows_of(20), tmp_path / "out.parquet", keep=keep)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == [*expected, "embedding", "num_tokens", "truncated_tokens", "error"]
    assert table.num_rows == 20


def test_types_that_change_on_the_way_are_brought_together(tmp_path: Path) -> None:
    lines = ["id,text"] + [f"{i},text {i}" for i in range(2_000)] + [f"x{i},text {i}" for i in range(2_000)]
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n")
    run_job(open_source(tmp_path / "in.csv"), FakeRunner(), JobPlan(target=make_target(tmp_path / "out.parquet")))
    ids = pq.read_table(tmp_path / "out.parquet")["id"].to_pylist()
    assert ids == [line.split(",")[0] for line in lines[1:]]


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        (Task.TEXT_CLASSIFICATION, ["label", "score"]),
        (Task.TOKEN_CLASSIFICATION, ["entities"]),
        (Task.FEATURE_EXTRACTION, ["embedding"]),
    ],
)
def test_tasks_have_their_columns(tmp_path: Path, task: Task, fields: list[str]) -> None:
    run([{"text": "one two three"}, {"text": ""}], tmp_path / "out.parquet", FakeRunner(task=task))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names[1:-3] == fields
    assert [value is None for value in table[fields[0]].to_pylist()] == [False, True]


# What rows ask --------------------------------------------------------------------------------------------------------


def test_templates_pairs_and_candidates(tmp_path: Path) -> None:
    items = [{"a": "one", "b": "two", "n": 3, "labels": "x, y", "docs": ["d1", "d2"]}] * 2
    seen: list[Sequence[RowInput]] = []

    class Spy(FakeRunner):
        def encode(self, rows: Sequence[RowInput]) -> Any:
            seen.append(rows)
            return super().encode(rows)

    run(items, tmp_path / "1.parquet", Spy(), inputs=InputPlan(template="{a}\\n{n}: {{{b}}}"))
    pair = InputPlan(column="a", pair_column="b")
    run(items, tmp_path / "2.parquet", Spy(task=Task.TEXT_CLASSIFICATION), inputs=pair)
    zero_shot = InputPlan(column="a", labels_column="labels")
    run(items, tmp_path / "3.parquet", Spy(task=Task.ZERO_SHOT_CLASSIFICATION), inputs=zero_shot)
    ranking = InputPlan(query_column="a", documents_column="docs")
    run(items, tmp_path / "4.parquet", Spy(task=Task.TEXT_RANKING), inputs=ranking)
    assert [rows[0] for rows in seen] == [
        RowInput(text="one\n3: {two}"),
        RowInput(text="one", pair="two", has_pair=True),
        RowInput(text="one", candidates=("x", "y")),
        RowInput(text="one", candidates=("d1", "d2")),
    ]


def test_rows_without_a_field_say_so(tmp_path: Path) -> None:
    lines = [{"text": "a"}, {"other": 1}, {"text": None}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = plan_for(tmp_path / "out.parquet", inputs=InputPlan(column="text"))
    report = run_job(open_source(tmp_path / "in.jsonl"), FakeRunner(), plan)
    assert report.ledger.failures == {Reason.MISSING_COLUMN: 1, Reason.MISSING_TEXT: 1}


def test_unreadable_records_are_rows_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": \n{"text": "b"}\n')
    plan = plan_for(tmp_path / "out.parquet")
    report = run_job(open_source(tmp_path / "in.jsonl"), FakeRunner(), plan)
    assert report.ledger.failures == {Reason.INVALID_RECORD: 1}
    assert "in.jsonl:2" in report.ledger.examples[Reason.INVALID_RECORD][0].where
    assert pq.read_table(tmp_path / "out.parquet")["text"].to_pylist() == ["a", None, "b"]


@pytest.mark.parametrize(
    ("task", "inputs", "message"),
    [
        (Task.FEATURE_EXTRACTION, InputPlan(column="txt"), "no column 'txt'.*did you mean 'text'"),
        (Task.FEATURE_EXTRACTION, InputPlan(template="{txt}"), "no column 'txt'"),
        (Task.FEATURE_EXTRACTION, InputPlan(template="plain"), "has no column in it"),
        (Task.FEATURE_EXTRACTION, InputPlan(template="{text"), "cannot be read"),
        (Task.FEATURE_EXTRACTION, InputPlan(template="{text!r}"), "plain column names"),
        (Task.FEATURE_EXTRACTION, InputPlan(template="{}"), "empty braces"),
        (Task.FEATURE_EXTRACTION, InputPlan(column="text", template="{text}"), "not both"),
        (Task.FEATURE_EXTRACTION, InputPlan(pair_column="when"), "--pair-column is for"),
        (Task.FEATURE_EXTRACTION, InputPlan(documents_column="when"), "are for text-ranking"),
        (Task.FEATURE_EXTRACTION, InputPlan(labels_column="when"), "is for zero-shot"),
        (Task.ZERO_SHOT_CLASSIFICATION, InputPlan(), "needs candidate labels"),
        (Task.TEXT_RANKING, InputPlan(), "needs passages"),
        (Task.TEXT_RANKING, InputPlan(documents_column="when", pair_column="when"), "not both"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, task: Task, inputs: InputPlan, message: str) -> None:
    with pytest.raises((UsageError, InputError), match=message):
        run(rows_of(3), tmp_path / "out.parquet", FakeRunner(task=task), inputs=inputs)
    assert os.listdir(tmp_path) == []


def test_a_limit_takes_the_first_rows(tmp_path: Path) -> None:
    window = WindowLimits(max_rows=400, max_tokens=10_000, max_bytes=100_000)
    run(rows_of(3_000), tmp_path / "out.parquet", limit_rows=1_500, window=window)
    assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == list(range(1_500))
    with pytest.raises(UsageError, match="--limit"):
        plan_for(tmp_path / "x.parquet", limit_rows=0)


# Going on -------------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.integers(min_value=0, max_value=70), min_size=1, max_size=4), num_rows=st.integers(0, 45))
def test_a_job_that_crashed_anywhere_ends_as_one_clean_run(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], num_rows: int
) -> None:
    folder = tmp_path_factory.mktemp("job")
    items = rows_of(num_rows)
    run(items, folder / "clean.parquet")
    for step in steps:
        with failing_disk(step):
            try:
                run(items, folder / "out.parquet")
            except Crash:
                continue
    run(items, folder / "out.parquet")
    assert (folder / "out.parquet").read_bytes() == (folder / "clean.parquet").read_bytes()
    clean, resumed = (json.loads((folder / f"{name}.parquet.ledger.json").read_text()) for name in ("clean", "out"))
    assert clean["ledger"] == resumed["ledger"]
    assert clean["input_digest"] == resumed["input_digest"]


def stop_after(windows: int, output: Path, items: Any, **options: Any) -> None:
    """Run until so many shards are written, then stop as Ctrl-C would."""
    stop = StopToken()

    class Stopping(FakeRunner):
        def decode(self, row: EncodedRow, outputs: Sequence[Any]) -> Any:
            parts = output.with_name(output.name + ".parts")
            if len(list(parts.glob("part-*.arrow"))) >= windows:
                stop.request("Ctrl-C")
            return super().decode(row, outputs)

    with pytest.raises(Interrupted, match=r"stopped by Ctrl-C; .* rows are finished and kept in .*out.parquet.parts"):
        run(items, output, Stopping(shape=SHAPE), stop=stop, **options)


def test_going_on_computes_only_what_is_left(tmp_path: Path) -> None:
    stop_after(3, tmp_path / "out.parquet", rows_of(100))
    runner = FakeRunner(shape=SHAPE)
    report = run(rows_of(100), tmp_path / "out.parquet", runner)
    assert report.rows_resumed >= 24
    assert sum(map(len, runner.batches)) == 100 - report.rows_resumed
    assert report.ledger.num_rows == 100
    assert report.performance is not None
    assert report.performance.rows == 100 - report.rows_resumed


def test_what_cannot_be_read_twice_is_compared_row_by_row(tmp_path: Path) -> None:
    def generated(changed: int | None, count: int = 100) -> Iterator[dict[str, Any]]:
        for item in rows_of(count):
            yield {**item, "text": "changed"} if item["id"] == changed else item

    output = tmp_path / "out.parquet"
    stop_after(3, output, generated(None))
    with pytest.raises(FingerprintMismatch, match=r"row 12 \(.*\) differs from what was scored"):
        run(generated(11), output)
    with pytest.raises(FingerprintMismatch, match="ends early"):
        run(generated(None, count=10), output)
    report = run(generated(None), output)
    assert report.ledger.num_rows == 100
    assert run(generated(None), output).already_complete
    with pytest.raises(InputError, match="made from other rows"):
        run(generated(99), output)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"keep": ("id",)}, "rows.keep"),
        ({"inputs": InputPlan(column="when")}, "rows.column"),
        ({"limit_rows": 90}, "rows.limit_rows"),
        ({"prefix": "p_"}, "output.prefix"),
        ({"runner": FakeRunner(shape=SHAPE, model_seed=1)}, "model: was 'fake-0', now 'fake-1'"),
        ({"runner": FakeRunner(shape=BatchShape(max_batch_tokens=64))}, "batches.max_tokens: was 32, now 64"),
        ({"items": rows_of(99)}, "input.num_rows: was 100, now 99"),
    ],
)
def test_going_on_under_other_settings_is_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    output = tmp_path / "out.parquet"
    stop_after(2, output, rows_of(100))
    changed = {"items": rows_of(100), "output": output, "runner": FakeRunner(shape=SHAPE), **change}
    with pytest.raises(FingerprintMismatch, match=named):
        run(**changed)
    assert run(**changed, restart=True).rows_resumed == 0


def test_the_number_of_streams_may_change(tmp_path: Path) -> None:
    stop_after(2, tmp_path / "out.parquet", rows_of(100))
    one_stream = FakeRunner(shape=BatchShape(max_batch_tokens=32, num_streams=1))
    assert run(rows_of(100), tmp_path / "out.parquet", one_stream).ledger.num_rows == 100


def test_a_finished_job_is_not_done_again(tmp_path: Path) -> None:
    run(rows_of(10), tmp_path / "out.parquet")
    before = (tmp_path / "out.parquet").stat()
    runner = FakeRunner(shape=SHAPE)
    report = run(rows_of(10), tmp_path / "out.parquet", runner)
    assert report.already_complete
    assert runner.num_calls == 0
    assert (tmp_path / "out.parquet").stat().st_mtime_ns == before.st_mtime_ns
    assert "already complete: 10 rows" in render(report)
    with pytest.raises(FingerprintMismatch, match="--overwrite"):
        run(rows_of(11), tmp_path / "out.parquet")


def test_a_full_disk_stops_the_job_and_can_be_resumed(tmp_path: Path) -> None:
    run(rows_of(60), tmp_path / "clean.parquet")
    with failing_disk(None) as calls:
        run(rows_of(60), tmp_path / "count.parquet")
    steps = [step for step, name in enumerate(calls) if name == "replace" or name.startswith("fsync")]
    for step in [*steps[8::5], steps[-1]]:
        output = tmp_path / f"{step}.parquet"
        with (
            failing_disk(step, lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
            pytest.raises(JobStopped, match="no space left on the disk") as caught,
        ):
            run(rows_of(60), output)
        assert "run the same command again" in str(caught.value)
        run(rows_of(60), output)
        assert output.read_bytes() == (tmp_path / "clean.parquet").read_bytes()


def test_an_input_that_vanishes_stops_the_job_and_can_be_resumed(tmp_path: Path) -> None:
    class Vanishing:
        def __init__(self, inner: Any, *, after: int | None) -> None:
            self._inner = inner
            self._after = after

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def chunks(self, **options: Any) -> Iterator[Any]:
            for number, chunk in enumerate(self._inner.chunks(**options)):
                if number == self._after:
                    raise FileNotFoundError(errno.ENOENT, "No such file or directory", "rows.csv")
                yield chunk

    items = from_iterable(rows_of(5_000))
    output = tmp_path / "out.parquet"
    window = WindowLimits(max_rows=400, max_tokens=10_000, max_bytes=100_000)
    with pytest.raises(InputError, match=r"cannot read on in list of 5000 rows.*No such file") as caught:
        run_job(Vanishing(items, after=3), FakeRunner(shape=SHAPE), plan_for(output, window=window))  # type: ignore[arg-type]
    assert "run the same command again" in str(caught.value)
    report = run_job(Vanishing(items, after=None), FakeRunner(shape=SHAPE), plan_for(output, window=window))  # type: ignore[arg-type]
    assert report.ledger.num_rows == 5_000


def test_an_input_that_is_shorter_than_it_says_is_an_error(tmp_path: Path) -> None:
    class Short:
        def __init__(self) -> None:
            self._inner = from_iterable(rows_of(3_000))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def chunks(self, **options: Any) -> Iterator[Any]:
            yield next(iter(self._inner.chunks(**options)))

    with pytest.raises(InputError, match="has 3000 rows, but only 1024 could be read"):
        run_job(Short(), FakeRunner(shape=SHAPE), plan_for(tmp_path / "out.parquet"))  # type: ignore[arg-type]
    assert not (tmp_path / "out.parquet").exists()


def test_a_row_that_hangs_is_found_and_left_out_by_the_next_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "_JOIN_S", 0.05)
    come_back = threading.Event()
    items = [{"text": f"row {i}"} for i in range(20)]
    items[13]["text"] = "row hangs"

    def attempt() -> JobReport:
        clock = FakeClock()

        def on_forward(batch: Sequence[TokenSequence]) -> None:
            if any(token_id("hangs") in sequence.ids for sequence in batch):
                clock.advance(100)
                come_back.wait(timeout=30)

        runner = FakeRunner(shape=SHAPE, on_forward=on_forward)
        plan = plan_for(tmp_path / "out.parquet", batch_timeout_s=60)
        return run_job(from_iterable(items), runner, plan, clock=clock)

    with pytest.raises(JobStopped, match=r"computing \d rows between row .* has not come back"):
        attempt()
    with pytest.raises(JobStopped, match="computing row 14 has not come back"):
        attempt()
    report = attempt()
    come_back.set()
    assert report.ledger.failures == {Reason.MODEL_FAILED: 1}
    errors = pq.read_table(tmp_path / "out.parquet")["error"].to_pylist()
    assert [i for i, error in enumerate(errors) if error] == [13]


def test_what_running_out_of_memory_taught_is_kept(tmp_path: Path) -> None:
    recorder = Recorder()
    runner = FakeRunner(shape=BatchShape(max_batch_tokens=64), faults=FakeFaults(memory_tokens=40))
    plan = plan_for(tmp_path / "out.parquet")
    report = run_job(from_iterable(rows_of(60)), runner, plan, reporter=recorder)
    assert report.ledger.num_failed == 0
    assert any("ran out of memory" in note for note in recorder.notes)


def test_a_row_that_is_too_long_stops_the_job_when_that_was_asked_for(tmp_path: Path) -> None:
    items = [{"text": "a b"}, {"text": "c"}, {"text": "w " * 50}, {"text": "d"}]
    runner = FakeRunner(shape=SHAPE, max_length=10, truncation=Truncation.ERROR)
    with pytest.raises(JobStopped, match=r"row 3 \(input row 3\) is too_long.*the limit is 10; shorten it"):
        run(items, tmp_path / "out.parquet", runner, truncation=Truncation.ERROR)


def test_truncation_is_counted(tmp_path: Path) -> None:
    items = [{"text": "w " * 50}, {"text": "short"}]
    report = run(items, tmp_path / "1.parquet", FakeRunner(max_length=10))
    assert (report.ledger.truncated_rows, report.ledger.truncated_tokens) == (1, 42)
    assert "1 rows lost 42 tokens" in render(report)
    windowed = FakeRunner(max_length=10, truncation=Truncation.WINDOW)
    report = run(items, tmp_path / "2.parquet", windowed, truncation=Truncation.WINDOW)
    assert (report.ledger.truncated_rows, report.ledger.windowed_rows) == (0, 1)
    skipped = FakeRunner(max_length=10, truncation=Truncation.SKIP)
    report = run(items, tmp_path / "3.parquet", skipped, truncation=Truncation.SKIP)
    assert report.ledger.failures == {Reason.TOO_LONG: 1}


# What is said ---------------------------------------------------------------------------------------------------------


def test_the_forecast_comes_early_and_is_near_the_outcome(tmp_path: Path) -> None:
    clock = FakeClock()
    recorder = Recorder()
    cost = FakeCost(a_s=0.02, b_s_per_token=0.002, c_s_per_token2=0.00001, noise=0.05)
    runner = FakeRunner(shape=BatchShape(max_batch_tokens=128, num_streams=1), cost=cost, spend=clock.advance)
    random = np.random.default_rng(0)
    items = [{"text": "w " * int(n)} for n in np.clip(random.lognormal(2.5, 1.0, 3_000), 1, 120)]
    window = WindowLimits(max_rows=500, max_tokens=100_000, max_bytes=10**7)
    report = run_job(
        from_iterable(items), runner, plan_for(tmp_path / "o.parquet", window=window), reporter=recorder, clock=clock
    )
    performance = report.performance
    assert performance is not None
    assert performance.forecast is not None
    assert performance.forecast.low_s <= performance.elapsed_s <= performance.forecast.high_s
    assert performance.forecast.high_s < 1.5 * performance.forecast.low_s
    assert any(note.startswith("forecast: about ") and "3,000 rows" in note for note in recorder.notes)
    assert recorder.is_closed
    assert performance.cost is not None
    assert performance.cost.cost.b_s_per_token == pytest.approx(0.002, rel=0.2)
    lefts = [snapshot.left_s for snapshot in recorder.snapshots if snapshot.left_s is not None]
    assert lefts[-1] < 0.05 * performance.elapsed_s
    assert "forecast" in render(report)


def test_figures_add_up(tmp_path: Path) -> None:
    report = run(rows_of(200), tmp_path / "out.parquet")
    performance = report.performance
    assert performance is not None
    shares = performance.shares
    assert shares["computing"] + shares["waiting"] == pytest.approx(1.0, abs=1e-9)
    assert all(0 <= share <= 1.05 for share in shares.values())
    assert performance.padding_waste == 0.0
    assert performance.peak_memory_bytes > 10 * 2**20
    assert json.loads(json.dumps(report.to_json()))["ledger"]["rows"] == 200
