"""Real English text of mixed length that every Python carries: docstrings of its standard library and its help topics.

From a few words to thousands. Used where nothing of the user's own is at hand: to measure executors when a model is
loaded, and by the demonstration.
"""

from __future__ import annotations

import ast
import inspect
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_SEED = 20
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST_FILE_BYTES = 400_000
_LONG_WORDS = 150


def docstrings(count: int, *, seed: int = _SEED) -> list[str]:
    """`count` different docstrings in random order, the same for the same Python and seed.

    Fewer where the standard library has fewer (or none: an installation without sources).
    """
    if count < 1:
        return []
    # Files in random order until four times as many as asked for are found: enough for a fair mix of lengths without
    # reading the whole library.
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted([*folder.glob("*.py"), *(path for path in folder.glob("*/*.py") if _is_library(path))])
    rng = random.Random(seed)
    rng.shuffle(files)
    found: dict[str, None] = {}
    for file in files:
        found.update(dict.fromkeys(_in_file(file)))
        if len(found) >= 4 * count:
            break
    texts = list(found)
    return rng.sample(texts, min(count, len(texts)))


def mixed_texts(count: int, *, seed: int = _SEED) -> list[str]:
    """`count` texts with the long tail that documents and tickets have: five in six are docstrings as they come, one in
    six is long (over 150 words; Python's own help topics run to thousands).

    The same for the same Python and seed; fewer where the standard library has fewer.
    """
    rng = random.Random(seed)
    pool = [*docstrings(10**6, seed=seed), *_help_topics()]
    long = [text for text in pool if len(text.split()) > _LONG_WORDS]
    short = [text for text in pool if len(text.split()) <= _LONG_WORDS]
    num_long = min(len(long), count // 6)
    texts = [*rng.sample(long, num_long), *rng.sample(short, min(len(short), count - num_long))]
    rng.shuffle(texts)
    return texts


def _help_topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return [text for _, text in sorted(topics.items()) if text.strip()]


def _is_library(path: Path) -> bool:
    return path.parent.name not in ("test", "tests", "site-packages", "idlelib", "__pycache__", "lib2to3")


def _in_file(file: Path) -> Iterator[str]:
    try:
        if file.stat().st_size > _LONGEST_FILE_BYTES:
            return
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # not source of this Python, which some files there are on purpose
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node, clean=False)
            if text and text.strip():
                yield inspect.cleandoc(text).strip()
