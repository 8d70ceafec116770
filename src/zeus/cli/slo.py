"""`zeus slo`: run a server at the least energy that keeps bounds on its latencies.

Beside an unmodified server: reads its metrics every interval, learns, and holds a setting on its
GPUs. The end of the command, however it comes, restores the previous setting. With `--json`, the
report (`ServingReport.to_dict`). With `--server`, a `zeus serve` shows it while it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType

from zeus.cli import FAILED, _service_reports, print_message
from zeus.cli._output import PreparedFile, prepared
from zeus.cli._parser import (
    UsageError,
    add_gpus_option,
    add_json_output_options,
    indices,
    number,
)
from zeus.cli._remote_node import node_address
from zeus.cli._slo_server import MetricsServer
from zeus.cli._terminal import Console, clean
from zeus.device import Gpu
from zeus.errors import FrontierError
from zeus.frontier import All, LatencyBound
from zeus.monitor import ZeusMonitor
from zeus.optimizer.serving._bounds import bounds_of, read_bound
from zeus.optimizer.serving._controller import Controller
from zeus.optimizer.serving._group import KNOBS, GpuGroup, settings_of
from zeus.optimizer.serving._interval import Decision, ServingInterval
from zeus.optimizer.serving._knowledge import Knowledge
from zeus.optimizer.serving._memory import Memory
from zeus.optimizer.serving._observer import MetricsObserver
from zeus.optimizer.serving._steering import Steering
from zeus.optimizer.serving.running._reporter import ServiceReporter

_SAVE_EVERY = 300  # intervals


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Read the metrics of a server of language models (vLLM, SGLang, TensorRT-LLM, or any "
        "behind `zeus proxy`), learn how its latencies, times and power change with the setting "
        "of its GPUs, and hold the setting of least energy that keeps all bounds. Any end of the "
        "command restores the previous setting."
    )
    parser.epilog = """\
examples:
  zeus slo --to http://localhost:8000 --bound ttft:p99:1.5 --bound tpot:p99:0.06
  zeus slo --to http://localhost:8000 --bound itl:p95:0.05 --observe --gpus 0,1
  zeus slo --to http://localhost:8000 --bound ttft:p99:1 --server http://gpu1:8420"""
    parser.add_argument(
        "--to",
        required=True,
        type=node_address,
        metavar="URL",
        help="the server; /metrics is read unless the URL has a path",
    )
    parser.add_argument(
        "--bound",
        required=True,
        action="append",
        type=_bound,
        metavar="NAME:P:S",
        help="ttft, tpot, itl or e2e, a percentile and seconds, such as ttft:p99:1.5; repeat it "
        "for several",
    )
    parser.add_argument(
        "--knob",
        choices=list(KNOBS),
        default="clock",
        metavar="KNOB",
        help="clock or power-limit (default: clock)",
    )
    parser.add_argument(
        "--phases",
        action="store_true",
        help="different settings for prefill and decode, with --prefill-gpus and --decode-gpus",
    )
    parser.add_argument(
        "--prefill-gpus", type=indices, metavar="N,N", help="GPUs that only process prompts"
    )
    parser.add_argument(
        "--decode-gpus", type=indices, metavar="N,N", help="GPUs that only generate tokens"
    )
    parser.add_argument(
        "--observe", action="store_true", help="change nothing; say what is predicted to be saved"
    )
    parser.add_argument(
        "--interval",
        type=number(0.05, 3600, unit="seconds"),
        default=1.0,
        metavar="S",
        help="seconds between decisions (default: 1)",
    )
    parser.add_argument(
        "--duration",
        type=number(0, unit="seconds", above=True),
        metavar="S",
        help="seconds until it ends (default: until it is interrupted)",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="count only this model of the server (default: all)"
    )
    parser.add_argument(
        "--forget", action="store_true", help="do not use what an earlier run has learned"
    )
    _service_reports.add_options(parser)
    parser.add_argument("--quiet", action="store_true", help="print no line per interval")
    add_gpus_option(parser, "control, those of the server")
    add_json_output_options(parser, "the report")


def _bound(text: str) -> LatencyBound:
    try:
        return read_bound(text)
    except FrontierError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    """Control the server until a signal."""
    try:
        objective = All(*arguments.bound)
    except FrontierError as error:
        raise UsageError(str(error)) from None
    prefill, decode = _phase_gpus(arguments)
    reports_to = _service_reports.server_of(arguments)
    server = MetricsServer(arguments.to)
    # Before anything is held: a bound that cannot be checked is refused.
    try:
        page = server.page()
    except OSError as error:
        where = arguments.to.name
        print_message(f"{where} cannot be read: {error.strerror or error}")
        return FAILED
    observer = MetricsObserver(page, bounds_of(objective), arguments.model)
    gpus = arguments.gpus if prefill is None else [*prefill, *(decode or [])]
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(prepared(arguments.json))
        monitor = stack.enter_context(ZeusMonitor(gpus, [], sync_execution_with=None))
        if not monitor.gpus:
            raise UsageError("there must be a GPU to control, but there is none here")
        ladder = settings_of(monitor.gpus, arguments.knob)
        knowledge = Knowledge(ladder, [bound.latency for bound in bounds_of(objective)])
        model = arguments.model or ", ".join(observer.models) or arguments.to.name
        named = [gpu.name for gpu in monitor.gpus]
        memory = Memory(named[0], len(named), f"{observer.engine.name} {model}", arguments.knob)
        known = not arguments.forget and memory.load(knowledge)
        controller = Controller(
            ladder,
            objective,
            phases=prefill is not None,
            knowledge=knowledge,
            observe=arguments.observe,
        )
        groups = _groups(monitor, prefill, decode, arguments.knob)
        steering = Steering(monitor, controller, *groups, observe=arguments.observe)
        stack.callback(steering.close)
        loop = _Loop(arguments, server, observer, steering, memory)
        stack.callback(loop.end)
        loop.start(known)
        if reports_to is not None:
            loop.reporter = _service_reports.reporter(
                arguments,
                reports_to,
                steering,
                engine=observer.engine.name,
                model=model,
                gpus=named,
                warn=loop.warn,
            )
            steering.listener = loop.reporter
        loop.run()
        loop.end()
        return loop.finish(output)


def _phase_gpus(arguments: argparse.Namespace) -> tuple[list[int] | None, list[int] | None]:
    prefill, decode = arguments.prefill_gpus, arguments.decode_gpus
    if arguments.phases and not (prefill and decode):
        raise UsageError(
            "--phases needs --prefill-gpus and --decode-gpus: the metrics of a server do not show "
            "which phase runs, so phases on the same GPUs cannot have settings of their own; in "
            "the server's own process, ServingOptimizer can"
        )
    if (prefill or decode) and not arguments.phases:
        raise UsageError("--prefill-gpus and --decode-gpus are for --phases")
    if arguments.phases and (arguments.gpus is not None or set(prefill) & set(decode)):
        raise UsageError(
            "with --phases, --prefill-gpus and --decode-gpus must be different GPUs, without --gpus"
        )
    return (prefill, decode) if arguments.phases else (None, None)


def _groups(
    monitor: ZeusMonitor, prefill: Sequence[int] | None, decode: Sequence[int] | None, knob: str
) -> tuple[GpuGroup, GpuGroup]:
    gpus: list[Gpu] = list(monitor.gpus)
    if prefill is None or decode is None:
        group = GpuGroup(gpus, knob)
        return group, group
    return (
        GpuGroup([gpu for gpu in gpus if gpu.index in prefill], knob),
        GpuGroup([gpu for gpu in gpus if gpu.index in decode], knob),
    )


class _Loop:
    """Polls, decides and prints, interval by interval."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        server: MetricsServer,
        observer: MetricsObserver,
        steering: Steering,
        memory: Memory,
    ) -> None:
        self._arguments = arguments
        self._server = server
        self._observer = observer
        self._steering = steering
        self._memory = memory
        self._clock = steering.clock
        self._unit = KNOBS[arguments.knob].unit
        self._stop = threading.Event()
        self._lost = False
        self.reporter: ServiceReporter | None = None
        # Where the report goes to stdout, lines go elsewhere.
        self._console = Console(sys.stderr if arguments.json == "-" else sys.stdout)

    def start(self, known: bool) -> None:
        ladder = self._steering.controller.ladder
        bounds = " and ".join(map(str, self._steering.controller.bounds))
        word = "observing" if self._arguments.observe else "controlling"
        learned = ", continuing with what was learned before" if known else ""
        models = f" ({clean(', '.join(self._observer.models))})" if self._observer.models else ""
        self._print(
            f"{word} {self._observer.engine.name}{models} at {self._arguments.to.name}: {bounds}, "
            f"{ladder[0]:g} to {ladder[-1]:g} {self._unit}{learned}"
        )

    def run(self) -> None:
        interval, clock = self._arguments.interval, self._clock
        end = None if self._arguments.duration is None else clock.now() + self._arguments.duration
        with _stopping_at_signals(self._stop):
            self._steering.begin_interval()
            due = clock.now()
            while not self._stop.is_set() and (end is None or clock.now() < end):
                self._step()
                due = max(due + interval, clock.now())
                self._stop.wait(max(0.0, due - clock.now()))

    def _step(self) -> None:
        try:
            page = self._server.page()
        except OSError as error:
            if not self._lost:
                self._lost = True
                self._print(
                    f"the server cannot be read, the previous setting is restored: "
                    f"{clean(str(error.strerror or error))}"
                )
            if self.reporter is not None:
                self.reporter.trouble(
                    f"the server at {self._arguments.to.name} cannot be read, so the previous "
                    f"setting is in force: {error.strerror or error}"
                )
            self._steering.release()
            self._observer.forget()
            return
        self._lost = False
        interval = self._observer.interval(page, self._clock.now())
        energy, uncertainty = self._steering.measured()
        if interval is None:
            return
        interval = replace(
            interval,
            energy=energy,
            energy_uncertainty=uncertainty,
            busy=self._steering.busy(interval.seconds),
        )
        decision = self._steering.decide(interval)
        if not self._arguments.quiet:
            self._print(self._line(interval, decision))
        knowledge = self._steering.controller.knowledge
        if knowledge.intervals % _SAVE_EVERY == 0:
            self._memory.save(knowledge)

    def _line(self, interval: ServingInterval, decision: Decision) -> str:
        setting = decision.setting
        shown = f"{setting.decode:g}"
        if setting.prefill != setting.decode:
            shown = f"{setting.prefill:g}/{setting.decode:g}"
        power = "" if interval.energy is None else f"{interval.energy / interval.seconds:6.0f} W"
        latencies = "".join(
            f"  {bound.name} {measured:.3g} s"
            for bound in self._steering.controller.bounds
            if (measured := _measured(interval, bound.latency, bound.percent)) is not None
        )
        rate = interval.generated_tokens / interval.seconds
        word = "would hold" if self._arguments.observe else "holds"
        return (
            f"{interval.running:5.1f} running {interval.waiting:3d} waiting {rate:7.1f} tokens/s"
            f"{power}{latencies}  {word} {shown} {self._unit}: {decision.reason}"
        )

    def end(self) -> None:
        """Restore the previous settings, and only then report the end."""
        self._steering.close()
        if self.reporter is not None:
            self.reporter.close()

    def warn(self, message: str) -> None:
        """Print what is wrong with the reports to a server."""
        self._print(f"reports: {clean(message)}")

    def finish(self, output: PreparedFile | None) -> int:
        report = self._steering.report
        knowledge = self._steering.controller.knowledge
        if knowledge.intervals:
            self._memory.save(knowledge)
        for line in report.lines(self._unit):
            self._print(line)
        if output is not None:
            output.write(json.dumps(report.to_dict()))
        return 0

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the terminal was closed: controlling goes on
            self._console.print(line)


def _measured(interval: ServingInterval, latency: str, percent: float) -> float | None:
    seen = interval.latencies.get(latency)
    return None if seen is None else seen.percentile(percent)


@contextlib.contextmanager
def _stopping_at_signals(stop: threading.Event) -> Iterator[None]:
    """End the loop at SIGINT and SIGTERM, so that the report is printed."""

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.set()

    previous = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
