"""The code blocks of the documentation, as readers see them.

Fences are ```sh and ```python, which are run; anything else is shown only. A comment right above a fence says
otherwise, with its reason:

    <!-- not run: needs a GPU -->
    <!-- exit 3 -->                  the commands end with that code

Blocks of one page run in their order, in one folder and one namespace, so a page can build on itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Generated pages and records of the past are not instructions to follow now.
NOT_INSTRUCTIONS = ("docs/cli/", "docs/log.md", "docs/decisions/")
SHOWN = {"text", "json", "csv", "toml", "html", "markdown"}
RUN = {"sh", "python"}

_FENCE = re.compile(
    r"(?:^ *<!--\s*(?P<note>[^>]*?)\s*-->\n)?^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """A fenced block. `skipped` is the reason why it is not run; None for one that is."""

    page: Path
    line: int
    language: str
    code: str
    skipped: str | None = None
    exit_code: int = 0

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """README and every page of docs/ that tells people what to do."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not str(page.relative_to(ROOT)).startswith(NOT_INSTRUCTIONS)]


def blocks(page: Path) -> Iterator[CodeBlock]:
    """The page's blocks in order. Raises ValueError for a language or a comment that is not known."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("language")) + 1
        language, note = match["language"].strip(), match["note"]
        if language not in SHOWN | RUN:
            raise ValueError(f"{page.name}:{line}: fence {language!r}; known: {', '.join(sorted(SHOWN | RUN))}")
        skipped, exit_code = _read_note(note, f"{page.name}:{line}")
        indent = match["indent"]
        code = "\n".join(row.removeprefix(indent) for row in match["code"].splitlines()) + "\n"
        yield CodeBlock(page=page, line=line, language=language, code=code, skipped=skipped, exit_code=exit_code)


def _read_note(note: str | None, place: str) -> tuple[str | None, int]:
    if not note:
        return None, 0
    reason = re.fullmatch(r"not run: (\S.*)", note)
    if reason:
        return reason[1], 0
    code = re.fullmatch(r"exit (\d+)", note)
    if code:
        return None, int(code[1])
    raise ValueError(f"{place}: comment {note!r}; known: 'not run: REASON', 'exit CODE'")
