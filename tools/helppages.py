"""Write docs/cli/VERB.md from `setpoint VERB --help`, or check that they are current.

Usage: python tools/helppages.py [--check]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer.main

from setpoint.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "cli"
WIDTH = 100


def main(arguments: list[str]) -> int:
    """Write the pages; with --check write nothing and return 1 where one is not current."""
    wanted = dict(pages())
    present = {path: path.read_text() for path in FOLDER.glob("*.md")}
    stale = sorted(path for path in wanted.keys() | present.keys() if wanted.get(path) != present.get(path))
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current; run: make docs")
        return 1 if stale else 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in stale:
        if path in wanted:
            path.write_text(wanted[path])
        else:
            path.unlink()
        print(f"{path.relative_to(ROOT)} {'written' if path in wanted else 'removed'}")
    return 0


def pages() -> Iterator[tuple[Path, str]]:
    """Path and text of every page: one a verb, and an index."""
    command = typer.main.get_command(app)
    verbs = sorted(getattr(command, "commands", {}))
    lines = [f"- [`setpoint {verb}`]({verb}.md)" for verb in verbs]
    yield FOLDER / "index.md", "\n".join(["# Commands", "", block("--help"), "", *lines, ""])
    for verb in verbs:
        yield FOLDER / f"{verb}.md", f"# setpoint {verb}\n\n{block(verb, '--help')}\n"


def block(*arguments: str) -> str:
    """The help as a person sees it in a terminal of fixed width, fenced."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        environment.pop(name, None)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("setpoint")), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    text = "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
