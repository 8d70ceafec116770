"""CPU time of `zeus export`: a scrape of 8 GPUs over HTTP, and at rest; prints JSON.

The exporter is a process of its own, on a simulated driver of 8 A100s behind NVIDIA's unmodified
binding. Its CPU time is that of all its threads, as the kernel accounts it, so it includes reading
the devices, writing the page and serving it. `page_milliseconds` compares the writing of the page
alone with that of `prometheus-client`, in this process.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "drivers" / "python"), str(ROOT / "src")]
TARGETS = {"scrape_milliseconds": 2.0, "rest_percent": 0.2}
_ENERGY = 83  # number of the field
DRIVERS: dict[str, dict[str, Any]] = {
    "counters": {},
    "counters, all limits held": {},
    "counters, a process on each GPU": {},
    "counters, two owners share each GPU": {},
    # Without an energy counter power is integrated in the background.
    "no counters": {
        "unsupported": ("nvmlDeviceGetTotalEnergyConsumption",),
        "unsupported_fields": (_ENERGY,),
    },
}

SETTLE = 35.0  # seconds after which processes count as those that were there before
NOT_THERE = 1 << 23  # no process has this number, so that its owner is another one
PROCESSES = {
    "counters, a process on each GPU": (os.getpid(),),
    "counters, two owners share each GPU": (os.getpid(), NOT_THERE),
}

WAIT = "print(flush=True); input()"
HOLD = f"""
from zeus.device import get_gpus
holds = [gpu.hold(power_limit=300) for gpu in get_gpus()]
for hold in holds:
    hold.acquire()
{WAIT}
"""


def measured(case: str, scrapes: int, rest: float, gpus: int) -> dict[str, Any]:
    from simulated_drivers import GpuSpec, SimulatedNvml, build

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        library = build("nvml", folder / "library").parent
        running = PROCESSES.get(case, ())
        spec: dict[str, Any] = {"watts": 300.0, "needs_root": False, **DRIVERS[case]}
        if running:
            spec["compute_processes"] = [(pid, 2**30) for pid in running]
        specs = [GpuSpec(**spec) for _ in range(gpus)]
        with SimulatedNvml.create(folder / "state", specs) as driver:
            for gpu in range(gpus):
                driver.set_process_usage(gpu, dict.fromkeys(running, 0.4))
            environment = {
                **os.environ,
                **driver.environment(library),
                "ZEUS_STATE_DIR": str(folder / "zeus"),
            }
            holder = subprocess.Popen(
                [sys.executable, "-c", HOLD if "held" in case else WAIT],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert holder.stdout is not None
            holder.stdout.readline()
            exporter = subprocess.Popen(
                [sys.executable, "-m", "zeus", "export", "--listen", "127.0.0.1:0"],
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                return _measured(exporter, scrapes, rest)
            finally:
                for process in (exporter, holder):
                    process.terminate()
                    process.wait()


def _measured(exporter: subprocess.Popen[str], scrapes: int, rest: float) -> dict[str, Any]:
    assert exporter.stdout is not None
    address = urlparse(exporter.stdout.readline().split()[-1])
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    page, times = b"", []
    for _ in range(20):
        _scraped(connection)
    begun = _cpu_seconds(exporter.pid)
    for _ in range(scrapes):
        started = time.perf_counter()
        page = _scraped(connection)
        times.append(time.perf_counter() - started)
    scraped = _cpu_seconds(exporter.pid) - begun
    time.sleep(SETTLE)
    begun = _cpu_seconds(exporter.pid)
    time.sleep(rest)
    resting = _cpu_seconds(exporter.pid) - begun
    return {
        "samples": sum(not line.startswith(b"#") for line in page.splitlines()),
        "bytes": len(page),
        "energy_by": sorted({*re.findall(rb'energy_joules_total.*method="(\w+)"', page)})[
            0
        ].decode(),
        "scrapes": scrapes,
        "scrape_milliseconds": round(scraped / scrapes * 1e3, 3),
        "scrape_latency_milliseconds_median": round(statistics.median(times) * 1e3, 3),
        "rest_seconds": rest,
        "rest_percent": round(resting / rest * 100, 3),
    }


def _scraped(connection: http.client.HTTPConnection) -> bytes:
    connection.request("GET", "/metrics")
    return connection.getresponse().read()


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, those that ended too."""
    return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) makes it on Linux


def page_milliseconds(gpus: int) -> dict[str, float]:
    """Return how long one page takes, by us and by `prometheus-client`."""
    from prometheus_client import CollectorRegistry, generate_latest

    from zeus.telemetry._collection import Telemetry
    from zeus.telemetry._prometheus import NodeCollector
    from zeus.telemetry._text_format import TextFormat
    from zeus.testing import SimulatedNode

    telemetry = Telemetry(SimulatedNode(f"a100x{gpus}", load=0.9), sources=[])
    registry = CollectorRegistry()
    registry.register(NodeCollector(telemetry))
    form = TextFormat()

    def cpu(page: Any, repeats: int = 300) -> float:
        page()
        begun = time.process_time()
        for _ in range(repeats):
            page()
        return (time.process_time() - begun) / repeats * 1e3

    reading = cpu(telemetry.collect)
    return {
        "zeus": round(cpu(lambda: form.text(telemetry.collect())) - reading, 3),
        "prometheus-client": round(cpu(lambda: generate_latest(registry)) - reading, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--rest", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--gpus", type=int, default=8)
    chosen = parser.parse_args()
    report: dict[str, Any] = {
        "gpus": chosen.gpus,
        "load_average": os.getloadavg(),
        "targets": TARGETS,
        "page_milliseconds": page_milliseconds(chosen.gpus),
    }
    for case in DRIVERS:
        report[case] = measured(case, chosen.scrapes, chosen.rest, chosen.gpus)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
