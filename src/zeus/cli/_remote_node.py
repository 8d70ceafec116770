"""Other nodes of `zeus top`, by the metrics that they serve.

Each node is asked by its own thread, with a deadline for everything from the name to the last
byte, so that one that does not respond delays neither the screen nor the others. It is asked again
after a pause.
"""

from __future__ import annotations

import argparse
import http.client
import re
import threading
import time
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from zeus import __version__
from zeus.cli._gpu_rows import GpuRow
from zeus.cli._metrics_page import Page, PublishedCpu, PublishedGpu, cpus_of, gpus_of, parse_page
from zeus.cli._power_history import PowerHistory
from zeus.cli._snapshot import CountedEnergy, CpuReading, GpuReading
from zeus.cli._terminal import clean
from zeus.transport._deadline_connection import DeadlineConnection

_DEFAULT_PATH = "/metrics"
_TIMEOUT = 3.0  # seconds for a whole page
_SHORTEST_PERIOD = 0.5  # seconds between pages: reading all its devices costs the other node time
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0  # seconds until a node that failed is asked again
_MAX_PAGE = 16 * 2**20  # bytes
_ALLOWED_GAP = 4.0  # periods between pages, beyond which power is unknown there


@dataclass(frozen=True)
class NodeAddress:
    """Where a node serves its metrics.

    Attributes:
        name: Host and port, to show.
        host: Name or address of the host.
        port: Port; `None` for the default one of the scheme.
        path: Path of the page.
        secure: Whether with TLS.
    """

    name: str
    host: str
    port: int | None
    path: str
    secure: bool


def node_address(text: str) -> NodeAddress:
    """Parse a URL, for `type=`; without a path, that of metrics is meant."""
    rule = "must be a URL such as http://host:9842"
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise argparse.ArgumentTypeError(f"{rule}, but got {text!r}") from None
    if parts.username is not None or parts.password is not None:
        raise argparse.ArgumentTypeError(f"{rule}, without a user or a password")
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise argparse.ArgumentTypeError(f"{rule}, but got {text!r}")
    path = parts.path if parts.path not in ("", "/") else _DEFAULT_PATH
    path += f"?{parts.query}" if parts.query else ""
    return NodeAddress(clean(parts.netloc), host, port, path, parts.scheme == "https")


@dataclass(frozen=True)
class RemoteReading:
    """What is known of a node.

    Attributes:
        rows: Its GPUs.
        cpus: Its CPU packages.
        problem: Why there is nothing new; GPUs then have the energy that they used before.
    """

    rows: tuple[GpuRow, ...] = ()
    cpus: tuple[CpuReading, ...] = ()
    problem: str | None = None


class RemoteNode:
    """Reads the metrics of another node repeatedly, in the background.

    Args:
        address: Where it serves them.
        period: Seconds between two pages.
    """

    def __init__(self, address: NodeAddress, period: float) -> None:
        self.address = address
        self._period = max(period, _SHORTEST_PERIOD)
        self._connection = DeadlineConnection(address.host, address.port, secure=address.secure)
        self._totals = _Totals(address.name, self._period * _ALLOWED_GAP + _TIMEOUT)
        self._latest = RemoteReading(problem="connecting")
        self._responded = threading.Event()
        threading.Thread(target=self._serve, name="zeus-node", daemon=True).start()

    @property
    def name(self) -> str:
        """Host and port."""
        return self.address.name

    def latest(self) -> RemoteReading:
        """Return what is known now, without waiting."""
        return self._latest

    def wait(self, seconds: float) -> None:
        """Wait for the first response or failure."""
        self._responded.wait(seconds)

    def _serve(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            problem = self._ask(begun)
            self._responded.set()
            if problem is None:
                pause = _FIRST_PAUSE
                due = begun + self._period
            else:
                # What its GPUs used so far still counts.
                rows = tuple(map(_unread, self._latest.rows))
                said = f"{problem}; trying again in {pause:g} s"
                self._latest = RemoteReading(rows, problem=said)
                due = time.monotonic() + pause
                pause = min(2 * pause, _LONGEST_PAUSE)
            time.sleep(max(due - time.monotonic(), 0.0))

    def _ask(self, begun: float) -> str | None:
        """Get a page; return why there is none."""
        try:
            page = parse_page(self._page(begun + _TIMEOUT))
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() - begun >= _TIMEOUT:
                return f"unreachable: no answer within {_TIMEOUT:g} s"
            return clean(f"unreachable: {_said(error)}")
        if not page:
            return "it serves no metrics of Zeus"
        self._latest = self._totals.reading(page, time.monotonic())
        return None

    def _page(self, deadline: float) -> str:
        with self._connection.connected(deadline) as sock:
            connection = self._connection.http_on(sock)
            headers = {"User-Agent": f"zeus/{__version__}", "Accept": "text/plain"}
            connection.request("GET", self.address.path, headers=headers)
            response = connection.getresponse()
            content = response.read(_MAX_PAGE + 1)
        if response.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"status {response.status}")
        if len(content) > _MAX_PAGE:
            raise http.client.HTTPException("the page is too long")
        if response.length:
            raise http.client.HTTPException("the page is truncated")
        return content.decode("utf-8", "replace")


def _unread(row: GpuRow) -> GpuRow:
    gpu = row.gpu
    unread = GpuReading(
        gpu.index,
        gpu.name,
        gpu.key,
        energy=gpu.energy,
        energy_is_integrated=gpu.energy_is_integrated,
        problem="its node does not respond",
    )
    return replace(row, gpu=unread, holders=())


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Totals:
    """Energy since the first page, and power over time, of the devices of a node."""

    def __init__(self, node: str, longest_gap: float) -> None:
        self._node = node
        self._longest_gap = longest_gap
        self._counters: dict[tuple[str, str], CountedEnergy] = {}
        self._histories: dict[str, PowerHistory] = {}
        self._since: dict[str, float] = {}

    def reading(self, page: Page, now: float) -> RemoteReading:
        """Return a page's readings, received at an instant."""
        return RemoteReading(
            tuple(self._row(gpu, now) for gpu in gpus_of(page)),
            tuple(self._cpu(cpu, now) for cpu in cpus_of(page)),
        )

    def _row(self, gpu: PublishedGpu, now: float) -> GpuRow:
        reading = gpu.reading
        name = f"{reading.index} {reading.key}"
        energy, mean = self._counted("gpu", name, gpu.counter, now)
        power = reading.power if reading.power is not None else mean
        history = self._histories.get(name)
        if history is None:
            history = PowerHistory(level=True, longest_gap=self._longest_gap)
            self._histories[name] = history
        if power is not None:
            history.add(now, power if mean is None else mean, highest=power)
        begun = self._since.setdefault(name, now)
        return GpuRow(
            replace(reading, power=power, energy=energy),
            self._node,
            history,
            gpu.holders,
            now - begun,
        )

    def _cpu(self, cpu: PublishedCpu, now: float) -> CpuReading:
        name = f"{cpu.reading.index}"
        energy, power = self._counted("cpu", name, cpu.counter, now)
        dram, dram_power = self._counted("dram", name, cpu.dram_counter, now)
        published, dram_published = cpu.reading.power, cpu.reading.dram_power
        return replace(
            cpu.reading,
            power=power if published is None else published,
            energy=energy,
            dram_power=dram_power if dram_published is None else dram_published,
            dram_energy=dram,
        )

    def _counted(
        self, kind: str, name: str, joules: float | None, now: float
    ) -> tuple[float | None, float | None]:
        """Return the energy since the first page, and the mean power since the last."""
        if joules is None:
            return None, None
        counter = self._counters.setdefault((kind, name), CountedEnergy())
        counter.add(now, joules)
        return counter.total, counter.power
