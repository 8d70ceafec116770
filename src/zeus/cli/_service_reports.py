"""Reports of `zeus slo` to a server: under which name, and what it is said to begin with."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable

from zeus.cli._parser import server_url
from zeus.errors import ServiceError
from zeus.optimizer.serving._steering import Steering
from zeus.optimizer.serving.api._messages import MAX_NAME, BoundRecord, ServiceStart, check_name
from zeus.optimizer.serving.api._remote import RemoteServices
from zeus.optimizer.serving.running._reporter import ServiceReporter

_SERVER = "ZEUS_SERVER"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--server` and `--name`."""
    parser.add_argument(
        "--server",
        type=server_url,
        metavar="URL",
        help=f"`zeus serve` to report to, for its pages (default: {_SERVER}, or none)",
    )
    parser.add_argument(
        "--name",
        type=_name,
        metavar="NAME",
        help="name of the service there (default: MODEL@HOST:PORT)",
    )


def server_of(arguments: argparse.Namespace) -> RemoteServices | None:
    """Return the server to report to; `None` if there is none.

    Raises:
        ServerError: If its URL is not one of a server.
    """
    url = arguments.server or os.environ.get(_SERVER)
    return RemoteServices(url) if url else None


def reporter(
    arguments: argparse.Namespace,
    api: RemoteServices,
    steering: Steering,
    *,
    engine: str,
    model: str,
    gpus: list[str],
    warn: Callable[[str], None],
) -> ServiceReporter:
    """Return the reporter of a run, which has begun.

    Args:
        arguments: The options.
        api: The server.
        steering: What is reported.
        engine: Name of the kind of server that is controlled.
        model: Names of its models.
        gpus: Names of its GPUs.
        warn: Is called with a message when reports are not taken.
    """
    ladder = steering.controller.ladder
    start = ServiceStart(
        session="new",
        engine=engine,
        model=model,
        where=arguments.to.name,
        host=platform.node(),
        gpu=gpus[0],
        gpus=len(gpus),
        knob=arguments.knob,
        highest=ladder[0],
        lowest=ladder[-1],
        phases=arguments.phases,
        observe=arguments.observe,
        interval=arguments.interval,
        bounds=tuple(
            BoundRecord(each.latency, each.percent, each.seconds)
            for each in steering.controller.bounds
        ),
    )
    name = arguments.name or _default_name(model, arguments.to.port)
    return ServiceReporter(api, name, start, steering.report, steering.clock, warn=warn)


def _default_name(model: str, port: int | None) -> str:
    """Return a name that differs between servers, without what a URL cannot have in a name."""
    short = model.rpartition("/")[2] or "service"
    where = platform.node() or "localhost"
    shown = f"{short}@{where}" if port is None else f"{short}@{where}:{port}"
    kept = "".join(each if each.isprintable() and each != "/" else "-" for each in shown)
    return kept[-MAX_NAME:]


def _name(text: str) -> str:
    try:
        check_name("name", text)
    except ServiceError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
