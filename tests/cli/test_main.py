"""The front door: verbs, versions, exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from setpoint import __version__
from setpoint.cli.main import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"setpoint {__version__}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scor"], "there is no command 'scor' (did you mean 'score'?)"),
        (["--verison"], "there is no option --verison (did you mean '--version'?)"),
        (["score"], "Missing"),
        ([], "Usage: setpoint"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "score" in shown
    assert "env" in shown


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    code = "import sys; from setpoint.cli.main import main; sys.exit(main(['score', '--help']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait(timeout=30)
    process.stderr.close()
    assert "Traceback" not in err
