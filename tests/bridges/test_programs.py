"""`python -m zeus.monitor` and `python -m zeus.show_env`, as they were documented."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from tests.cli.support import LONG_ENOUGH, environment


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        env=environment(ZEUS_SIMULATE="v100x2", PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(process, said):
    """Its output, after it was interrupted once a line with these words had come."""
    stream = process.stderr if said.startswith("zeus:") else process.stdout
    for line in stream:
        if said in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    return line + out, err


def test_energy_until_interrupted():
    out, _ = interrupted(start("zeus.monitor", "energy", "--gpu-indices", "0"), "zeus: measuring")
    assert re.search(r"Total energy \(J\):[^$]*GPU 0", out, re.DOTALL), out
    assert "GPU 1" not in out


def test_power_until_interrupted():
    process = start("zeus.monitor", "power", "--update-period", "0.1")
    out, err = interrupted(process, "'GPU0'")
    assert re.search(r"\{'GPU0': [\d.]+, 'GPU1': [\d.]+\}\n\nTotal time \(s\): [\d.]+", out)
    assert re.search(r"Total energy \(J\): \{'GPU0': [\d.]+, 'GPU1': [\d.]+\}", out)
    assert "DeprecationWarning: zeus 0.16 had `python -m zeus.monitor power`" in err
    assert "use `zeus top`" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["energy", "--gpu-indices", "7"], "zeus: device indices must be among"),
        (["power", "--update-period", "0"], "invalid"),
        ([], "required"),
    ],
)
def test_wrong_words(words, said):
    process = start("zeus.monitor", *words)
    _, err = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 2
    assert said in err
    assert "Traceback" not in err


def test_the_environment():
    process = start("zeus.show_env")
    out, err = process.communicate(timeout=LONG_ENOUGH)
    assert (process.returncode, out.count("V100") > 0) == (0, True), err
    assert "use the command `zeus env`" in err
