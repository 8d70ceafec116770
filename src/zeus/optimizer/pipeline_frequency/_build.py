"""Compiles the solver. Needs only the standard library: packaging runs this file on its own.

The library's name holds a digest of its sources, so a library built from other sources is never
loaded by mistake.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

SOURCES = Path(__file__).with_name("c")
FLAGS = ["-std=c11", "-O2", "-fPIC", "-shared"]
if os.uname().machine == "x86_64":
    FLAGS.append("-march=x86-64")  # some compilers assume newer CPUs than a wheel may


class BuildError(RuntimeError):
    """There is no compiler, or it failed; the message has its name and output."""


def library_name() -> str:
    """Return the file name of the library compiled from the current sources."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"zeus_pipeline-{digest.hexdigest()[:16]}.so"


def compiler() -> list[str]:
    """Return the command of the C compiler: the variable `CC`, or the first one found.

    Raises:
        BuildError: If there is none.
    """
    import shlex  # noqa: PLC0415  (needed only to compile)
    import shutil  # noqa: PLC0415

    words = shlex.split(os.environ.get("CC", ""))
    for candidate in [words] if words else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(candidate[0]):
            return candidate
    wanted = repr(words[0]) if words else "cc, gcc or clang"
    raise BuildError(f"no C compiler: {wanted} is not found")


def build(folder: Path) -> Path:
    """Compile the library into a folder, which is created if it does not exist.

    Returns:
        Path of the library; it appears atomically for other processes.

    Raises:
        BuildError: If it cannot be compiled.
        OSError: If the folder cannot be written to.
    """
    import subprocess  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    command = [*compiler(), *FLAGS]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    library = folder / library_name()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / library.name
        command += ["-o", str(fresh), *map(str, sorted(SOURCES.glob("*.c")))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{command[0]}: {error}") from error
        if done.returncode != 0:
            raise BuildError(f"{command[0]} failed: {(done.stderr or done.stdout).strip()}")
        fresh.replace(library)
    return library
