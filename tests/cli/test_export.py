"""`zeus export`: over HTTP, as a text file, once; with devices that misbehave, and its errors."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.support import LONG_ENOUGH, one_error_line, start, zeus, zeus_here

from simulated_drivers import GpuSpec, NvmlReturn
from zeus.cli.export import dashboard
from zeus.device import current_node


def metrics(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def by(samples: list[tuple[dict[str, str], float]], label: str) -> dict[str, float]:
    return {labels[label]: value for labels, value in samples}


def serving(*arguments: str, **variables: Any) -> tuple[subprocess.Popen[str], str]:
    process = start("export", "--listen", "127.0.0.1:0", *arguments, variables=variables)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def scraped(url: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    with urllib.request.urlopen(url, timeout=LONG_ENOUGH) as answer:
        return metrics(answer.read().decode())


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LONG_ENOUGH)
    return process.returncode, errors


# Over HTTP


def test_prometheus_can_scrape_and_sigterm_ends_it():
    process, url = serving(ZEUS_SIMULATE="v100x2")

    def joules() -> dict[str, float]:
        return by(scraped(url)["zeus_gpu_energy_joules_total"], "gpu")

    first = joules()
    assert set(first) == {"0", "1"}
    while any(later <= first[gpu] for gpu, later in joules().items()):
        time.sleep(0.01)  # until the counters of both have ticked
    assert ended(process) == (0, "")


def test_http_as_it_should_be():
    process, url = serving(ZEUS_SIMULATE="v100")
    address = urlparse(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port)

    def ask(method: str, path: str, **options: Any) -> tuple[int, bytes]:
        connection.request(method, path, **options)
        answer = connection.getresponse()
        return answer.status, answer.read()

    socket_before = None
    for _ in range(3):  # one connection for all of them
        status, body = ask("GET", "/metrics?any=thing")
        assert status == 200
        assert body.startswith(b"# HELP zeus_")
        assert socket_before in (None, connection.sock)
        socket_before = connection.sock
    assert ask("HEAD", "/metrics") == (200, b"")
    assert ask("GET", "/")[0] == 200
    assert ask("GET", "/secrets")[0] == 404
    assert ask("POST", "/metrics", body=b"x" * 10)[0] == 405
    assert ask("GET", "/metrics", headers={"Connection": "close"})[0] == 200
    for nonsense in (
        b"\x00\xff\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500,
    ):
        with socket.create_connection((str(address.hostname), int(address.port or 0))) as raw:
            raw.sendall(nonsense)
            assert raw.recv(1000).startswith(b"HTTP/1.1 400")
    with socket.create_connection((str(address.hostname), int(address.port or 0))):
        assert scraped(url), "a client that says nothing blocks no other"
    silent = [socket.create_connection((str(address.hostname), int(address.port or 0)))]
    while silent[-1].fileno() >= 0 and len(silent) < 200:
        silent.append(socket.create_connection((str(address.hostname), int(address.port or 0))))
    assert silent[-1].recv(1) == b"", "closed: there are too many"
    for each in silent:
        each.close()
    _await_page(url)
    assert ended(process) == (0, "")


def _await_page(url: str) -> None:
    while True:
        with contextlib.suppress(OSError):
            assert scraped(url)
            return


def test_a_device_that_hangs_shows_as_failure_and_delays_no_other(nvml):
    sim, variables = nvml(GpuSpec(watts=123.0), GpuSpec(), GpuSpec(watts=50.0))
    sim.fault(1, "nvmlDeviceGetUtilizationRates", "hang")
    process, url = serving(**variables)
    found = scraped(url)
    assert by(found["zeus_gpu_power_watts"], "gpu") == {"0": 123.0, "2": 50.0}
    success = by(found["zeus_collector_success"], "collector")
    assert (success["gpu0"], success["gpu1"], success["gpu2"]) == (1, 0, 1)
    code, errors = ended(process)
    assert code == 0
    assert "collector gpu1: driver call hangs" in errors


# Text file and once


def test_the_text_file_is_always_whole(tmp_path):
    path = tmp_path / "zeus.prom"
    process = start(
        "export", "--text-file", str(path), "--every", "0.1", variables={"ZEUS_SIMULATE": "v100x2"}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == f"zeus: metrics in {path} every 0.1 s\n"
    seen: set[tuple[float, ...]] = set()
    while len(seen) < 5:
        if path.exists():
            found = metrics(path.read_text())
            assert len(found["zeus_gpu_info"]) == 2
            assert "zeus_collector_duration_seconds" in found, "the last family is there"
            seen.add(tuple(by(found["zeus_gpu_energy_joules_total"], "gpu").values()))
            assert path.stat().st_mode & 0o777 == 0o644
    assert ended(process) == (0, "")
    assert {each.name for each in tmp_path.iterdir()} <= {"zeus-state"}, "nothing stale is left"


def test_both_ways_at_once(tmp_path):
    path = tmp_path / "zeus.prom"
    process, url = serving("--text-file", str(path), ZEUS_SIMULATE="v100")
    assert "zeus_gpu_info" in scraped(url)
    while not path.exists():
        time.sleep(0.01)
    assert ended(process) == (0, "")


def test_once_prints_or_writes(tmp_path):
    done = zeus("export", "--once", ZEUS_SIMULATE="v100x2")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(metrics(done.stdout)["zeus_gpu_info"]) == 2
    path = tmp_path / "zeus.prom"
    done = zeus("export", "--once", "--text-file", str(path), ZEUS_SIMULATE="v100x2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(metrics(path.read_text())["zeus_gpu_info"]) == 2


def test_a_machine_without_devices_exports_that():
    done = zeus("export", "--once", ZEUS_SIMULATE=None)
    found = metrics(done.stdout)
    assert done.returncode == 0
    assert "zeus_exporter_info" in found
    assert "zeus_gpu_power_watts" not in found


# Values


def test_what_the_driver_does_not_support_is_absent(nvml):
    _, variables = nvml(
        GpuSpec(watts=200.0),
        GpuSpec(unsupported=["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature"]),
    )
    found = metrics(zeus("export", "--once", env=variables).stdout)
    assert by(found["zeus_gpu_power_watts"], "gpu")["0"] == 200.0
    assert set(by(found["zeus_gpu_temperature_celsius"], "gpu")) == {"0"}
    assert set(by(found["zeus_gpu_utilization_ratio"], "gpu")) == {"0"}
    assert set(by(found["zeus_collector_success"], "collector").values()) == {1}


def test_a_lost_gpu_is_a_failure(nvml):
    sim, variables = nvml(GpuSpec(watts=123.0), GpuSpec())
    sim.fault(1, "nvmlDeviceGetFieldValues", "error", code=NvmlReturn.GPU_IS_LOST)
    done = zeus("export", "--once", env=variables)
    found = metrics(done.stdout)
    success = by(found["zeus_collector_success"], "collector")
    assert (success["gpu0"], success["gpu1"]) == (1, 0)
    assert by(found["zeus_gpu_power_watts"], "gpu") == {"0": 123.0}
    assert "device lost" in done.stderr


def test_a_hold_of_another_process_has_its_process_and_value(monkeypatch):
    monkeypatch.setenv("ZEUS_SIMULATE", "v100x2")
    with current_node().gpus[1].hold(power_limit=150):
        found = metrics(zeus("export", "--once").stdout)
    ((labels, watts),) = found["zeus_gpu_held_power_limit_watts"]
    assert (labels["gpu"], labels["pid"], watts) == ("1", f"{os.getpid()}", 150)
    assert by(found["zeus_gpu_power_limit_watts"], "gpu") == {"0": 250, "1": 150}
    assert "zeus_gpu_held_power_limit_watts" not in metrics(zeus("export", "--once").stdout)


# Errors


def test_a_port_in_use(capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = zeus_here(capfd, "export", "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in one_error_line(done)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--listen", "nonsense"], 2, "must be PORT or HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], 2, "port up to 65535"),
        (["--listen", "no.such.host.invalid:1"], 1, "cannot listen on no.such.host.invalid"),
        (["--every", "3"], 2, "--text-file, which is not given"),
        (["--once", "--listen", "127.0.0.1:0"], 2, "--once publishes a single time"),
        (["--text-file", "/missing/zeus.prom"], 2, "/missing does not"),
        (["--text-file", "zeus.txt"], 2, "must end in '.prom'"),
        (["--text-file", "zeus.prom", "--every", "0"], 2, "0.1"),
    ],
)
def test_errors_say_what_is_wrong(capfd, arguments, code, message):
    done = zeus_here(capfd, "export", *arguments)
    assert done.returncode == code
    assert message in one_error_line(done)


def test_an_address_of_version_6():
    process = start("export", "--listen", "[::1]:0", variables={"ZEUS_SIMULATE": "v100"})
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.skip("no IPv6 here")
    assert re.fullmatch(r"zeus: metrics at http://\[::1\]:\d+/metrics\n", line)
    assert "zeus_gpu_info" in scraped(line.split()[-1])
    assert ended(process) == (0, "")


def test_a_directory_that_goes_away_is_a_warning_and_passes(tmp_path):
    folder = tmp_path / "textfiles"
    folder.mkdir()
    path = folder / "zeus.prom"
    process = start(
        "export", "--text-file", str(path), "--every", "0.1", variables={"ZEUS_SIMULATE": "v100"}
    )
    _await(path)
    moved = folder.rename(tmp_path / "moved")
    assert process.stderr is not None
    assert "the text file is not written" in process.stderr.readline()
    moved.rename(folder)
    path.unlink()
    _await(path)
    assert ended(process)[0] == 0


def _await(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


# Dashboard


def test_the_dashboard_is_printed(capfd):
    done = zeus_here(capfd, "export", "--dashboard")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", dashboard())
    assert json.loads(done.stdout)["title"] == "Zeus node"
