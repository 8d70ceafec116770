"""`zeus proxy`: pass requests on to servers of language models, with the energy of each answer."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeus.cli._parser import UsageError, add_listen_option, indices, number, server_url
from zeus.cli._terminal import Console

if TYPE_CHECKING:
    from zeus.monitor._requests import RequestMonitor

DEFAULT_PORT = 8430
_NAMED = re.compile(r"([^=/]+)=(https?://.*)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Pass requests on to OpenAI-compatible servers, unchanged but for the energy of each "
        "answer: in `usage.energy` (joules, uncertainty, method), or in the field `energy` of the "
        "last chunk of a stream whose client has not asked for usage. The energy of a batch is "
        "divided over its requests by the tokens that were processed for each. Headers, such as "
        "keys, are passed on and never logged. Metrics are at /metrics, the last minute as JSON at "
        "/zeus/requests. The proxy stops on SIGTERM or Ctrl-C, after the requests in progress."
    )
    parser.epilog = """\
examples:
  zeus proxy --to http://localhost:8000
  zeus proxy --to llama=http://localhost:8000 --gpus 0,1 --to qwen=http://localhost:8001 --gpus 2
  zeus proxy --to http://node7:8000 --energy-from http://node7:9842

The proxy speaks plain HTTP and lets everybody in: on a network, put it behind a TLS proxy."""
    parser.add_argument(
        "--to",
        action="append",
        required=True,
        metavar="[MODEL=]URL",
        help="server to pass requests on to, and the only model to ask it for; several may be "
        "given, also for one model",
    )
    parser.add_argument(
        "--gpus",
        action="append",
        type=indices,
        metavar="N,N",
        help="GPUs that the server runs on; once for all servers, or once for each, in the same "
        "order (default: all)",
    )
    parser.add_argument(
        "--energy-from",
        type=server_url,
        metavar="URL",
        help="take the GPUs' energy from `zeus export` on the server's machine",
    )
    add_listen_option(parser, DEFAULT_PORT)
    parser.add_argument(
        "--timeout",
        type=number(0.0, 86_400.0, unit="seconds", above=True),
        default=600.0,
        metavar="S",
        help="seconds without a byte after which a server is given up (default: 600)",
    )
    parser.add_argument(
        "--grace",
        type=number(0.0, 86_400.0, unit="seconds"),
        default=30.0,
        metavar="S",
        help="seconds for requests in progress at the end (default: 30)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from zeus.proxy import Timeouts  # noqa: PLC0415  (an extra)
    from zeus.proxy._backends import Backend  # noqa: PLC0415
    from zeus.proxy._proxy import Proxy  # noqa: PLC0415
    from zeus.proxy._run import run_proxy  # noqa: PLC0415
    from zeus.transport._listening import address, listen  # noqa: PLC0415

    host, port = arguments.listen
    gpus = _gpus(arguments.gpus, len(arguments.to))
    timeouts = Timeouts(silence=arguments.timeout)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(host, port))
        monitors: dict[tuple[int, ...] | None, RequestMonitor] = {}
        backends = []
        for target, group in zip(arguments.to, gpus, strict=True):
            if group not in monitors:
                monitors[group] = _requests(group, arguments.energy_from, stack)
            found = _NAMED.fullmatch(target)
            model, url = (found[1], found[2]) if found else (None, target)
            try:
                backends.append(Backend(url, monitors[group], model=model, timeouts=timeouts))
            except ValueError as error:
                raise UsageError(f"--to: {error}") from error
        console = Console(sys.stdout)

        def ready() -> None:
            places = ", ".join(backend.url for backend in backends)
            console.print(f"zeus: proxy on {address(listening)} to {places}")
            sys.stdout.flush()

        run_proxy(Proxy(backends), listening, ready, arguments.grace)
    return 0


def _requests(
    gpus: Sequence[int] | None, energy_from: str | None, stack: contextlib.ExitStack
) -> RequestMonitor:
    """Return what divides the energy of some GPUs, of this machine or another."""
    if energy_from is None:
        from zeus.monitor import ZeusMonitor  # noqa: PLC0415

        monitor = ZeusMonitor(gpus, cpu_indices=[], sync_execution_with=None)
        stack.callback(monitor.close)
        return monitor.requests
    from zeus.monitor._requests import RequestMonitor  # noqa: PLC0415
    from zeus.proxy._exporter_energy import ExporterEnergy  # noqa: PLC0415

    exporter = ExporterEnergy(energy_from, gpus, time.monotonic)
    stack.callback(exporter.stop)
    sources = [exporter.source(gpu) for gpu in exporter.gpus]
    requests = RequestMonitor(time.monotonic, sources)
    exporter.after = requests.process
    exporter.start()
    return requests


def _gpus(given: list[list[int]] | None, servers: int) -> list[tuple[int, ...] | None]:
    if given is None:
        return [None] * servers
    if len(given) not in (1, servers):
        raise UsageError(
            f"--gpus must be given once, or once for each of the {servers} servers, but was given "
            f"{len(given)} times"
        )
    groups: list[tuple[int, ...] | None] = [tuple(group) for group in given]
    return groups * servers if len(groups) == 1 else groups
