"""What docs/recurring.md shows and lists is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.server.test_openapi import ROUTES

TEXT = (Path(__file__).parents[2] / "docs" / "recurring.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_is(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout == "converged the target was reached after 4 epochs\n"


def test_every_route_is_listed():
    for path in ROUTES:
        shown = path.replace("{name}", "NAME").replace("{trial}", "TRIAL")
        assert f" {shown}`" in TEXT, path
