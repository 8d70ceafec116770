"""The values that the agent puts back at the end of a scheduler's job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zeus.agent._agent import Agent, Session
from zeus.agent._audit import Audit
from zeus.agent._jobs import Jobs
from zeus.agent._peer import Peer
from zeus.agent._policy import Policy, parse_policy
from zeus.device._agent_wire import PROTOCOL
from zeus.device._node import simulated_node

DEFAULT_LIMIT = 400.0


class Node:
    """An agent of one simulated GPU, root's session with it, and the GPU itself."""

    def __init__(self, policy: Policy, jobs: Path | None = None) -> None:
        self._node = simulated_node("a100")
        (self._driver,) = self._node.drivers
        self._jobs = jobs
        self.start(policy)

    def start(self, policy: Policy) -> None:
        self.agent = Agent(self._node, policy, Audit(None), Jobs(self._jobs))
        self._root = self.session()

    def session(self) -> Session:
        found = self.agent.admit(Peer(os.getpid(), 0, "root"))
        assert found is not None
        self.agent.answer(found, {"do": "hello", "protocol": PROTOCOL})
        return found

    def ask(self, do, session=None, **fields):
        return self.agent.answer(session or self._root, {"do": do, **fields})[0]

    def hold(self, watts, session):
        key = self._driver.identity.key
        self.ask("hold", session, gpu=key, knob="power_limit", value=watts)

    def begin(self):
        self.ask("job_begin", job="7", uid=1000, gpus=["0"])

    def end(self):
        (put_back,) = self.ask("job_end", job="7")["put_back"].values() or [{}]
        return put_back

    @property
    def limit(self):
        return self._driver.power_limit()

    @limit.setter
    def limit(self, watts):
        self._driver.set_power_limit(watts)


@pytest.fixture
def node():
    return Node(Policy())


def test_what_was_set_beside_the_agent_is_put_back(node):
    node.begin()
    node.limit = 200.0
    assert node.end() == {"power_limit": (200.0, DEFAULT_LIMIT)}
    assert node.limit == DEFAULT_LIMIT


def test_a_lease_that_was_there_before_and_ended_meanwhile_does_not_come_back(node):
    before = node.session()
    node.hold(250, before)
    node.begin()
    node.agent.leave(before, "released")
    assert node.limit == DEFAULT_LIMIT
    assert node.end() == {}
    assert node.limit == DEFAULT_LIMIT


def test_a_lease_that_was_there_before_and_is_there_still_stays(node):
    node.hold(250, node.session())
    node.begin()
    assert node.end() == {}
    assert node.limit == 250


@pytest.mark.parametrize("later", [False, True], ids=["from the beginning", "since"])
def test_a_ceiling_holds_again_after_a_job_that_set_more(later):
    ceiling = parse_policy("[[ceiling]]\npower_limit = 300")
    node = Node(Policy() if later else ceiling)
    node.begin()
    if later:
        node.agent.adopt(ceiling)
    assert node.limit == 300
    node.limit = 350.0
    assert node.end() == {"power_limit": (350.0, 300.0)}
    assert node.limit == 300


def test_without_a_ceiling_any_more_the_value_from_before_it_is_put_back(node):
    node.agent.adopt(parse_policy("[[ceiling]]\npower_limit = 300"))
    node.begin()
    node.agent.adopt(Policy())
    assert node.limit == DEFAULT_LIMIT
    node.end()
    assert node.limit == DEFAULT_LIMIT


class TestEndsThatWereMissed:
    @pytest.fixture
    def note(self, tmp_path):
        (tmp_path / "ended-jobs").mkdir()
        return tmp_path / "ended-jobs" / "7"

    @pytest.fixture
    def node(self, tmp_path):
        node = Node(Policy(), tmp_path / "jobs.json")
        node.begin()
        node.limit = 200.0
        return node

    def test_are_made_up_for_at_the_next_start(self, node, note):
        note.touch()
        node.start(Policy())
        assert node.limit == DEFAULT_LIMIT
        assert node.ask("status")["jobs"] == []
        assert not note.exists()

    def test_are_made_up_for_before_a_job_begins_again(self, node, note):
        note.touch()
        node.begin()
        assert node.limit == DEFAULT_LIMIT
        assert [job["job"] for job in node.ask("status")["jobs"]] == ["7"]

    def test_without_one_a_job_goes_on_when_the_agent_starts_again(self, node, note):
        node.start(Policy())
        assert node.limit == 200
        assert node.end() == {"power_limit": (200.0, DEFAULT_LIMIT)}

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
    def test_a_note_of_another_user_is_none(self, node, note):
        note.touch()
        os.chown(note.parent, 12_345, 12_345)
        node.start(Policy())
        assert [job["job"] for job in node.ask("status")["jobs"]] == ["7"]
