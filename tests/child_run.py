"""Another run of pytest, in a process and folder of its own, with plugins of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PLUGINS = (
    *("xdist", "rerunfailures", "timeout"),
    *("tests.deadlines", "tests.reruns", "tests.signals", "tests.thorough"),
)


def child_run(
    folder: Path, test_file: str, *options: str, starter: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run tests to their end, by another program if there is a `starter`."""
    (folder / "test_it.py").write_text(test_file)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  real_time: x\n  thorough: x\n")
    inherited = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [
            *starter,
            *(sys.executable, "-m", "pytest", "--tb=native", "-p", "no:cacheprovider"),
            *(word for plugin in _PLUGINS for word in ("-p", plugin)),
            *options,
        ],
        cwd=folder,
        env={
            **inherited,
            "COLUMNS": "200",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the others would take seconds to import
            "PYTHONPATH": str(_ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
