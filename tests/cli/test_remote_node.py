"""Other nodes: what they serve, and that none of them is waited for."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import pytest
from tests.cli.support import LONG_ENOUGH, serving
from tests.present import present

from zeus.cli._remote_node import RemoteNode, RemoteReading, node_address

GPU = 'gpu="0",uuid="GPU-far"'


def page(joules: float, watts: float = 100.0) -> bytes:
    return f"""\
zeus_gpu_info{{{GPU},name="Far"}} 1
zeus_gpu_power_watts{{{GPU},method="instant"}} {watts}
zeus_gpu_energy_joules_total{{{GPU},method="counter"}} {joules}
zeus_cpu_info{{package="0",name="package-0"}} 1
zeus_cpu_energy_joules_total{{package="0",method="counter"}} {joules}
""".encode()


def wait_for(node: RemoteNode, wanted: Callable[[RemoteReading], bool]) -> RemoteReading:
    deadline = time.monotonic() + LONG_ENOUGH
    while not wanted(node.latest()):
        assert time.monotonic() < deadline, node.latest()
        time.sleep(0.01)
    return node.latest()


def test_energy_counts_from_the_first_page():
    joules = iter([5000.0, 5200.0, 5300.0, *([5300.0] * 10_000)])
    with serving(lambda: page(next(joules))) as url:
        node = RemoteNode(node_address(url), 0.5)
        found = wait_for(node, lambda seen: bool(seen.rows) and seen.rows[0].gpu.energy == 300.0)
    (row,) = found.rows
    assert (row.node, row.gpu.name, row.gpu.power) == (node.name, "Far", 100.0)
    assert row.seconds > 0
    assert present(row.history).highest == 100.0
    assert present(row.history).energy() == pytest.approx(300.0)
    (cpu,) = found.cpus
    assert cpu.energy == 300.0


def test_a_node_that_comes_back_is_shown_again():
    content = b""
    with serving(lambda: content) as url:
        node = RemoteNode(node_address(url), 0.5)
        wait_for(node, lambda seen: "trying again" in (seen.problem or ""))
        content = page(1.0)
        found = wait_for(node, lambda seen: bool(seen.rows))
    assert found.problem is None


def test_a_node_that_goes_is_shown_as_unreachable():
    joules = iter([1.0, *([8.5] * 10_000)])
    with serving(lambda: page(next(joules))) as url:
        node = RemoteNode(node_address(url), 0.5)
        wait_for(node, lambda seen: bool(seen.rows) and seen.rows[0].gpu.energy is not None)
    gone = wait_for(node, lambda seen: seen.problem is not None)
    (row,) = gone.rows
    assert (row.gpu.power, row.gpu.energy) == (None, 7.5)  # which it did use
    assert row.gpu.problem == "its node does not respond"
    assert present(gone.problem).startswith("unreachable: ")
    assert "trying again" in present(gone.problem)


@pytest.mark.parametrize(
    ("content", "status", "problem"),
    [
        (b"hello", 200, "serves no metrics of Zeus"),
        (b"node_load1 1\n", 200, "serves no metrics of Zeus"),
        (page(1.0), 500, "status 500"),
        (b"\xff\xfe\x00", 200, "serves no metrics of Zeus"),
    ],
)
def test_what_is_no_page_of_zeus_is_a_problem(content, status, problem):
    with serving(content, status) as url:
        node = RemoteNode(node_address(url), 0.5)
        assert problem in present(
            wait_for(node, lambda seen: "try" in (seen.problem or "")).problem
        )


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "secure"),
    [
        ("http://node7:9842", "node7", 9842, "/metrics", False),
        ("http://node7:9842/", "node7", 9842, "/metrics", False),
        ("https://node7/zeus?x=1", "node7", None, "/zeus?x=1", True),
        ("http://[::1]:9842/metrics", "::1", 9842, "/metrics", False),
    ],
)
def test_addresses(url, host, port, path, secure):
    address = node_address(url)
    assert (address.host, address.port, address.path, address.secure) == (host, port, path, secure)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "node7",
        "node7:9842",
        "ftp://node7",
        "http://",
        "http://node7:port",
        "http://a\nb",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a URL such as"):
        node_address(url)


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        node_address("http://user:secret@node7:9842")
    assert "secret" not in str(refused.value)
