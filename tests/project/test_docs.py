"""Documentation can't drift: every command and every Python example in it is run, every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project import docpages
from tests.project.docpages import ROOT, CodeBlock
from tests.runners.encoder.tiny import tiny_model_folder

TIMEOUT_S = 240

# Models that pages speak of as the reader's own, by the folder they use for them.
READERS_MODELS = {
    "my-classifier": ("bert", "text-classification"),
    "my-nli": ("bert", "zero-shot-classification"),
    "my-ner": ("bert", "token-classification"),
    "my-reranker": ("bert", "text-ranking"),
}


@pytest.fixture
def readers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the models that readers are told to bring."""
    for name, (family, task) in READERS_MODELS.items():
        tiny_model_folder(tmp_path / "built" / name, family, task).rename(tmp_path / name)
    # Examples need an executor, not the best one: a short look at each is enough here.
    monkeypatch.setattr("setpoint.runners.encoder.select._PASS_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", docpages.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_of_the_page_runs(page: Path, readers_folder: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in docpages.blocks(page):
        if block.skipped is None and block.language == "sh":
            run_commands(block)
        elif block.skipped is None and block.language == "python":
            run_python(block, namespace)


def run_commands(block: CodeBlock) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == block.exit_code, f"{block}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def run_python(block: CodeBlock, namespace: dict[str, object]) -> None:
    # Line numbers of the page, so that a traceback points into it.
    code = compile("\n" * block.line + block.code, str(block.page), "exec")
    exec(code, namespace)


def test_blocks_that_are_not_run_are_few() -> None:
    every = [block for page in docpages.pages() for block in docpages.blocks(page) if block.language in docpages.RUN]
    skipped = [block for block in every if block.skipped is not None]
    assert len(skipped) <= len(every) / 3, "\n".join(f"{block}: {block.skipped}" for block in skipped)


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_front_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


PAGE = """\
Text.

```sh
echo hello
```

<!-- not run: needs a GPU -->
```python
raise SystemExit
```

- in a list

  <!-- exit 3 -->
  ```sh
  exit 3
  ```
"""


def test_blocks_are_found_with_their_notes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    first, second, third = docpages.blocks(page)
    assert (first.language, first.code, first.line) == ("sh", "echo hello\n", 3)
    assert second.skipped == "needs a GPU"
    assert (third.exit_code, third.code) == (3, "exit 3\n")


@pytest.mark.parametrize("text", ["```bash\nls\n```\n", "```\nls\n```\n", "<!-- skip -->\n```sh\nls\n```\n"])
def test_a_fence_that_would_silently_not_run_is_an_error(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match="known:"):
        list(docpages.blocks(page))


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    block = CodeBlock(page=ROOT / "README.md", line=1, language="sh", code="false | cat\necho late\n")
    with pytest.raises(AssertionError, match="exit 1"):
        run_commands(block)
