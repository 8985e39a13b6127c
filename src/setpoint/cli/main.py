"""`setpoint VERB ...`: finds the verb, runs it, and turns errors into messages and exit codes.

0 done · 1 failed · 2 wrong usage · 3 done, but with failed rows (only with --fail-on-error-rows) · 130 interrupted
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from setpoint._version import __version__
from setpoint.cli.choose import choose
from setpoint.cli.demo import EPILOG as DEMO_EPILOG
from setpoint.cli.demo import demo
from setpoint.cli.env import env
from setpoint.cli.helptext import GroupedCommand
from setpoint.cli.score import EPILOG as SCORE_EPILOG
from setpoint.cli.score import score
from setpoint.cli.suggest import ParserError, complete_message
from setpoint.cli.sweep import EPILOG as SWEEP_EPILOG
from setpoint.cli.sweep import sweep
from setpoint.errors import Interrupted, SetpointError

app = typer.Typer(
    name="setpoint",
    help="Score files with models you run yourself: no padding tax, order kept, nothing lost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: half the start-up time, and the same text everywhere
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=GroupedCommand, epilog=SCORE_EPILOG)(score)
app.command(cls=GroupedCommand, epilog=SWEEP_EPILOG)(sweep)
app.command()(choose)
app.command(cls=GroupedCommand, epilog=DEMO_EPILOG)(demo)
app.command()(env)

_GRACE_S = 0.5
_UNEXPECTED = "this is a bug of setpoint: please report it with the lines above"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"setpoint {__version__}")
        raise typer.Exit


@app.callback()
def setpoint(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Score files with models you run yourself: no padding tax, order kept, nothing lost."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` are those of the process if not given."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    code = _run(words)
    _leave_if_threads_hang(code)
    return code


def _run(words: list[str]) -> int:
    try:
        result = app(args=words, prog_name="setpoint", standalone_mode=False)
    except SetpointError as error:
        _say(f"setpoint: {error}")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _say("setpoint: stopped by Ctrl-C")
        return Interrupted.exit_code
    except ParserError as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            _say(str(error))
            return int(getattr(error, "exit_code", 2))
        if context is not None:
            _say(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n")
        _say(f"setpoint: {complete_message(error)}")
        return int(getattr(error, "exit_code", 1))
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception:  # noqa: BLE001 - the last resort: a bug must not look like anything else
        traceback.print_exc()
        _say(f"setpoint: {_UNEXPECTED}")
        return 1
    return result if isinstance(result, int) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _leave_if_threads_hang(code: int) -> None:
    """End the process at once if a thread of a job is stuck in native code or in a read: it would hang the exit."""
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("setpoint-")]
    for thread in ours:
        thread.join(_GRACE_S)  # a job that has just ended may still be letting go of them
    if any(thread.is_alive() for thread in ours):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
