"""Compiles the simulated driver libraries.

Each library is one folder of C files, plus the folder `common` that all of them share. The result
carries the name that the vendor's binding asks the loader for, so a folder on LD_LIBRARY_PATH is
all a process needs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

SONAMES = {
    "nvml": "libnvidia-ml.so.1",
    "amdsmi": "libamd_smi.so",
}

SOURCES = Path(__file__).parents[2]
_COMMON = "common"
# Contracted multiply-adds would make the library and its controller differ in the last bit.
_FLAGS = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-ffp-contract=off"]


class BuildError(RuntimeError):
    """A simulated driver library did not compile; the message holds what the compiler said."""


def build(name: str, into: Path) -> Path:
    """Compile the library `name` into the folder `into` and return the path of the library."""
    if name not in SONAMES:
        raise BuildError(f"no simulated driver named {name!r}, only {sorted(SONAMES)}")
    sources = sorted((SOURCES / name).glob("*.c"))
    if not sources:
        raise BuildError(f"no C files in {SOURCES / name}")
    into.mkdir(parents=True, exist_ok=True)
    library = into / SONAMES[name]
    # Renaming a finished file into place lets several test processes share one folder.
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        fresh = Path(scratch) / SONAMES[name]
        _compile(sources + sorted((SOURCES / _COMMON).glob("*.c")), fresh)
        fresh.replace(library)
    return library


def _compile(sources: list[Path], library: Path) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, *_FLAGS, "-I", str(SOURCES / _COMMON)]
    command += [f"-Wl,-soname,{library.name}", "-o", str(library)]
    command += [str(source) for source in sources] + ["-pthread", "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"cannot run the C compiler {compiler[0]!r}: {error}") from error
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
