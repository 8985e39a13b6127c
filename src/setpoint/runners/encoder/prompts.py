"""Which prompt goes before each text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from setpoint.errors import UsageError, unknown


class HasPrompts(Protocol):
    """A model or a folder with prompts by name."""

    @property
    def prompts(self) -> Mapping[str, str]:
        """Their texts."""
        ...

    @property
    def default_prompt(self) -> str | None:
        """The name of the one that is used when nobody says anything."""
        ...


def choose_prompt(folder: HasPrompts, *, name: str | None, text: str | None) -> str:
    """The prompt to put before each text: the given text, the named one, the folder's default, or nothing."""
    if text is not None:
        return text
    name = name if name is not None else folder.default_prompt
    if name is None:
        return ""
    if name not in folder.prompts:
        if not folder.prompts:
            raise UsageError(f"prompt_name {name!r}: this model's folder has no prompts; give the text with prompt=")
        raise UsageError(unknown("prompt_name", name, folder.prompts))
    return folder.prompts[name]
