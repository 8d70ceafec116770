"""A vendor of GPUs is one entry: what it leaves out costs that, and the GPU is still there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.device.clients import Clients

ACME = """
from zeus.device._base import GpuDriver, GpuIdentity, Problem
from zeus.device._vendors import GpuVendor, discover_gpus, register
from zeus.device._visible import Visible

class AcmeDriver(GpuDriver):
    '''A GPU with a power meter and nothing else.'''

    def __init__(self, number):
        self.identity = GpuIdentity(f"ACME-{number}", f"Acme {number}", "Acme")

    def instant_power(self):
        return 123.0

def acme(count=2, **entry):
    register(GpuVendor("Acme", lambda: ([AcmeDriver(n) for n in range(count)], []), **entry))

def run_zeus(*arguments):
    from zeus.cli import main
    sys.exit(main(list(arguments)))
"""


@pytest.fixture
def clients() -> Iterator[Clients]:
    clients = Clients(ZEUS_SIMULATE="", ZEUS_HELPER="0")
    yield clients
    clients.stop()


def ask(clients: Clients, script: str, **variables: str) -> Any:
    return clients.ask(ACME + script, **variables)


def output(clients: Clients, script: str, **variables: str) -> str:
    """Standard output of a script that ends well."""
    client = clients.start(ACME + script, **variables)
    text = client.read()
    assert client.end() == 0, client.errors
    return text


def test_a_name_and_a_discovery_make_gpus_visible(clients: Clients) -> None:
    script = "acme(); say([[gpu.index, gpu.name, gpu.key] for gpu in get_gpus()])"
    assert ask(clients, script) == [[0, "Acme 0", "ACME-0"], [1, "Acme 1", "ACME-1"]]


def test_what_its_driver_lacks_is_an_error_with_a_reason(clients: Clients) -> None:
    script = """
acme()
gpu = get_gpus()[0]
say([gpu.instant_power(), outcome(gpu.energy), outcome(gpu.hold, power_limit=100),
     {name: [s.available, s.reason] for name in Capability for s in [gpu.support(name)]}])
"""
    power, energy, hold, support = ask(clients, script)
    assert power == 123.0
    assert energy == ["unsupported", "energy counter", ""]
    assert hold == ["unsupported", "power limit", ""]
    assert support.pop("instantaneous power") == [True, None]
    assert set(map(tuple, support.values())) == {(False, "unsupported")}


def test_zeus_env_shows_it_and_what_it_cannot_do(clients: Clients) -> None:
    text = output(clients, "acme(); run_zeus('env')")
    assert "GPU 0  Acme 0" in text
    assert "GPU 1  Acme 1" in text
    assert re.search(r"^  instantaneous power +yes$", text, re.MULTILINE)
    assert re.search(r"^  energy counter +no +unsupported$", text, re.MULTILINE)
    assert re.search(r"^  clock control +no +unsupported", text, re.MULTILINE)
    report = json.loads(output(clients, "acme(); run_zeus('env', '--json')"))
    assert [gpu["vendor"] for gpu in report["gpus"]] == ["Acme", "Acme"]
    assert report["gpus_on_machine"] == 2
    refused = report["gpus"][0]["capabilities"]["power_limit_control"]
    assert (refused["available"], refused["reason"]) == (False, "unsupported")


@pytest.mark.real_time
def test_its_power_is_measured(clients: Clients) -> None:
    script = """
from zeus.monitor import ZeusMonitor
acme(1)
monitor = ZeusMonitor(cpu_indices=[])
monitor.begin_window("w")
time.sleep(0.3)
measured = monitor.end_window("w")
say(measured.gpu_energy[0] / measured.time)
os._exit(0)
"""
    assert ask(clients, script) == pytest.approx(123.0, rel=1e-3)


def test_its_own_rule_and_variables_decide_what_is_visible(clients: Clients) -> None:
    script = """
def chosen(candidates, environment):
    numbers = environment.get("ACME_GPUS", "0").split(",")
    return [Visible(int(number)) for number in numbers]

acme(3, visible=chosen, variables=("ACME_GPUS",))
found = [[gpu.name for gpu in get_gpus()]]
os.environ["ACME_GPUS"] = "2,1"
found.append([gpu.name for gpu in get_gpus()])
say(found)
"""
    assert ask(clients, script) == [["Acme 0"], ["Acme 2", "Acme 1"]]
    shown = "acme(2, variables=('ACME_GPUS',)); run_zeus('env')"
    assert "ACME_GPUS=0" in output(clients, shown, ACME_GPUS="0")


def test_gpus_are_numbered_on_from_vendor_to_vendor_and_in_frameworks_from_zero(
    clients: Clients,
) -> None:
    script = """
from zeus.device._simulated import build
drivers = [*(AcmeDriver(n) for n in range(2)), *build("mi300xx2,v100", MonotonicClock(), None)]
say([[gpu.index, gpu.ordinal, gpu.identity.vendor] for gpu in node._visible(drivers)])
"""
    expected = [[0, 0, "NVIDIA"], [1, 0, "AMD"], [2, 1, "AMD"], [3, 0, "Acme"], [4, 1, "Acme"]]
    # Whether it is registered or not: a driver without an entry is not dropped.
    assert ask(clients, script) == expected
    assert ask(clients, "acme()" + script) == expected


@pytest.mark.parametrize(
    ("failure", "reason", "detail"),
    [
        ("CapabilityError(Reason.NO_PERMISSION, 'no', 'be root')", "no permission", "no"),
        ("ZeroDivisionError('oops')", "driver absent", "discovery failed: ZeroDivisionError: oops"),
    ],
)
def test_a_failed_discovery_costs_only_its_own_gpus(
    clients: Clients, failure: str, reason: str, detail: str
) -> None:
    script = f"""
from zeus.errors import Reason
def fail():
    raise {failure}
register(GpuVendor("Broken", fail))
acme()
problems = [p for p in get_gpus().problems if p.what == "Broken GPUs"]
say([len(get_gpus()), [[p.error.reason, p.error.detail] for p in problems]])
"""
    assert ask(clients, script) == [2, [[reason, detail]]]


def test_windows_wait_for_the_module_through_which_frameworks_offer_it(clients: Clients) -> None:
    script = """
import types
from zeus.monitor import ZeusMonitor
waited = []
def backend(name):
    return types.SimpleNamespace(
        is_initialized=lambda: True, synchronize=lambda ordinal: waited.append([name, ordinal]))
torch = types.ModuleType("torch")
torch.cuda, torch.acme = backend("cuda"), backend("acme")
sys.modules["torch"] = torch
acme(2, {entry})
ZeusMonitor(cpu_indices=[]).begin_window("w")
say(waited)
os._exit(0)
"""
    known = script.replace("{entry}", "framework_module='acme'")
    assert ask(clients, known) == [["acme", 0], ["acme", 1]]
    assert ask(clients, script.replace("{entry}", "")) == []


def test_a_part_of_a_module_is_left_alone_unless_it_is_known_to_be_one_users(
    clients: Clients,
) -> None:
    script = """
from zeus.optimizer.training._knob_controller import _refuse_slice
acme(1, {entry})
driver = AcmeDriver(0)
driver.identity = GpuIdentity("ACME-0", "Acme 0", "Acme", whole_module=True)
say(outcome(_refuse_slice, Gpu(0, driver), "power_limit"))
"""
    reason, detail, _ = ask(clients, script.replace("{entry}", ""))
    assert reason == "unsupported"
    assert "may belong to other users" in detail
    assert ask(clients, script.replace("{entry}", "shares_modules=False")) is None


def test_the_demo_trains_on_it_if_frameworks_offer_it(clients: Clients) -> None:
    script = """
import importlib.machinery, types
from zeus.cli import demo
devices = []

class Anything:
    def __call__(self, *arguments, device=None, **options):
        devices.extend([device] if device else [])
        return self
    def __getattr__(self, name):
        return self

torch = types.ModuleType("torch")
torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
torch.nn = torch.optim = torch.randn = torch.acme = Anything()
sys.modules["torch"] = torch
acme(2, {entry})
step, why_not = demo._torch_step(get_gpus()[1])
say([step is not None, why_not, devices])
"""
    known = script.replace("{entry}", "framework_module='acme'")
    assert ask(clients, known) == [True, "", ["acme:1", "acme:1"]]
    why_not = "PyTorch cannot use them (its module for GPUs of Acme is unknown)"
    assert ask(clients, script.replace("{entry}", "")) == [False, why_not, []]
