"""`zeus completion`: what may follow, from the parsers, and in real shells."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.support import LONG_ENOUGH, environment, zeus_here
from tests.cli.test_main import subparsers

from zeus.cli import COMMANDS
from zeus.cli._completions import Completions, completions

SHELLS = ("bash", "zsh", "fish")


def after(line: str) -> Completions:
    """What may stand at the end of a line; a blank there begins a new word."""
    return completions(line.split(" ")[1:])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("zeus ", [*COMMANDS]),
        ("zeus re", ["replay", "replay-pipelines", "replay-serving", "restore"]),
        ("zeus --v", ["--version"]),
        ("zeus replay s", ["serving"]),
        ("zeus replay serving --fa", ["--factor"]),
        ("zeus plan --schedule z", ["zero-bubble", "zbv"]),
        ("zeus plan --schedule=z", ["zero-bubble", "zbv"]),
        ("zeus plan --schedule = z", ["zero-bubble", "zbv"]),  # as bash splits it
        ("zeus plan --max-", ["--max-slowdown"]),
        ("zeus plan --slow", []),  # an older name of it
        ("zeus agent ", ["run", "status", "leases", "revoke", "audit", "policy", "job"]),
        ("zeus agent policy ", ["check"]),
        ("zeus agent job b", ["begin"]),
        ("zeus agent job begin 7 --us", ["--user"]),
        ("zeus token list --sto", ["--storage"]),
        ("zeus plan --json --js", []),  # given once
        ("zeus measure --gpus 0 --c", ["--cpus"]),
        ("zeus completion ", [*SHELLS]),
        ("zeus top --interval ", []),  # a number
        ("zeus frobnicate ", []),
        ("zeus plan --frobnicate --schedu", ["--schedule"]),
    ],
)
def test_words(line, words):
    found = after(line)
    assert (found.kind, [*found.words]) == ("words", words)


def test_options_may_follow_once_there_is_nothing_else():
    assert "--schedule" in after("zeus plan profile.csv ").words
    assert {"--bound", "--interval"} <= {*after("zeus slo --bound tpot:p99:1 --").words}


@pytest.mark.parametrize(
    ("line", "kind", "skip"),
    [
        ("zeus plan ", "files", 0),
        ("zeus run --job-file ", "files", 0),
        ("zeus run --job-file=J", "files", 0),
        ("zeus agent policy check ", "files", 0),
        ("zeus cluster replay --traces ", "directories", 0),
        ("zeus measure -- ", "program", 2),
        ("zeus run --job-file J.toml -- python tr", "program", 4),
    ],
)
def test_what_the_shell_completes_itself(line, kind, skip):
    found = after(line)
    assert (found.kind, found.skip, found.words) == (kind, skip, {})


def visible(parser):
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]


def test_every_option_of_every_command_is_offered():
    for name, parser in subparsers().items():
        options = [action.option_strings for action in visible(parser) if action.option_strings]
        offered = after(f"zeus {name} -").words
        assert all(set(texts) & set(offered) for texts in options), name


def test_every_value_that_is_a_file_by_its_help_is_completed_as_one():
    for name, parser in subparsers().items():
        positionals = [action for action in visible(parser) if not action.option_strings]
        for action in visible(parser):
            said = f"{action.metavar} {action.help}"
            if not re.search(r"\bFILE\b|\bfolder\b|\bCSV\b", said) or action.nargs == "?":
                continue
            if "sqlite:" in said or "instead of FILE" in said:
                continue
            words = action.option_strings[:1] or ["x"] * positionals.index(action)
            line = " ".join(["zeus", name, *words, ""])
            assert after(line).kind in ("files", "directories"), line


# --- in shells ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A working folder with files to complete."""
    for name in ("profile one.csv", "power.json", "traces/"):
        path = tmp_path / name
        path.mkdir() if name.endswith("/") else path.touch()
    return tmp_path


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        why = f"{name} is not installed; `make shells` gets it"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    return found


CASES = {
    "zeus pla": "zeus plan ",
    "zeus top --int": "zeus top --interval ",
    "zeus plan --schedule gp": "zeus plan --schedule gpipe ",
    "zeus plan --schedule=gp": "zeus plan --schedule=gpipe ",
    "zeus plan pro": "zeus plan profile\\ one.csv ",
    "zeus plan --compare=pow": "zeus plan --compare=power.json ",
    "zeus cluster --traces tr": "zeus cluster --traces traces/",
    "zeus plan --interval p": "zeus plan --interval p",
    "zeus measure -- printen": "zeus measure -- printenv ",
    "zeus measure -- cat pow": "zeus measure -- cat power.json ",
}


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._child, self._terminal = pty.fork()
        if self._child == 0:
            os.chdir(folder)
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            os.execve(
                command[0],
                command,
                environment(PATH=path, TERM="dumb", PS1="$ ", HOME=str(folder), COLUMNS="500"),
            )

    def send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def line(self, keys: str) -> str:
        """Return the line in the editor after these keys, which end with the key that shows it."""
        self.send(keys)
        return self.until(r"LINE\[(.*?)\]")

    def until(self, pattern: str) -> str:
        shown, deadline = "", time.monotonic() + LONG_ENOUGH
        while not (match := re.search(pattern, shown)):
            assert select.select([self._terminal], [], [], deadline - time.monotonic())[0], shown
            shown += os.read(self._terminal, 65536).decode()
        return match[1]

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self._child, 0)


SHOW, ALL, CLEAR = "\x0f", "\x19", "\x15"


def test_in_bash(folder):
    bash = Terminal(folder, shell("bash"), "--norc", "--noprofile", "-i")
    bash.send(
        'show() { echo "LINE[$READLINE_LINE]"; READLINE_LINE=; }; bind -x \'"\\C-o": show\'; '
        "bind '\"\\C-y\": insert-completions'; bind 'set enable-bracketed-paste off'; "
        'eval "$(zeus completion bash)"; echo rea""dy\n'
    )
    bash.until(r"(ready)")
    assert {line: bash.line(f"{line}\t{SHOW}") for line in CASES} == CASES
    schedules = bash.line(f"zeus plan --schedule z{ALL}{SHOW}").split()[3:]
    assert schedules == ["zbv", "zero-bubble"]
    bash.close()


def test_in_zsh(folder):
    zsh = Terminal(folder, shell("zsh"), "-f", "-i")
    zsh.send(
        'autoload -U compinit; compinit -D -u; show() { print -r -- "LINE[$BUFFER]"; BUFFER=; }; '
        "zle -N show; bindkey '^O' show; setopt no_beep no_list_beep; unset zle_bracketed_paste; "
        'eval "$(zeus completion zsh)"; echo rea""dy\n'
    )
    zsh.until(r"(ready)")
    assert {line: zsh.line(f"{line}\t{SHOW}") for line in CASES} == CASES
    zsh.close()


def test_in_fish(folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ask = "".join(f"complete -C '{line}'; echo END; " for line in CASES)
    done = subprocess.run(
        [shell("fish"), "--no-config", "-c", f"zeus completion fish | source; {ask}"],
        cwd=folder,
        env=environment(PATH=path, HOME=str(folder)),
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert done.stderr == ""
    for (line, completed), offered in zip(CASES.items(), done.stdout.split("END\n"), strict=False):
        # fish writes what it offers without quotes, and with its explanation.
        word = completed.removeprefix(line.rpartition(" ")[0]).strip().replace("\\", "")
        unchanged = completed == line
        assert (word in re.split(r"[\t\n]", offered)) != unchanged, (line, offered)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(shell, capfd):
    done = zeus_here(capfd, "completion", shell)
    assert done.returncode == 0
    assert f"completion {shell} -- " in done.stdout
