"""The command `zeus`.

Each command is a module with two functions, `configure` (adds its options) and `run`. Only the
module of the given command is imported.

Exit codes: 0 success, 1 failure, 2 usage error, 3 an objective that cannot be kept, 130
interrupted, 141 the output pipe was closed.
`zeus measure` and `zeus run` pass on the exit code of the command they run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from zeus import __version__
from zeus.cli._parser import Parser, UsageError, did_you_mean

FAILED, USAGE_ERROR, NOT_KEPT = 1, 2, 3
_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE
_MAX_MESSAGE = 1_000  # characters

COMMANDS = {
    "agent": "set GPU knobs for users without root, as the one agent of this machine",
    "arena": "let people compare models side by side: answers, votes, then energy",
    "batch-limit": "find the batch limit of a server that keeps latency bounds with least energy",
    "bench-serving": "load a model server, and report latency and energy per token",
    "board": "import, export and remove rows of the arena's board",
    "cluster": "replay all recurring jobs of a GPU cluster, to evaluate policies",
    "completion": "print a script that completes command lines of zeus, for bash, zsh or fish",
    "demo": "measure a training run, on simulated GPUs if there are none",
    "env": "show what can be measured and controlled here, and how to fix the rest",
    "export": "publish energy, power and settings of all devices as metrics for Prometheus",
    "frontier": "show time and energy at each setting of a knob, and which one to choose",
    "jobs": "list, show, tag, export and delete recurring jobs",
    "measure": "run a command and print the time and energy it took",
    "objective": "set what a running pipeline job is planned for: speed, a deadline, a budget",
    "plan": "find the clocks at which a training pipeline wastes the least energy",
    "proxy": "pass requests on to language-model servers, with the energy of each answer",
    "replay": "replay recurring jobs on recorded traces, to evaluate policies",
    "replay-pipelines": "compare plans and power limits with recorded runs of a pipeline",
    "replay-serving": "compare clocks of a language-model service on recorded traffic",
    "restore": "restore GPU settings left behind by processes that have exited",
    "run": "run a recurring job with the cheapest batch size, until it reaches its target",
    "serve": "serve recurring jobs, pipeline jobs and reports of `zeus slo` over HTTP",
    "slo": "run a server at the least energy that keeps bounds on its latencies",
    "straggler": "report that a pipeline of a pipeline job became slower, or is healthy again",
    "token": "create, list and revoke access tokens of a server",
    "top": "watch power, energy and utilization of every GPU",
    "verify": "check on this machine's GPUs what Zeus knows of their sensors and knobs",
}

_DESCRIPTION = "Measure the time and energy of deep-learning work, and lower it."
_EXAMPLES = """\
examples:
  zeus demo                          see what Zeus does, with or without a GPU
  zeus measure -- python train.py    energy of any program
  ZEUS_SIMULATE=v100x4 zeus top      any command on simulated GPUs

Set ZEUS_DEBUG=1 to see the traceback of an error."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program name; by default those of this process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        _refuse_to_be_overwritten()
        code = _run(words)
        if sys.stdout is not None:  # None if the caller has closed it
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _PIPE_CLOSED
    except Exception as error:
        return _report(error, words)
    finally:
        _redirect_broken_streams()


def _refuse_to_be_overwritten() -> None:
    """Say which distribution has overwritten `zeus/__init__.py`, which warns of it otherwise."""
    if "zeus._neighbour" not in sys.modules:
        from zeus._neighbour import namesake  # noqa: PLC0415
        from zeus.errors import ZeusError  # noqa: PLC0415

        found = namesake()
        if found is not None:
            raise ZeusError(found)


def _run(words: list[str]) -> int:
    try:
        command, module, arguments = _parse(words)
    except SystemExit as end:  # argparse has answered --help or --version
        return end.code if isinstance(end.code, int) else FAILED
    if module is None:
        build_parser().print_help(sys.stderr)
        return USAGE_ERROR
    with _log_to_stderr(quiet=command == "restore"):
        return int(module.run(arguments))


def build_parser(configured: Sequence[str] = ()) -> Parser:
    """Return the parser of the command line, with the options of the given commands only."""
    parser = Parser("zeus", description=_DESCRIPTION, epilog=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"zeus {__version__}")
    commands = parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        own = commands.add_parser(name, help=summary)
        if name in configured:
            _module(name).configure(own)
    return parser


def _module(command: str) -> Any:
    return import_module(f"zeus.cli.{command.replace('-', '_')}")


def _parse(words: list[str]) -> tuple[str, Any, Any]:
    words = joined(words)
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS, "zeus {}")
        raise UsageError(f"there is no command {command!r}{hint} (see `zeus --help`)")
    if command is None:
        arguments = build_parser().parse_args(words)
        return "", None, arguments
    module = _module(command)
    # Arguments after `--` belong to another program: argparse must not parse or drop them.
    head, found, tail = _split(words) if runs_a_program(command) else (words, False, [])
    arguments, unknown = build_parser([command]).parse_known_args(head)
    if unknown:
        own = Parser(f"zeus {command}")
        module.configure(own)
        own.refuse(unknown)
    if found:
        arguments.program = [*arguments.program, "--", *tail] if arguments.program else tail
    return command, module, arguments


def runs_a_program(command: str) -> bool:
    """Return whether what follows `--` is a command line of its own."""
    return getattr(_module(command), "RUNS_A_PROGRAM", False)


def joined(words: list[str]) -> list[str]:
    """Accept `zeus replay serving` for `zeus replay-serving`."""
    name = "-".join(words[:2])
    return [name, *words[2:]] if len(words) > 1 and name in COMMANDS else words


def _split(words: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]


# --- errors -------------------------------------------------------------------------------------


def _report(error: Exception, words: Sequence[str]) -> int:
    """Print an error in one line; return the exit code, which marks usage errors."""
    from zeus.errors import (  # noqa: PLC0415
        SimulationError,
        StorageUrlError,
        TraceError,
        UnknownDeviceError,
        ZeusError,
    )

    if os.environ.get("ZEUS_DEBUG"):
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    expected = isinstance(error, ZeusError | ValueError | OSError)
    text = _one_line(error) if expected else f"unexpected {type(error).__name__}: {error}"
    if not expected:
        text += " (set ZEUS_DEBUG=1 to see the traceback)"
    print_message(text)
    wrong = isinstance(
        error,
        SimulationError | StorageUrlError | TraceError | UnknownDeviceError | UsageError,
    )
    return USAGE_ERROR if wrong or _is_named(error, words) else FAILED


def _is_named(error: Exception, words: Sequence[str]) -> bool:
    """Whether the command line names a file that cannot be opened as it is to be."""
    kinds = (
        FileExistsError
        | FileNotFoundError
        | IsADirectoryError
        | NotADirectoryError
        | PermissionError
    )
    if not isinstance(error, kinds) or not isinstance(error.filename, str):
        return False
    return error.filename in {word for each in words for word in (each, each.partition("=")[2])}


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    text = " ".join(str(error).split())
    # A quoted value may be as long as a file.
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


def print_message(text: str, kind: str = "error") -> None:
    """Print one line on stderr; ignore errors such as a closed terminal."""
    from zeus.cli._terminal import Console  # noqa: PLC0415

    with contextlib.suppress(OSError, ValueError):
        Console(sys.stderr).print(f"zeus: {kind}: {text}")


def _redirect_broken_streams() -> None:
    """Redirect broken streams to /dev/null.

    The interpreter flushes its streams at exit; an error there would change the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, stream.fileno())
                os.close(devnull)


@contextlib.contextmanager
def _log_to_stderr(quiet: bool) -> Iterator[None]:
    """Print warnings of the library in the format of the command's own messages."""
    import logging  # noqa: PLC0415  (`zeus --help` does not need it)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f" ({record.exc_info[1]!r})"
            print_message(text, record.levelname.lower())

    logger = logging.getLogger("zeus")
    # `zeus restore` reports itself what the library would warn about.
    handler: logging.Handler = logging.NullHandler() if quiet else Handler(logging.WARNING)
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
