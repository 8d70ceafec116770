"""The example of a recurring job runs as its page says, and comes out with figures."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.support import environment

pytest.importorskip("torch")
pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"


def commands():
    """The lines of the page, by the program that they run."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (.*\S)$", text.replace("\\\n", " "), re.MULTILINE)
    return [line for line in lines if "zeus run" in line or "compare.py" in line]


def test_it_runs_as_its_page_says(tmp_path):
    for path in EXAMPLE.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    zeus, default, compare = commands()
    tools = str(Path(sys.executable).parent)
    said = ""
    for line in (zeus, default, compare):
        once = line.replace("--recurrences 30", "--recurrences 1")
        done = subprocess.run(
            ["sh", "-ec", once],
            cwd=tmp_path,
            env=environment(PATH=f"{tools}:/usr/bin:/bin", PYTHONWARNINGS="error"),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said = done.stdout
    output = shlex.split(zeus)[shlex.split(zeus).index("--output") + 1]
    (recurrence,) = json.loads((tmp_path / output).read_text())["recurrences"]
    assert (recurrence["outcome"], recurrence["batch_size"]) == ("converged", 256)
    # The same seed, the same batch size: the same epochs, at a lower power limit.
    change = re.search(r"energy .*: ([+-][\d.]+)%", said)
    assert change is not None
    assert -40 < float(change[1]) < -5
