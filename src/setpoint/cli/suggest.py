"""Complete the messages of the option parser: every unknown word gets its nearest right one."""

from __future__ import annotations

from typing import Any

import typer

from setpoint.errors import nearest

# typer brings its own copy of click in some versions and uses the real one in others: what it exports leads to either.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]


def complete_message(error: Any) -> str:
    """The message of a parser's error, with the nearest option or command where one is unknown."""
    message = str(error.format_message()).strip()
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if context is None:
        return message
    if option is not None and type(error).__name__ == "NoSuchOption":
        options = [name for parameter in context.command.params for name in parameter.opts + parameter.secondary_opts]
        return f"there is no option {option}{nearest(option, options)}"
    commands = list(getattr(context.command, "commands", {}))
    if commands and "command" in message.lower() and context.invoked_subcommand is None:
        word = message.split("'")[1] if message.count("'") >= 2 else ""
        if word and word not in commands:
            return f"there is no command {word!r}{nearest(word, commands)}; there are: {', '.join(sorted(commands))}"
    return message
