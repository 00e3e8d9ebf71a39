"""Generates the page of the commands from their own help."""

import re

import click
from bayplan.cli import bayplan

from hack.docs.field_tables import table
from hack.docs.reference_pages import HEADER

_DEFAULT = re.compile(r"\s*\[default: (?P<default>[^]]*)\]")
_INTRODUCTION = """# Commands

`bayplan COMMAND --help` prints the same text. `bayplan -v COMMAND` shows the traceback of an error. Unless stated
otherwise, the exit code is 0 on success, 1 on failure, and 2 when options or input are not valid.

"""


def command_page() -> str:
    with click.Context(bayplan, info_name="bayplan") as context:
        names = bayplan.list_commands(context)
        commands = {name: bayplan.get_command(context, name) for name in names}
        index = "".join(f"- [`bayplan {name}`](#bayplan-{name}): {_short(commands[name])}\n" for name in names)
        sections = [_section(context, name, command) for name, command in commands.items() if command is not None]
    return "\n".join([HEADER + _INTRODUCTION + index, *sections])


def _short(command: click.Command | None) -> str:
    return command.get_short_help_str(limit=200) if command is not None else ""


def _section(parent: click.Context, name: str, command: click.Command) -> str:
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join(["bayplan", name, *command.collect_usage_pieces(context)])
    paragraphs = [" ".join(part.split()) for part in (command.help or "").replace("``", "`").split("\n\n")]
    text = f"## bayplan {name}\n\n```text\n{usage}\n```\n\n" + "\n\n".join(paragraphs) + "\n"
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        text += "\n" + table(("option", "default", "meaning"), [_row(option) for option in options])
    return text


def _row(option: click.Option) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{option.metavar or _kind(option)}`"
    text = option.help or ""
    found = _DEFAULT.search(text)
    default = found["default"].removesuffix(".0") if found else _shown_default(option)
    return names + value, f"`{default}`" if default else "", _DEFAULT.sub("", text)


def _kind(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(str(choice) for choice in option.type.choices)
    return option.type.name.upper().removesuffix(" RANGE")


def _shown_default(option: click.Option) -> str:
    """Return the default that `--help` shows; never a number of this machine, such as its cores."""
    if isinstance(option.show_default, str):
        return f"({option.show_default})"
    # click 8.3 has a sentinel where earlier releases had None.
    if option.is_flag or option.multiple or not isinstance(option.default, str | int | float):
        return ""
    return str(option.default) if option.show_default or isinstance(option.type, click.Choice) else ""
