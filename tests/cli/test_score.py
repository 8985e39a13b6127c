"""`setpoint score` from its words to its exit code, with a fake model in the place of a real one."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from setpoint.artifacts.profile_file import write_profile
from setpoint.cli import scoring
from setpoint.cli.main import app, main
from setpoint.domain.batch import BatchShape
from setpoint.domain.profile import OperatingPoint
from setpoint.measure.environment import read_environment
from setpoint.runners.encoder.options import EncoderOptions
from setpoint.runners.fake import FakeFaults, FakeRunner, token_id
from setpoint.score.rows import JobInput
from tests.artifacts.test_files import PROFILE
from tests.score.fakejob import Torchlike

loaded: list[EncoderOptions] = []


@pytest.fixture(autouse=True)
def fake_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load(options: EncoderOptions, rows: JobInput) -> FakeRunner:
        loaded.append(options)
        return Torchlike(
            task=options.task,
            shape=BatchShape(max_batch_tokens=options.max_batch_tokens or 64, max_batch_size=options.batch_size),
            faults=FakeFaults(raises_on={token_id("poison")}),
            max_length=options.max_length,
            truncation=options.truncation,
        )

    loaded.clear()
    monkeypatch.setattr(scoring, "load_runner", load)
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("id,text,title\n1,first row,a\n2,,b\n3,third row,c\n4,poison here,d\n")


def score(*words: str, output: str = "out.parquet", task: str = "feature-extraction") -> int:
    return main(["score", "in.csv", "--model", "fake", "--task", task, "-o", output, *words])


def test_a_job_from_words_to_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert score() == 0
    table = pq.read_table("out.parquet")
    assert table["id"].to_pylist() == ["1", "2", "3", "4"]
    assert [error and error.split(":")[0] for error in table["error"].to_pylist()] == [
        None,
        "empty_text",
        None,
        "model_failed",
    ]
    shown = capsys.readouterr()
    assert "out.parquet: 4 rows in" in shown.out
    assert "2 rows have a null and a reason" in shown.out
    assert "row 2 (in.csv:3)" in shown.out


def test_failed_rows_are_an_exit_code_only_when_asked_for() -> None:
    assert score("--fail-on-error-rows") == 3
    assert score("--fail-on-error-rows") == 3  # already complete, and its rows failed all the same
    Path("in.csv").write_text("text\nall is well\n")
    assert score("--fail-on-error-rows", output="good.parquet") == 0


def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--json") == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["schema"] == 1
    assert report["ledger"]["rows"] == 4
    assert report["output"] == "out.parquet"
    assert "4 rows in" in shown.err
    assert score("--json", "--keep", "id") == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "FingerprintMismatch"
    assert error["exit_code"] == 1


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--quiet") == 0
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""
    assert score("--quiet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["already_complete"]


def test_what_auto_became_is_asked_for_again() -> None:
    assert score() == 0
    assert loaded[-1].dtype == "auto"
    assert loaded[-1].max_batch_tokens is None
    score()
    assert loaded[-1].dtype == "float32"
    assert loaded[-1].max_batch_tokens == 64


def test_other_options_than_before_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert score() == 0
    assert score("--max-batch-tokens", "32") == 1
    assert "batches.max_tokens: was 64, now 32" in capsys.readouterr().err
    assert score("--max-batch-tokens", "32", "--overwrite") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--colum", "text"], "there is no option --colum (did you mean '--column'?)"),
        (["--batch-size", "0"], "batch_size must be at least 1, not 0"),
        (["--max-batch-tokens", "-5"], "max_batch_tokens must be at least 1, not -5"),
        (["--batch-size", "many"], "--batch-size"),
        (["--limit", "0"], "--limit must be at least 1 row, not 0"),
        (["--batch-timeout", "10"], "--batch-timeout: '10' has no unit"),
        (["--batch-timeout", "0s"], "--batch-timeout must be more than 0 s"),
        (["--truncation", "trunc"], "unknown truncation 'trunc' (did you mean 'truncate'?)"),
        (["--dtype", "bf17"], "unknown dtype 'bf17' (did you mean 'bf16'?)"),
        (["--input-format", "cvs"], "did you mean 'csv'?"),
        (["--output-format", "parket"], "did you mean 'parquet'?"),
        (["--keep", ""], "--keep is empty"),
        (["--keep", "id,id"], "--keep names 'id' twice"),
        (["--top-k", "0"], "top_k must be at least 1"),
        (["--top-k", "some"], "top_k must be a positive number or 'all'"),
        (["--labels", "a,b"], "labels=('a', 'b') means nothing to feature-extraction"),
        (["--query", "SELECT 1"], "--query is for databases"),
    ],
)
def test_wrong_usage_is_2_and_names_what_is_wrong(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score(*words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert os.listdir() == ["in.csv"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["score", "im.csv", "--model", "m", "--task", "ner", "-o", "o.parquet"], "did you mean 'in.csv'?"),
        (["score", "in.csv", "--model", "m", "--task", "ner", "-c", "txt", "-o", "o.csv"], "did you mean 'text'?"),
        (["score", "in.csv", "--model", "m", "--task", "ner", "--keep", "idd", "-o", "o.csv"], "did you mean 'id'?"),
        (["score", "in.csv", "--model", "m", "--task", "ner", "-o", "no/o.csv"], "there is no folder no"),
        (["score", "in.csv", "--model", "m", "--task", "ner", "-o", "in.csv"], "the input and the output at once"),
        (["score", "in.csv", "--model", "m", "--task", "ner", "-o", "s3://b/o.csv"], "must be on a local disk"),
        (["score", "in.csv", "--model", "m", "--task", "ner", "-o", "o.xls"], "cannot tell the output's format"),
        (["score", "in.csv", "--model", "m", "--task", "nerr", "-o", "o.csv"], "did you mean 'ner'?"),
    ],
)
def test_what_cannot_be_is_said_before_a_model_is_loaded(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (1, 2)
    assert message in capsys.readouterr().err
    assert loaded == []
    assert os.listdir() == ["in.csv"]


def test_an_output_that_exists_is_kept_without_overwrite(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.parquet").write_text("precious")
    assert score() == 1
    assert "exists already; pass --overwrite" in capsys.readouterr().err
    assert loaded == []
    assert Path("out.parquet").read_text() == "precious"
    assert score("--overwrite") == 0


def test_columns_are_kept_as_asked() -> None:
    assert score("--keep", "title,id", "--prefix", "x_") == 0
    names = ["title", "id", "x_embedding", "x_num_tokens", "x_truncated_tokens", "x_error"]
    assert pq.read_table("out.parquet").column_names == names
    assert score("--keep", "none", output="none.csv") == 0
    assert Path("none.csv").read_text().splitlines()[0] == "embedding,num_tokens,truncated_tokens,error"


def test_candidates_and_pairs_reach_the_model() -> None:
    assert score("--labels", "x, y", output="1.jsonl", task="zero-shot-classification") == 0
    assert loaded[-1].labels == ("x", "y")
    assert score("--pair-column", "title", output="2.jsonl", task="text-classification") == 0
    assert score("--template", "{title}: {text}", output="3.jsonl") == 0


def test_several_inputs_are_one_job() -> None:
    Path("more.csv").write_text("id,text,title\n5,fifth row,e\n")
    words = ["--model", "fake", "--task", "feature-extraction", "-o", "out.parquet"]
    assert main(["score", "in.csv", "more.csv", *words]) == 0
    assert pq.read_table("out.parquet").num_rows == 5


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--column", "txt", "--debug") == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.strip().splitlines()[-1].startswith("setpoint: no column 'txt'")


def test_a_bug_is_not_dressed_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def load(options: Any, rows: Any) -> FakeRunner:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(scoring, "load_runner", load)
    assert score() == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: a bug" in err
    assert "please report it" in err


def test_ctrl_c_while_the_model_loads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import signal

    def load(options: Any, rows: Any) -> FakeRunner:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal should have ended this")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(scoring, "load_runner", load)
    assert score() == 130
    assert "stopped by Ctrl-C" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) == before
    assert os.listdir() == ["in.csv"]


def test_every_option_is_documented_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    import typer.main

    command = typer.main.get_command(app)
    for name, verb in command.commands.items():  # type: ignore[attr-defined]
        for parameter in verb.params:
            assert getattr(parameter, "help", "x"), f"setpoint {name}: {parameter.name}"
    assert main(["score", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert "Usage: setpoint score [OPTIONS] INPUT..." in shown


def at_point(**changes: Any) -> OperatingPoint:
    """Save setpoint.json, chosen here for the fake model with at most 48 tokens a batch."""
    profile = replace(
        PROFILE,
        point=replace(PROFILE.point, setting={"max_batch_tokens": 48}, load_name="max_batch_tokens", load=48.0),
        options={"dtype": "float32", "backend": "torch", "streams": 1},
        subject={"model": "fake-0", "dtype": "float32"},
        environment=json.loads(json.dumps(read_environment().as_dict())),
        **changes,
    )
    write_profile(Path("setpoint.json"), profile)
    return profile


def test_a_job_runs_at_the_point_of_its_profile() -> None:
    at_point()
    assert score("--profile", "setpoint.json") == 0
    options = loaded[-1]
    assert len(loaded) == 1
    assert (options.dtype, options.backend, options.streams, options.max_batch_tokens) == ("float32", "torch", 1, 48)
    ledger = json.loads(Path("out.parquet.ledger.json").read_text())
    assert ledger["choices"]["max_batch_tokens"] == 48


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max-batch-tokens", "32"], "--max-batch-tokens 32 contradicts the profile, which was chosen with 48"),
        (["--batch-size", "4"], "--batch-size 4 contradicts the profile, which was chosen without --batch-size"),
        (["--dtype", "bf16"], "--dtype bf16 contradicts the profile, which was chosen with float32"),
    ],
)
def test_an_option_against_the_profile_names_both(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at_point()
    assert score("--profile", "setpoint.json", *words) == 2
    assert message in capsys.readouterr().err
    assert loaded == []


def test_recalibrate_needs_a_profile_and_a_profile_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert score("--recalibrate") == 2
    assert "--recalibrate is about a profile" in capsys.readouterr().err
    assert score("--profile", "no.json") == 1
    assert "no.json" in capsys.readouterr().err


def test_a_profile_of_another_model_is_refused_or_measured_anew(capsys: pytest.CaptureFixture[str]) -> None:
    profile = at_point()
    write_profile(Path("setpoint.json"), replace(profile, subject={"model": "fake-1"}))
    assert score("--profile", "setpoint.json") == 1
    err = capsys.readouterr().err
    assert "model: was 'fake-1', now 'fake-0'" in err
    assert "--recalibrate" in err
    assert not Path("out.parquet").exists()
    assert score("--profile", "setpoint.json", "--recalibrate") == 0
    assert "measuring anew, as --recalibrate says" in capsys.readouterr().err
    assert loaded[-1].max_batch_tokens is None


def test_rows_of_other_lengths_are_told_or_measured_anew(capsys: pytest.CaptureFixture[str]) -> None:
    at_point(workload=replace(PROFILE.workload, length_quantiles={0.5: 400, 0.9: 500}))
    assert score("--profile", "setpoint.json") == 0
    assert "where the profile was chosen with 400" in capsys.readouterr().err
    assert loaded[-1].max_batch_tokens == 48
    assert score("--profile", "setpoint.json", "--recalibrate", output="anew.parquet") == 0
    assert loaded[-1].max_batch_tokens is None


def test_a_job_measured_anew_goes_on_with_what_it_began_with() -> None:
    profile = at_point()
    write_profile(Path("setpoint.json"), replace(profile, subject={"model": "fake-1"}))
    for _ in range(2):
        assert score("--profile", "setpoint.json", "--recalibrate") == 0
    assert (loaded[1].max_batch_tokens, loaded[3].max_batch_tokens) == (None, 64)
