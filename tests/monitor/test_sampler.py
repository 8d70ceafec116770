"""The sampler's own rounds, driven by hand."""

from __future__ import annotations

import math

from zeus.device.node import Node
from zeus.monitor.sampler import Sampler


class HandClock:
    """Real time as far as the sampler knows; the test fires its loop."""

    virtual = False

    def __init__(self):
        self.instant = 100.0
        self.alarms = {}

    def now(self):
        return self.instant

    def run(self, alarm, name):
        self.alarms[name] = alarm
        return self

    def wake(self):
        pass

    def stop(self, *, wait=True):
        pass


class Looks:
    """A channel."""

    settles = True
    trouble = None
    thrift = 1.0
    due = math.inf

    def look(self):
        self.due = math.inf

    def hurry(self, due):
        pass

    def forget(self, before):
        pass


class Settling:
    """A client that works out an old window while the sampler keeps house, as monitors do."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.channels = (Looks(),)
        self.settled = 0

    def channels_wanted(self, now):
        return self.channels

    def housekeeping(self, now):
        self.sampler.settle(now - 1.0)
        self.settled += 1


def test_housekeeping_does_not_wait_for_a_round_of_its_own_thread():
    clock = HandClock()
    sampler = Sampler(Node(clock))
    client = Settling(sampler)
    sampler.join(client)
    sampler.wake()
    loop = clock.alarms["zeus-sampler"]
    loop.fire()  # looks at everything
    clock.instant += 10.0
    loop.fire()  # looks at nothing in particular, and keeps house
    assert client.settled == 2
    # Whoever waits asks for a round at once: nobody did.
    assert loop.due() != clock.now()
