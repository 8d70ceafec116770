"""The example of a policy is one, and says what its comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from zeus.agent._policy import PolicyError, parse_policy

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "agent.toml"
DOCUMENT = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")


def _check(*options):
    return subprocess.run(
        [sys.executable, "-m", "zeus", "agent", "policy", "check", str(FILE), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_it_can_be_used():
    done = _check()
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 rules, 1 ceilings" in done.stdout


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (["--user", "no-one", "--power-limit", "200"], False),
        (["--user", "no-one", "--slurm-job", "7", "--power-limit", "200"], True),
        (["--user", "no-one", "--slurm-job", "7", "--power-limit", "100"], False),
        (["--user", "no-one", "--slurm-job", "7", "--memory-clock", "1215"], False),
        (["--user", "root", "--gpu", "NVIDIA A100-SXM4-40GB", "--power-limit", "400"], False),
        (["--user", "root", "--gpu", "NVIDIA H100", "--power-limit", "400"], True),
    ],
)
def test_what_it_allows(options, allowed):
    assert _check(*options).returncode == (0 if allowed else 1)


def test_the_exporter_may_read_the_energy_of_cpus():
    unit = "/system.slice/zeus-export.service"
    assert "CPU energy: allowed" in _check("--user", "no-one", "--cgroup", unit).stdout
    assert "CPU energy: not allowed" in _check("--user", "no-one").stdout


def test_the_documented_exceptions_are_a_policy():
    block = re.search(r"exceptions come first:\n\n((?:    .*\n|\n)+)", DOCUMENT)
    assert block is not None
    policy = parse_policy(block[1])
    assert [rule.gpus for rule in policy.rules] == [(0,), ("NVIDIA A100*",)]


@pytest.mark.parametrize("table", ["", "[[rule]]\n", "[[ceiling]]\n"])
def test_every_key_is_documented(table):
    with pytest.raises(PolicyError) as error:
        parse_policy(table + "no-such-key = 1")
    known = re.search(r"has keys (.*), but got no-such-key", str(error.value))
    assert known is not None
    for key in known[1].split(", "):
        assert f"`{key}`" in DOCUMENT or f"`[[{key}]]`" in DOCUMENT, key
