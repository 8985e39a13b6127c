"""docs/cli is what `--help` says now."""

from __future__ import annotations

import subprocess
import sys

from tests.project.docpages import ROOT


def test_help_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/helppages.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
