"""The example of GPT-3 Large runs as its page says, and saves what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.support import environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt3_large"


def test_it_runs_as_its_page_says_and_saves_what_it_says(tmp_path):
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (.*\S)$", text, re.MULTILINE)
    assert len(lines) == 4
    (tmp_path / "write_profile.py").write_bytes((EXAMPLE / "write_profile.py").read_bytes())
    python = f"{sys.executable} -W error"
    saved = []
    for line in lines:
        command = re.sub("^python ", f"{python} ", re.sub("^zeus ", f"{python} -m zeus ", line))
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        saved += re.findall(
            r"^selected .* ([+-][\d.]+) % +-([\d.]+) % +([\d.]+) %$", done.stdout, re.M
        )
    assert [slower for slower, _, _ in saved] == ["+0.0", "+0.0"]
    for _, share, _ in saved:
        assert f"{share} %" in text
    assert f"at most {saved[0][2]} % from the best" in text
    assert "Before: every clock at its highest" in (tmp_path / "plan.svg").read_text()
