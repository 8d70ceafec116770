"""What may follow on a command line of `zeus`, by its parsers: for completion in shells."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_FILES = {"FILE", "FILE|SOURCE", "PATH", "PROFILE", "RECORDING", "TABLE", "TRACE"}
_FOLDERS = {"DIR"}


@dataclass(frozen=True)
class Completions:
    """What may stand at the cursor.

    Attributes:
        kind: "words"; or what the shell itself completes: "files", "directories" or "program", a
            command line of another program.
        words: Words that begin as the one at the cursor does, each with its explanation.
        skip: For a program, the number of words after `zeus` that precede its command line.
    """

    kind: str = "words"
    words: dict[str, str] = field(default_factory=dict)
    skip: int = 0


def completions(words: Sequence[str]) -> Completions:
    """Return what may stand in place of the last word.

    Args:
        words: Those after `zeus` up to the cursor; the last is begun, or empty.
    """
    from zeus.cli import COMMANDS, build_parser, joined, runs_a_program  # noqa: PLC0415  (a cycle)

    # Bash splits `--option=value` into three words.
    before = [word for word in words[:-1] if word != "="]
    begun = words[-1] if words else ""
    given = joined(before)
    if not given:
        options = _options(build_parser(), [])
        return _starting(begun, options if begun.startswith("-") else COMMANDS)
    command = given[0]
    if command not in COMMANDS:
        return Completions()
    if runs_a_program(command) and "--" in before:
        return Completions("program", skip=before.index("--") + 1)
    (commands,) = _nested(build_parser([command]))
    found = _Line(commands.choices[command], given[1:]).next(begun)
    second = [name.split("-", 1)[1] for name in COMMANDS if name.startswith(f"{command}-")]
    if len(before) == 1 and found.kind == "words" and not begun.startswith("-"):
        # `zeus replay serving` is `zeus replay-serving`.
        more = {word: COMMANDS[f"{command}-{word}"] for word in second if word.startswith(begun)}
        found = Completions(words={**found.words, **more})
    return found


class _Line:
    """The words of one command up to the cursor, as its parser would take them."""

    def __init__(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
        self._enter(parser)
        for word in words:
            self._take(word)

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._given: list[argparse.Action] = []
        self._positionals = [action for action in parser._actions if not action.option_strings]
        self._option: argparse.Action | None = None  # which has not got its value yet

    def _take(self, word: str) -> None:
        if self._option is not None:
            self._option = None
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            action = self._parser._option_string_actions.get(name)
            if action is not None:
                self._given.append(action)
                self._option = action if _has_value(action) and not equals else None
        elif self._positionals:
            action = self._positionals[0]
            if isinstance(action, argparse._SubParsersAction):
                if word in action.choices:
                    self._enter(action.choices[word])
            elif action.nargs not in ("*", "+", argparse.REMAINDER):
                self._positionals.pop(0)

    def next(self, begun: str) -> Completions:
        if self._option is not None:
            return _values(self._option, begun)
        if begun.startswith("--") and "=" in begun:
            name, _, value = begun.partition("=")
            action = self._parser._option_string_actions.get(name)
            return _values(action, value) if action is not None else Completions()
        options = _options(self._parser, self._given)
        if begun.startswith("-"):
            return _starting(begun, options)
        if not self._positionals:
            return _starting(begun, options)
        return _values(self._positionals[0], begun)


def _nested(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction]:  # type: ignore[type-arg]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield action


def _has_value(action: argparse.Action) -> bool:
    return action.nargs not in (0, argparse.OPTIONAL)


def _options(parser: argparse.ArgumentParser, given: list[argparse.Action]) -> dict[str, str]:
    """The options that may still be given, each by its first long name."""
    found = {}
    for action in parser._actions:
        again = isinstance(action, argparse._AppendAction) or action not in given
        if action.option_strings and again and action.help != argparse.SUPPRESS:
            name = next((text for text in action.option_strings if text[:2] == "--"), "")
            found[name or action.option_strings[0]] = _help(parser, action)
    return found


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _values(action: argparse.Action, begun: str) -> Completions:
    """What may be the value of an option, or a positional argument."""
    if isinstance(action, argparse._SubParsersAction):
        named = {choice.dest: choice.help or "" for choice in action._choices_actions}
        return _starting(begun, {name: named.get(name, "") for name in action.choices})
    if action.choices is not None:
        return _starting(begun, {str(choice): "" for choice in action.choices})
    if action.metavar in _FILES:
        return Completions("files")
    return Completions("directories") if action.metavar in _FOLDERS else Completions()


def _starting(begun: str, words: dict[str, str]) -> Completions:
    return Completions(words={word: said for word, said in words.items() if word.startswith(begun)})
