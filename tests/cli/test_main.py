"""The command as a whole: help, errors, exit codes, and documentation of every option."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.support import LONG_ENOUGH, ZEUS, environment, one_error_line, start, zeus, zeus_here

import zeus as package
from zeus.cli import COMMANDS, build_parser, main

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "commands.md"


def subparsers() -> dict[str, argparse.ArgumentParser]:
    parser = build_parser(list(COMMANDS))
    (action,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(action.choices)


def test_help_lists_every_command_with_its_summary(capsys):
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, summary in COMMANDS.items():
        assert f"{name} {summary}" in text


def test_help_imports_no_command_and_no_device():
    code = (
        "import sys; from zeus.cli import main; main(['--help']);"
        "print([m for m in sys.modules if m.startswith(('zeus.cli.', 'zeus.device', 'logging'))"
        " and '._' not in m], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_ENOUGH,
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_examples(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: zeus {command}" in text
    assert f"examples:\n  zeus {command}" in text
    assert max(map(len, text.splitlines())) <= 100


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"zeus {package.__version__}\n"


def options(parser):
    """The options of a command and its actions."""
    found = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {option for own in action.choices.values() for option in options(own)}
    return found


def test_every_command_and_option_is_documented():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    for name, parser in subparsers().items():
        section = re.search(rf"^## zeus {name}\n(.*?)(?=^## |\Z)", text, re.S | re.M)
        assert section, f"no section on zeus {name}"
        for option in options(parser) - {"-h", "--help"}:
            assert re.search(rf"[`[| ]{option}\b", section[1]), f"zeus {name} {option} is missing"


def actions(parser, option):
    """The actions of an option, in a command and those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield from actions(own, option)
        elif option in action.option_strings:
            yield action


@pytest.mark.parametrize(
    ("option", "values", "metavars"),
    [
        ("--json", 0, {None}),
        ("--output", None, {"FILE", "DIR"}),
        ("--figure", None, {"FILE"}),
        ("--job", None, {"NAME"}),
        ("--slowdown", None, {"FACTOR"}),
        ("--max-slowdown", None, {"FACTOR"}),
    ],
)
def test_an_option_means_the_same_in_all_commands(option, values, metavars):
    found = [each for parser in subparsers().values() for each in actions(parser, option)]
    assert found
    assert {action.nargs for action in found} == {values}
    assert {action.metavar for action in found} <= metavars


def test_the_list_of_commands_is_that_of_the_help():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`zeus ([a-z-]+)`\]\(#zeus-\1\) \| (.*) \|$", text, re.M)
    assert dict(listed) == COMMANDS


def test_every_documented_option_exists():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    known = {option for parser in subparsers().values() for option in options(parser)}
    assert set(re.findall(r"^(?:-|\|.*?) `(--[a-z-]+)", text, re.M)) <= known


def test_every_exit_code_is_documented():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    for code in ("0", "1", "2", "130", "141", "127", "126", "128 + N"):
        assert f"| {code} |" in text


def test_both_modules_are_the_command():
    for module in ("zeus", "zeus.cli"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=LONG_ENOUGH,
        )
        assert done.stdout == f"zeus {package.__version__}\n"


def test_without_a_command_help_goes_to_stderr():
    done = zeus()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "commands:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tpo"], "did you mean `zeus top`?"),
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["env", "--jsno"], "--jsno"),
        (["top", "--interval", "0.01"], "at least 0.1"),
        (["top", "--interval", "nan"], "at least 0.1"),
        (["top", "--interval", "inf"], "at least 0.1"),
        (["top", "--once", "--gpus", "9"], "[9]"),
        (["top", "--gpus", "3-1"], "'3-1'"),
        (["measure"], "no command to measure"),
        (["measure", "--gpus", "0,0", "--", "true"], "distinct"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(arguments, said):
    done = zeus(*arguments, ZEUS_SIMULATE="v100x2")
    assert done.returncode == 2
    assert said in one_error_line(done)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "command",
    [
        ("serve",),
        ("export",),
        ("proxy", "--to", "http://127.0.0.1:1"),
        ("arena", "--model", "a=http://127.0.0.1:1", "--model", "b=http://127.0.0.1:2"),
    ],
    ids=lambda command: command[0],
)
def test_all_that_serve_take_the_same_addresses(capsys, command):
    """ ":8420" would be all addresses to some, and only this machine to others."""
    parser = subparsers()[command[0]]
    for text, address in {
        "0": ("127.0.0.1", 0),
        "8420": ("127.0.0.1", 8420),
        "0.0.0.0:80": ("0.0.0.0", 80),
        "[::1]:0": ("::1", 0),
        "gpu1.example:8420": ("gpu1.example", 8420),
    }.items():
        assert parser.parse_args([*command[1:], "--listen", text]).listen == address
    for text in ("", ":8420", "localhost", "::1:8420", "a:b", "1:70000", "1:-1", "[]:1", "a b:1"):
        assert main([*command, f"--listen={text}"]) == 2
        assert "must be PORT or HOST:PORT with a port up to 65535" in capsys.readouterr().err


def test_a_bad_simulated_node_is_wrong_use():
    done = zeus("env", ZEUS_SIMULATE="nonsense")
    assert done.returncode == 2
    assert "nonsense" in one_error_line(done)


def test_debug_shows_the_traceback():
    done = zeus("env", ZEUS_SIMULATE="nonsense", ZEUS_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("zeus: error: ")


def test_a_mistake_of_ours_is_no_traceback_either(monkeypatch, capsys):
    monkeypatch.setattr("zeus.cli._module", lambda name: 1 / 0)
    assert main(["env"]) == 1
    error = capsys.readouterr().err
    assert error == (
        "zeus: error: unexpected ZeroDivisionError: division by zero "
        "(set ZEUS_DEBUG=1 to see the traceback)\n"
    )


def test_a_reader_that_leaves_is_no_error():
    process = start("top", "--interval", "0.1", variables={"ZEUS_SIMULATE": "v100"})
    assert process.stdout is not None
    assert process.stderr is not None
    assert "1 GPU" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(LONG_ENOUGH) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_help_into_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*ZEUS, "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
        timeout=LONG_ENOUGH,
    )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_in_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*ZEUS, "env"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=LONG_ENOUGH,
            env=environment(ZEUS_SIMULATE="v100"),
        )
    assert done.returncode == 1
    assert "No space left" in one_error_line(done)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_file_that_does_not_fit_is_named(capfd):
    done = zeus_here(capfd, "frontier", "--simulate", "v100:imagenet:256", "--output", "/dev/full")
    assert done.returncode == 1
    assert "/dev/full: No space left" in one_error_line(done)


def test_a_loop_of_links_is_told_in_one_line(capfd, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for words in ("measure --output {} -- true", "plan {} --microbatches 4 --blocking-power 70"):
        done = zeus_here(capfd, *words.format(loop).split())
        assert done.returncode in (1, 2)
        assert f"{loop}" in one_error_line(done)
        assert "unexpected" not in done.stderr


def test_a_closed_stdout_is_no_error():
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *ZEUS, "env"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=LONG_ENOUGH,
        env=environment(ZEUS_SIMULATE="v100"),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_is_quiet():
    process = start("top", "--interval", "0.2", variables={"ZEUS_SIMULATE": "v100"})
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG_ENOUGH)
    assert (process.returncode, err) == (130, "")


def test_warnings_of_the_library_look_like_ours():
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; from zeus.device import get_gpus\n"
            "get_gpus()[0].hold(power_limit=150).acquire(); print('held', flush=True)\n"
            "time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
        env=environment(ZEUS_SIMULATE="v100"),
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    done = zeus("env", ZEUS_SIMULATE="v100")
    assert done.returncode == 0
    assert done.stderr.startswith("zeus: warning: restored")
    assert done.stderr.count("\n") == 1


def test_output_is_readable_without_unicode():
    done = zeus("demo", PYTHONIOENCODING="ascii", ZEUS_SIMULATE=None)
    assert done.returncode == 0
    assert "+/-" in done.stdout
    assert "?" not in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "agent run --policy /nowhere/x",
        "batch-limit /nowhere/x --bound tpot:p99:0.1",
        "board import /nowhere/x",
        "cluster replay --tables /nowhere/x --traces /nowhere/x",
        "frontier /nowhere/x",
        "measure --output /nowhere/x -- true",
        "plan /nowhere/x --microbatches 4 --blocking-power 80",
        "replay --traces /nowhere/x",
        "replay-pipelines /nowhere/x",
        "replay-serving /nowhere/x",
        "run --job-file /nowhere/x -- true",
        "serve --storage nowhere://x",
        "straggler a-job --pipeline -1 --healthy",
        "replay --policy default --seeds 1 --move nowhere",
        "board import {binary}",
        "cluster generate --output {binary}",
        "bench-serving --to nowhere",
        "bench-serving --to http://127.0.0.1:1 --prompts {binary}",
        "jobs list --server nowhere",
        "objective a-job --server nowhere",
        "proxy --to http://127.0.0.1:1 --energy-from nowhere",
        "run --job-file x.toml --server nowhere -- true",
        "slo --to http://127.0.0.1:1 --bound tpot:p99:1 --server nowhere",
    ],
)
def test_what_the_command_line_names_wrongly_is_a_usage_error(capfd, tmp_path, words):
    binary = tmp_path / "nowhere.txt"
    binary.write_bytes(b"\xff\xfe\0")
    done = zeus_here(capfd, *words.format(binary=binary).split())
    assert done.returncode == 2
    assert re.search("nowhere|at least 0", one_error_line(done))


def test_a_wrong_url_is_named_without_its_password(capfd):
    for url in ("me:secret@host:8420", "ftp://me:secret@host/?token=secret"):
        done = zeus_here(capfd, "jobs", "list", "--server", url)
        assert done.returncode == 2
        assert "must be a URL such as" in one_error_line(done)
        assert "host" in done.stderr
        assert "secret" not in done.stderr
