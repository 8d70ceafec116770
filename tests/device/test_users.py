"""Holds of several users of one machine: one place for all, and nobody writes another's record."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.device.clients import Client, Clients

from simulated_drivers import GpuSpec, SimulatedNvml
from zeus.device._record_places import SHARED_PLACES

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become several users"),
    pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here"),
]

# Runs beside this one have other users: the places of their records are the machine's.
ALICE = 20_000 + 2 * (os.getpid() % 20_000)
BOB, ROOT = ALICE + 1, 0
HOLD = """
hold = get_gpus()[0].hold(power_limit={})
hold.acquire()
say(0)
released = heard() == "release"
hold.release()
if released:
    say("released")
    heard()
"""


class Users:
    """Programs of several users, all of whom may set the limits of one simulated GPU."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.key = f"GPU-{uuid.uuid4()}"  # a real place is used, so nobody else may have this GPU
        self.sim = SimulatedNvml.create(
            folder / "state", [GpuSpec(uuid=self.key, needs_root=False)]
        )
        for path in (folder / "state", *(folder / "state").rglob("*")):
            path.chmod(0o777)
        self._clients = Clients(**self.sim.environment(library))

    def start(self, user: int, script: str) -> Client:
        # Another user may not even be able to read our Python: all is loaded before.
        become = (
            "with get_gpus()[0].hold(power_limit=300): pass\n"
            f"os.setgid({user}); os.setuid({user})\n"
            "os.environ.pop('ZEUS_STATE_DIR'); os.environ['HOME'] = '/proc/1/nowhere'\n"
        )
        return self._clients.start(become + script)

    def ask(self, user: int, script: str) -> object:
        client = self.start(user, script)
        said = client.hear()
        assert client.end() == 0, client.errors
        return said

    def hold(self, user: int, watts: float) -> Client:
        client = self.start(user, HOLD.format(watts))
        client.hear()
        return client

    def limit(self) -> float:
        return self.sim.power_limit(0)

    def records(self) -> dict[str, dict]:
        return {
            path.parent.name: json.loads(path.read_text())
            for place in SHARED_PLACES
            for path in place.glob(f"zeus-holds-*/{self.key}.json")
        }

    def close(self) -> None:
        self._clients.stop()
        for place in SHARED_PLACES:
            for path in (*place.glob(f"zeus-holds-*/{self.key}*"), *place.glob(f"*{self.key}*")):
                path.unlink()
            for user in (ALICE, BOB):
                shutil.rmtree(place / f"zeus-holds-{user}", ignore_errors=True)


@pytest.fixture
def users(nvml_library: Path) -> Iterator[Users]:
    folder = Path("/tmp") / f"zeus-users-{uuid.uuid4().hex}"  # where other users can get to
    folder.mkdir(mode=0o755)
    library = folder / "library"
    shutil.copytree(nvml_library, library)
    for path in (folder, library, *library.rglob("*")):
        path.chmod(0o755)
    users = Users(library, folder)
    yield users
    users.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_two_users_do_not_undo_each_other(users: Users, first_to_end: int) -> None:
    before = users.limit()
    holders = [users.hold(ALICE, 200), users.hold(BOB, 150)]
    assert users.limit() == 150
    # Whoever starts finds that both live.
    assert users.ask(ALICE, "say(node.current_node().restore()[0])") == 0
    assert users.limit() == 150
    holders[first_to_end].tell()
    holders[first_to_end].end()
    assert users.limit() == (150 if first_to_end == 0 else 200)
    holders[1 - first_to_end].tell()
    holders[1 - first_to_end].end()
    assert users.limit() == before
    assert users.records() == {}


def test_what_a_killed_user_left_another_puts_back_once(users: Users) -> None:
    before = users.limit()
    alice = users.hold(ALICE, 200)
    alice.send(signal.SIGKILL)
    alice.end()
    assert users.ask(BOB, "say(get_gpus()[0].power_limit())") == before
    users.sim.set_power_limit(0, 180.0)  # by hand, later
    assert users.ask(BOB, "say(get_gpus()[0].power_limit())") == 180.0
    # Alice's file is hers to tidy up, and then nothing is left to note about it.
    assert users.ask(ALICE, "say(get_gpus()[0].power_limit())") == 180.0
    with_hers = users.records()
    users.ask(BOB, "get_gpus()[0].hold(power_limit=150).acquire(); say(0)")
    assert set(with_hers) <= {f"zeus-holds-{BOB}"}
    assert users.records() == {}


CHANGING = """
hold = get_gpus()[0].hold(power_limit=200)
hold.acquire()
say([hold.change(power_limit=190), hold.change(power_limit=195), hold.surely_in_force()])
heard()
say([hold.surely_in_force(), hold.change(power_limit=180), hold.overridden_by().value])
heard()
say([hold.change(power_limit=170), hold.change(power_limit=175), hold.surely_in_force()])
heard()
hold.release()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_changes_of_a_user_give_way_to_another_users_hold(users: Users, killed: bool) -> None:
    before = users.limit()
    alice = users.start(ALICE, CHANGING)
    assert alice.hear() == [True, True, True]
    assert users.limit() == 195
    bob = users.hold(BOB, 150)
    alice.tell()
    assert alice.hear() == [False, False, 150]
    assert users.limit() == 150
    if killed:
        bob.send(signal.SIGKILL)
    else:
        bob.tell()
    bob.end()
    assert users.limit() == (150 if killed else 180)
    alice.tell()
    assert alice.hear() == [True, True, True]
    assert users.limit() == 175
    alice.tell()
    assert alice.end() == 0, alice.errors
    assert users.limit() == before


def test_a_process_whose_hold_has_ended_is_no_holder_any_more(users: Users) -> None:
    alice = users.hold(ALICE, 200)
    bob = users.start(
        BOB,
        "hold = get_gpus()[0].hold(power_limit=150); hold.acquire(); say(hold.surely_in_force())\n"
        "heard(); say(hold.surely_in_force()); hold.release()",
    )
    assert bob.hear() is False  # Alice has one, too
    alice.tell("release")
    assert alice.hear() == "released"
    bob.tell()
    assert bob.hear() is True
    assert bob.end() == 0, bob.errors


def test_changes_of_a_user_never_reach_past_another_users_hold(users: Users) -> None:
    alice = users.start(
        ALICE,
        "hold = get_gpus()[0].hold(power_limit=200); hold.acquire(); say(0)\n"
        "while True: hold.change(power_limit=random.randint(101, 199)); time.sleep(1e-4)",
    )
    alice.hear()
    above = """
gpu, wrong = get_gpus()[0], []
for turn in range(40):
    with gpu.hold(power_limit=300 + turn):
        wrong += [gpu.power_limit() for _ in range(5) if gpu.power_limit() != 300 + turn]
    if gpu.power_limit() >= 300:
        wrong.append(gpu.power_limit())
say(wrong)
"""
    assert users.ask(BOB, above) == []


def test_root_does_not_do_what_somebody_else_wrote(users: Users) -> None:
    """Else anybody could have the limits of the machine changed."""
    alice = users.hold(ALICE, 200)
    alice.send(signal.SIGKILL)
    alice.end()
    assert users.ask(ROOT, "say(get_gpus()[0].power_limit())") == 200
    assert list(users.records()) == [f"zeus-holds-{ALICE}"]


def test_a_folder_that_is_not_its_owners_is_not_believed(users: Users) -> None:
    forged = Path("/dev/shm") / f"zeus-holds-{BOB}"
    forged.mkdir()
    os.chown(forged, ALICE, ALICE)
    before = users.limit()
    bob = users.hold(BOB, 150)  # his record is in a place of his own
    assert list(forged.iterdir()) == []
    bob.tell()
    assert bob.end() == 0
    assert users.limit() == before
