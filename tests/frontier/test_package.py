"""The room's front door."""

from __future__ import annotations

import subprocess
import sys

import zeus.frontier


def test_public_names():
    assert sorted(zeus.frontier.__all__) == zeus.frontier.__all__
    for name in zeus.frontier.__all__:
        assert getattr(zeus.frontier, name).__doc__


def test_it_stands_on_errors_and_rules_only():
    script = (
        "import sys, zeus.frontier\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('zeus.')}\n"
        "print(sorted(rooms - {'_lazy', '_neighbour', '_student'}), 'rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "['_rules', 'errors', 'frontier'] False"
