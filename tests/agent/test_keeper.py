"""The knobs of one GPU and the leases on them, in this process."""

from __future__ import annotations

import pytest
from tests.device.clients import stand_in

from zeus.agent._keeper import KnobKeeper, Lease
from zeus.agent._peer import Peer
from zeus.agent._policy import Bounds
from zeus.errors import CapabilityError

PEER = Peer(0, 21_000, "alice")


class Keeper:
    """A keeper over a GPU of this process that starts at 250 W, and the leases that ended."""

    def __init__(self) -> None:
        gpu, self.driver = stand_in()
        self.ended: list[Lease] = []
        self.keeper = KnobKeeper(0, gpu.driver, self.ended.append)

    def hold(self, watts: float) -> Lease:
        return self.keeper.hold(PEER, "power_limit", watts, Bounds())


def fill_disk(monkeypatch) -> None:
    """Let no record be written any more."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zeus.device._records.write_atomically", full)


def test_a_hold_that_cannot_be_recorded_is_refused_with_the_cause(monkeypatch):
    rig = Keeper()
    first = rig.hold(200.0)
    fill_disk(monkeypatch)
    with pytest.raises(CapabilityError, match="No space left"):
        rig.hold(150.0)
    assert rig.driver.limit == 200.0
    assert rig.keeper.leases() == [first]


def test_a_lease_that_ends_on_a_full_disk_is_over_when_there_is_room_again(monkeypatch):
    rig = Keeper()
    first, second = rig.hold(200.0), rig.hold(150.0)
    with monkeypatch.context() as context:
        fill_disk(context)
        rig.keeper.end(first, "released")
        assert rig.keeper.failed
    rig.keeper.retry()
    assert not rig.keeper.failed
    rig.keeper.end(second, "released")
    assert rig.driver.limit == 250.0


def test_no_lease_begins_after_the_end():
    rig = Keeper()
    lease = rig.hold(200.0)
    rig.keeper.close("the agent was stopped")
    assert rig.driver.limit == 250.0
    with pytest.raises(ConnectionError):
        rig.hold(150.0)
    with pytest.raises(ConnectionError):
        rig.keeper.change(lease, 150.0)
    assert rig.driver.limit == 250.0


def test_the_value_said_to_be_restored_is_the_one_that_was():
    rig = Keeper()
    first, second, third = (rig.hold(watts) for watts in (200.0, 180.0, 160.0))
    rig.keeper.change(first, 210.0)
    assert second.entry.previous == 210.0
    rig.keeper.end(second, "released")
    assert not second.restored
    assert third.entry.previous == 210.0
    rig.keeper.end(first, "released")
    rig.keeper.end(third, "released")
    assert third.restored
    assert third.entry.previous == rig.driver.limit == 250.0
