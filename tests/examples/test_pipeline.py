"""The example of a pipeline runs as its page says: less energy, the same speed, the same losses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.cli.support import environment

from zeus.optimizer.pipeline_frequency import Option, Profile, build

pytestmark = pytest.mark.thorough

if find_spec("torch") is None:  # not imported here: it takes seconds
    pytest.skip("needs PyTorch", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
SMALLER = "--microbatches 4 --steps 2 --clock-stride 210"
HEAD = 32 * 128 / (12 * 32**2 + 2 * 32 * 32)  # multiplications per token, in those of a layer


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    (python compare\.py.*\S)$", text, re.MULTILINE)
    folder = tmp_path_factory.mktemp("example")
    for path in EXAMPLE.glob("*.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    done = subprocess.run(
        ["sh", "-ec", f"{line} {SMALLER}"],
        cwd=folder,
        env=environment(
            PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin",
            PYTHONWARNINGS="error",
            ZEUS_STATE_DIR=str(folder),
        ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, json.loads((folder / "result.json").read_text())


def saved(phase, what="energy"):
    return 1 - phase["with"][what] / phase["without"][what]


def test_losses_are_identical(compared):
    said, result = compared
    assert result["losses that differ"] == 0
    assert "none of which differ from those without Zeus" in said


def test_energy_goes_down_and_time_stays(compared):
    _, result = compared
    healthy, straggler, again = result["phases"].values()
    for phase in (healthy, straggler, again):
        assert phase["with"]["time"] == pytest.approx(phase["without"]["time"], rel=1e-3)
    assert straggler["without"]["time"] == pytest.approx(1.2 * healthy["without"]["time"])
    assert 0.05 < saved(healthy) < 0.2
    assert saved(again) == pytest.approx(saved(healthy), abs=0.01)
    # Who waits for a straggler saves more, from the next iteration on.
    assert saved(straggler, "of who waits") > saved(healthy) + 0.03
    assert result["steps until settled"] == [1, 1]


def test_virtual_time_is_that_of_the_schedule(compared):
    _, result = compared
    profile = Profile(
        {
            (stage, instruction): [Option(1410, 0.05 * layers * passes, 1.0)]
            for stage, layers in enumerate((3, 3, 2, 3 + HEAD))
            for instruction, passes in (("forward", 1), ("backward", 2))
        }
    )
    exact = build(profile, "1f1b", microbatches=4, blocking_power=0.0).at_highest_frequency().time
    assert result["phases"]["healthy"]["without"]["time"] == pytest.approx(exact, rel=1e-9)
