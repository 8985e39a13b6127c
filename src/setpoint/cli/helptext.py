"""Help in plain text, with a verb's many options under headings."""

from __future__ import annotations

from typing import Any

import typer.core

ARGUMENTS, OTHERS = "Arguments", "Options"


class GroupedCommand(typer.core.TyperCommand):
    """A command whose options are listed under the heading that each names as its panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section a heading, in the order in which the headings first appear."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            heading = getattr(parameter, "rich_help_panel", None) or OTHERS
            if parameter.param_type_name == "argument":
                heading, record = ARGUMENTS, (parameter.metavar or str(parameter.name), record[1])
            groups.setdefault(heading, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] INPUT...`, without the braces that stand for nothing."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]
