"""Policies: which process may set which knob of which GPU, and files that are none."""

from __future__ import annotations

import math

import pytest

from zeus.agent._peer import Peer
from zeus.agent._policy import DEFAULT, Bounds, GpuName, Policy, PolicyError, parse_policy

A100 = GpuName(0, "GPU-a", "NVIDIA A100-SXM4-80GB")
V100 = GpuName(1, "GPU-v", "Tesla V100-SXM2-16GB")
ROOT = Peer(1, 0, "root")
ALICE = Peer(2, 1000, "alice", frozenset({"ml", "users"}))
BOB = Peer(3, 1001, "bob", frozenset({"users"}), slurm_job="12", cgroup="/system.slice/slurm")
POD = Peer(5, 1003, "1003", pod="5fa0c1de-0000-4000-8000-000000000001", cgroup="/../../pod5fa")
TRUSTED = frozenset({0})


def allowed(text: str, peer: Peer, gpu: GpuName = A100, knob: str = "power_limit", own=()):
    return parse_policy(text).bounds(peer, gpu, knob, frozenset(own), TRUSTED)


def test_without_a_file_the_group_decides():
    member = Peer(4, 1002, "carol", frozenset({"zeus"}))
    assert DEFAULT.bounds(member, A100, "graphics_clock") == Bounds()
    assert DEFAULT.cpu_energy(member)
    assert DEFAULT.bounds(ALICE, A100, "power_limit") is None
    assert not DEFAULT.cpu_energy(ALICE)
    assert DEFAULT.admits(ALICE, TRUSTED)
    assert DEFAULT.bounds(ROOT, A100, "power_limit", trusted=TRUSTED) is not None


@pytest.mark.parametrize(
    ("who", "peers"),
    [
        ('users = ["alice"]', {ALICE}),
        ('users = ["1001"]', {BOB}),
        ('groups = ["ml"]', {ALICE}),
        ('slurm_jobs = ["*"]', {BOB}),
        ('slurm_jobs = ["13"]', set()),
        ('cgroups = ["/system.slice/*"]', {BOB}),
        ('pods = ["*"]', {POD}),
        ('pods = ["5fa*"]', {POD}),
        ('pods = ["6*"]', set()),
        ('users = ["alice"]\ngroups = ["other"]', set()),  # all that is named must match
        ("", {ALICE, BOB, POD}),
    ],
)
def test_a_rule_is_for_processes_that_match_all_it_names(who, peers):
    text = f"[[rule]]\n{who}\npower_limit = true"
    assert {peer for peer in (ALICE, BOB, POD) if allowed(text, peer)} == peers


@pytest.mark.parametrize(
    ("gpus", "covered"),
    [
        ("", {A100, V100}),
        ("gpus = [1]", {V100}),
        ('gpus = ["GPU-a"]', {A100}),
        ('gpus = ["NVIDIA A100*"]', {A100}),
        ('gpus = ["own"]', {V100}),
        ("gpus = []", set()),
    ],
)
def test_a_rule_is_for_gpus_by_number_key_name_or_job(gpus, covered):
    text = f"[[rule]]\n{gpus}\npower_limit = true"
    found = {gpu for gpu in (A100, V100) if allowed(text, BOB, gpu, own=["GPU-v"])}
    assert found == covered


def test_the_first_rule_that_matches_decides():
    text = (
        '[[rule]]\nusers = ["alice"]\n'  # read-only
        "[[rule]]\npower_limit = [100, 200]\n[[rule]]\npower_limit = [1, 999]"
    )
    assert allowed(text, ALICE) is None
    assert allowed(text, BOB) == Bounds(100, 200)


def test_nobody_exceeds_the_ceiling():
    text = (
        '[[ceiling]]\ngpus = ["*A100*"]\npower_limit = 300\n[[ceiling]]\npower_limit = 350\n'
        "[[rule]]\npower_limit = [310, 400]"
    )
    assert allowed(text, ROOT).highest == 300
    assert allowed(text, BOB) == Bounds(300, 300)
    assert allowed(text, BOB, V100) == Bounds(310, 350)
    assert math.isinf(parse_policy(text).ceiling(A100, "graphics_clock"))


@pytest.mark.parametrize(
    ("knob", "value", "fine"),
    [
        ("power_limit", 150, True),
        ("power_limit", 300.0, True),
        ("power_limit", 149.9, False),
        ("power_limit", 301, False),
        ("graphics_clock", [10, 200], True),  # may fall as low as it likes
        ("graphics_clock", [10, 301], False),
        ("graphics_clock", [10, 149], False),
        ("graphics_clock", None, False),
    ],
)
def test_values_outside_the_bounds_are_refused_with_the_rule(knob, value, fine):
    why = Bounds(150, 300).refusal(knob, value)
    assert (why == "") is fine
    if not fine:
        assert "150" in why
        assert "300" in why


def test_leases_last_no_longer_than_the_shortest_word_on_it():
    text = 'longest_lease = "2h"\n[[rule]]\npower_limit = true\nlongest_lease = "30m"'
    assert allowed(text, ALICE).longest == 1800
    assert allowed(text, ROOT).longest == 1800
    assert allowed('longest_lease = "2h"\n[[rule]]\npower_limit = true', BOB).longest == 7200


def test_who_is_not_admitted_does_not_come_in():
    policy = parse_policy('default = "none"\noperators = ["@ml"]\n[[rule]]\nusers = ["bob"]')
    assert policy.admits(BOB, TRUSTED)
    assert policy.admits(ALICE, TRUSTED)
    assert policy.operator(ALICE, TRUSTED)
    assert not policy.operator(BOB, TRUSTED)
    assert policy.admits(ROOT, TRUSTED)
    assert not policy.admits(Peer(9, 1003, "eve"), TRUSTED)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("power = ", "not TOML"),
        ("default = 'all'", "default must be one of read, none, but is 'all'"),
        ("heartbeat = 1", "heartbeat must be 2 to 3600 seconds, but is 1"),
        ("longest_lease = 'soon'", "longest_lease must be seconds, or a duration"),
        ("longest_lease = 0", "longest_lease must be"),
        ("rule = 3", "rule must be written as [[...]] tables"),
        ("[[rule]]\npower_limit = [300, 200]", "rule[0].power_limit must be true, false"),
        ("[[rule]]\npower_limit = [-1, 200]", "rule[0].power_limit must be a number above 0"),
        ("[[rule]]\nusers = 'alice'", "rule[0].users must be a list of names"),
        ("[[rule]]\ngpus = [-1]", "rule[0].gpus must be a list of numbers"),
        ("[[rule]]\ncpu_energy = 1", "rule[0].cpu_energy must be true or false"),
        ("[[rule]]\nuser = ['alice']", "but got user"),
        ("[[ceiling]]\npower_limit = true", "ceiling[0].power_limit must be a number above 0"),
        ("[[ceiling]]\npower_limit = nan", "ceiling[0].power_limit must be a number above 0"),
        ("[sub]\nx = 1", "but got sub"),
    ],
)
def test_a_policy_that_is_none_says_what_is_wrong(text, says):
    with pytest.raises(PolicyError) as raised:
        parse_policy(text)
    assert says in str(raised.value)


def test_an_empty_policy_lets_all_read():
    assert parse_policy("") == Policy()
