"""Energy counters of CPUs and memory, which only root may open, for users who are allowed to."""

from __future__ import annotations

import pytest
from tests.agent.rig import ALICE, BOB, needs_root
from tests.device.trees import Powercap

pytestmark = needs_root

READ = """
cpus = node.current_node().cpus
say([[cpu.energy(), cpu.dram_energy()] for cpu in cpus])
heard()
say([[cpu.energy(), cpu.dram_energy()] for cpu in cpus])
"""
POLICY = f'[[rule]]\nusers = ["{ALICE}"]\ncpu_energy = true\n'


@pytest.fixture
def powercap(make_rig):
    """An agent on a machine with two packages, whose counters only root may read."""
    rig = make_rig(policy=POLICY)
    tree = Powercap(rig.folder / "sys")
    for package in range(2):
        tree.add(f"{package}", f"package-{package}", 5_000_000)
        tree.add(f"{package}:0", "dram", 1_000_000)
    for path in (rig.folder / "sys").rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
        elif path.name == "energy_uj" and not path.is_symlink():
            path.chmod(0o400)
    rig.start(ZEUS_POWERCAP_ROOT=str(tree.root))
    return rig, tree


def test_a_user_whom_the_policy_allows_reads_them_as_root_does(powercap):
    rig, tree = powercap
    client = rig.client(READ, ZEUS_POWERCAP_ROOT=str(tree.root))
    assert client.hear() == [[5.0, 1.0], [5.0, 1.0]]
    tree.set("1", 7_500_000)
    tree.set("1:0", 0)  # has wrapped
    client.tell()
    first, second = client.hear()
    assert first == [5.0, 1.0]
    assert second[0] == 7.5
    assert second[1] > 262_000.0
    rig.kill()  # which costs holds, not readings
    assert client.end() == 0


def test_windows_include_them(powercap):
    rig, tree = powercap
    client = rig.client(
        "monitor = zeus.ZeusMonitor()\nmonitor.begin_window('x')\nsay(0)\nheard()\n"
        "measured = monitor.end_window('x')\nsay([measured.cpu_energy, measured.dram_energy])",
        ZEUS_POWERCAP_ROOT=str(tree.root),
        ZEUS_HELPER="0",
    )
    client.hear()
    tree.set("0", 9_000_000)
    client.tell()
    cpu, dram = client.hear()
    assert cpu["0"] == pytest.approx(4.0)
    assert dram["0"] == pytest.approx(0.0)


def test_others_do_not_get_them(powercap):
    rig, tree = powercap
    said = rig.ask(
        "machine = node.current_node()\n"
        "say([len(machine.cpus), [str(each.error.reason) for each in machine.cpus.problems]])",
        BOB,
        ZEUS_POWERCAP_ROOT=str(tree.root),
    )
    assert said == [0, ["no permission", "no permission"]]
