"""Pages of the commands: their options, from the parsers, and the keys of their JSON."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from zeus import cli


def write_command_page(path: Path) -> None:
    """Write the page of all commands with their options."""
    lines = [
        "# Options of all commands",
        "",
        "Made from the parsers, as `zeus COMMAND --help` prints it. The page on "
        "[commands](../commands.md) explains them.",
        "",
    ]
    for name, parser in _parsers().items():
        lines += [f"## zeus {name}", "", f"{_sentence(cli.COMMANDS[name])}", ""]
        lines += _help(parser)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def write_json_page(path: Path) -> None:
    """Write the page of the JSON that commands print, from the docstrings of their modules."""
    lines = [
        "JSON of commands",
        "================",
        "",
        "What `--json` prints, as the module of each command states it. Energies are in joules, "
        "times in seconds and powers in watts where nothing else is said.",
        "",
    ]
    for name in json_commands():
        title = f"zeus {name}"
        lines += [title, "-" * len(title), "", _docstring(name).split("\n\n", 1)[1], ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def json_commands() -> list[str]:
    """Return the commands whose modules state the keys of their JSON."""
    return [name for name in cli.COMMANDS if "--json" in _docstring(name)]


def _docstring(name: str) -> str:
    path = Path(inspect.getfile(cli)).parent / f"{name.replace('-', '_')}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _parsers() -> dict[str, argparse.ArgumentParser]:
    return _actions_of(cli.build_parser(list(cli.COMMANDS)))


def _actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _help(parser: argparse.ArgumentParser, level: int = 3) -> Iterator[str]:
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    wrapped = textwrap.wrap(
        usage, 86, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    yield from ("```text", *wrapped, "```", "")
    if parser.description:
        yield from (_text(parser.description), "")
    shown = [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    if shown:
        yield from ("| option | meaning |", "|---|---|")
        for action in shown:
            # argparse fills in defaults and choices as it does for --help.
            meaning = parser._get_formatter()._expand_help(action) if action.help else ""
            yield f"| {_spelling(action)} | {_cell(meaning)} |"
        yield ""
    if parser.epilog:
        yield from ("```text", parser.epilog.strip(), "```", "")
    for own in _actions_of(parser).values():
        yield from (f"{'#' * level} {own.prog}", "")
        yield from _help(own, level + 1)


def _spelling(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices and action.metavar is None:
        value = "|".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{_escaped(value)}`"
    takes = "" if action.nargs == 0 else f" {_escaped(value)}"
    return ", ".join(f"`{option}{takes}`" for option in action.option_strings)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _cell(text: str) -> str:
    return _escaped(_text(text))


def _text(text: str) -> str:
    """Return a text in one line, in which nothing is taken for markup but code in backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>*_\[\]{}$])", r"\\\1", part)
        for part in parts
    )
