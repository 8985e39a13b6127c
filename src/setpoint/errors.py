"""Every error that Setpoint raises on purpose.

SetpointError            something failed; the message says what, where and what to do       exit 1
├── UsageError           a wrong option, key or value; names the nearest right one           exit 2
├── MissingDependency    an optional package is not installed; names its install line        exit 1
├── InputError           the input cannot be read as a whole (file, column, query)           exit 1
├── OutputError          the output cannot be written, or exists already                     exit 1
├── ModelError           the model cannot be loaded, or cannot do the task                   exit 1
├── FingerprintMismatch  work begun under other settings; names every difference             exit 1
├── OutOfMemory          one batch did not fit; raised by runners, handled by the job        exit 1
└── JobStopped           the job ended early in a state that can be resumed                  exit 1
    └── Interrupted      Ctrl-C or SIGTERM                                                   exit 130
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class SetpointError(Exception):
    """Base of all expected failures. `str()` is a complete message for a person."""

    exit_code = 1


class UsageError(SetpointError):
    """A wrong option, key or value."""

    exit_code = 2


class MissingDependency(SetpointError):
    """An optional package is missing."""

    def __init__(self, package: str, *, extra: str | None, purpose: str) -> None:
        what = package if extra is None else f"'setpoint[{extra}]'"  # None: no extra brings it
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install {what}")
        self.package = package
        self.extra = extra


class InputError(SetpointError):
    """The input as a whole cannot be read."""


class OutputError(SetpointError):
    """The output cannot be written."""


class ModelError(SetpointError):
    """The model cannot be loaded or cannot do what was asked."""


class FingerprintMismatch(SetpointError):
    """Saved work was made under other settings.

    `differences` maps a dotted key to (saved value, present value).
    """

    def __init__(self, what: str, differences: Mapping[str, tuple[object, object]], *, advice: str) -> None:
        lines = [f"  {key}: was {old!r}, now {new!r}" for key, (old, new) in differences.items()]
        super().__init__("\n".join([what, *lines, advice]))
        self.differences = dict(differences)


class OutOfMemory(SetpointError):
    """A batch did not fit in memory. The job splits it and remembers the limit."""


class JobStopped(SetpointError):
    """The job ended early; what was finished is kept and the same command resumes."""


class Interrupted(JobStopped):
    """Stopped by the user."""

    exit_code = 130


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the closest choice, or an empty string."""
    pool = {str(choice).lower(): str(choice) for choice in choices}
    found = difflib.get_close_matches(word.lower(), pool, n=1, cutoff=0.5)
    return f" (did you mean {pool[found[0]]!r}?)" if found else ""


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """Message for a value that is not among `choices`: names the nearest and lists all."""
    names = list(choices)
    return f"unknown {kind} {word!r}{nearest(word, names)}; known: {', '.join(names)}"
